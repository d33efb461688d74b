"""`python -m tcbuild.aot.cli`: the same as `tcbuild`."""

from . import main

main()
