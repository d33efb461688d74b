"""Where work that is done is kept: finished jobs of the builder, unpacked libraries of the runtime."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder: $TCBUILD_CACHE, else $XDG_CACHE_HOME/tcbuild, else ~/.cache/tcbuild."""
    own = os.environ.get("TCBUILD_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "tcbuild"
