"""A library that is opened when a call first needs it."""

import threading
from collections.abc import Callable, Mapping, Sequence

import torch

from .aoti import Library

Constants = Mapping[str, torch.Tensor]


class Deferred:
    """What can run, and opens its library for that.

    Of thousands of variants a process seldom needs all, and each library costs it a millisecond and more.
    """

    def __init__(self, open_library: Callable[[], Library], constants: Constants) -> None:
        self._open = open_library
        self._sets = [constants]  # the one in use first
        self._library: Library | None = None
        self._lock = threading.RLock()

    def run(self, tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Take the tensors, return the outputs; nothing is checked.

        Raises:
            LibraryError: the library does not load, or needs other constants.
            FormatError: its section is not the one that was recorded.
        """
        library = self._library
        if library is None:
            library = self._opened()
        return library.run(tensors)

    def bind_spare(self, constants: Constants) -> None:
        """Bind a second set of constants in place of the one before, now or when the library is opened."""
        with self._lock:
            self._sets[1:] = [constants]
            if self._library is not None:
                self._library.bind_spare(constants)

    def flip(self) -> None:
        """Use the other set."""
        with self._lock:
            self._sets.reverse()
            if self._library is not None:
                self._library.flip()

    def _opened(self) -> Library:
        with self._lock:
            if self._library is None:
                library = self._open()
                library.bind(self._sets[0])
                for spare in self._sets[1:]:
                    library.bind_spare(spare)
                self._library = library
            return self._library
