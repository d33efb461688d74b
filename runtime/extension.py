"""The compiled tensor check that an artifact may carry, as a module of its own for each artifact."""

from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from typing import Final

import torch

from ..formats.container import Artifact
from . import host, library_files
from .errors import LibraryError
from .tensor_check import Compiled

MODULE: Final = "tcbuild_tensor_check"


def tensor_check(artifact: Artifact, device: torch.device) -> Compiled | None:
    """Load the check; None where there is none that this host can load.

    Raises:
        FormatError: its section is not the one that was recorded.
    """
    record = artifact.manifest.tensor_check
    if record is None or host.unmet(record.guards, device):
        return None
    name = f"{MODULE}.so"
    try:
        path = str(library_files.place(artifact, {name: record.section})[name])
        loader = ExtensionFileLoader(MODULE, path)
        spec = spec_from_file_location(MODULE, path, loader=loader)
        assert spec is not None
        module = module_from_spec(spec)
        loader.exec_module(module)
        made: Compiled = module.exact_check
    except (ImportError, LibraryError, AttributeError):
        return None
    return made
