"""Loads artifacts and answers calls from them. Starts no compiler and imports none."""

from .alert import Alert
from .attach import attach, detach
from .dispatcher import Dispatcher
from .errors import HostError, LibraryError, MissError, StateError
from .load import load
from .miss import Explanation
from .stats import Stats

__all__ = [
    "Alert",
    "Dispatcher",
    "Explanation",
    "HostError",
    "LibraryError",
    "MissError",
    "StateError",
    "Stats",
    "attach",
    "detach",
    "load",
]
