"""Who wrote an artifact. Imports no torch, for `tcbuild --version`."""

import importlib.metadata


def producer() -> str:
    """Return the name and version of this package."""
    try:
        return f"tcbuild {importlib.metadata.version('tcbuild')}"
    except importlib.metadata.PackageNotFoundError:
        return "tcbuild"
