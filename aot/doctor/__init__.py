"""Checks of the build environment, one at a time: what was found, what was expected, what to type."""

from .examine import examine
from .finding import NOTE, OK, PROBLEM, Check, Finding

__all__ = ["NOTE", "OK", "PROBLEM", "Check", "Finding", "examine"]
