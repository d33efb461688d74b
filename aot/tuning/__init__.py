"""The search for the fastest code: candidates are compiled, each measured against the others, one kept."""

from .earlier import EarlierTuning
from .search import Tuned, tune

__all__ = ["EarlierTuning", "Tuned", "tune"]
