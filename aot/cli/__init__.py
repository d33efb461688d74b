"""The `tcbuild` command: a thin edge around the library."""

import sys
from typing import Final

# What the `build` extra installs, and so may be missing from an install that only serves.
EXTRA: Final = {"click", "rich", "tomli"}


def main() -> None:
    """Run the command line of this process and exit; the entry point."""
    try:
        from .edge import run

        code = run(sys.argv[1:])
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        text = f"error: {error.name} is not installed: pip install 'tcbuild[build]'"
        print(text, file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
