"""How the candidates of one search stand, told to whoever watches the build."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from ..progress import Standing

DEFAULT: Final = "default"  # whose time the others are held against
UNDECIDED: Final = ("compiling", "compiled", "measuring")

Tell = Callable[[Standing], None]


def unheard(_: Standing) -> None:
    """Tell nobody."""


class Standings:
    """The state of each candidate; every change is told once.

    On CUDA a candidate that compiles is measured in two ways, which then stand for themselves.
    """

    def __init__(self, tell: Tell = unheard) -> None:
        self._tell = tell
        self._all: dict[str, Standing] = {}

    def compiling(self, name: str) -> None:
        """A candidate has begun to compile."""
        self._set(Standing(candidate=name, state="compiling"))

    def compiled(self, name: str) -> None:
        """A candidate is compiled, now or before."""
        self._set(Standing(candidate=name, state="compiled"))

    def out(self, name: str, why: str) -> None:
        """A candidate is out of the running."""
        before = self._all.get(name, Standing(candidate=name, state="out"))
        self._set(replace(before, state="out", why=why))

    def measured(self, microseconds: Mapping[str, float], slower: Collection[str] = ()) -> None:
        """The calls so far have taken so long; those that are clearly slower are measured no more."""
        plain = microseconds.get(DEFAULT, 0.0)
        for name, value in microseconds.items():
            self._set(
                Standing(
                    candidate=name,
                    state="slower" if name in slower else "measuring",
                    microseconds=value,
                    ratio=plain / value if value else 0.0,
                )
            )

    def chosen(self, name: str) -> None:
        """A candidate is kept: no other that is undecided is faster."""
        for other, standing in list(self._all.items()):
            if other == name:
                self._set(replace(standing, state="chosen"))
            elif standing.state in UNDECIDED:
                self._set(replace(standing, state="slower"))

    def _set(self, standing: Standing) -> None:
        if self._all.get(standing.candidate) != standing:
            self._all[standing.candidate] = standing
            self._tell(standing)
