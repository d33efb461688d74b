"""The programs of an artifact by the sizes that they are for: a call need not ask all of them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import ne

from ..formats.guard import Guard
from ..formats.signature import Signature
from .program import Program
from .step import StepProgram

AnyProgram = Program | StepProgram
Axis = tuple[str, int]  # the path of an input, and which of its axes


class Group:
    """Programs whose guards are the same but for the sizes that they expect of some axes.

    Attributes:
        axes: these axes.
        guards: the guards that all have.
        programs: each with its place in order and the sizes that it expects of the axes.
    """

    def __init__(self, axes: tuple[Axis, ...], guards: tuple[Guard, ...]) -> None:
        self.axes = axes
        self.guards = guards
        self.programs: list[tuple[int, AnyProgram, tuple[object, ...]]] = []

    def nearest(self, sizes: tuple[int | None, ...]) -> tuple[int, int, AnyProgram]:
        """Return the program that expects the most of these sizes, the last of equals.

        Args:
            sizes: of the axes in a call.

        Returns:
            How many of the sizes it does not expect, its place in order, and the program.
        """
        found = (
            (sum(map(ne, expected, sizes)), -place, program)
            for place, program, expected in self.programs
        )
        differ, place, program = min(found, key=lambda item: item[:2])
        return differ, -place, program


class BySize:
    """Programs, and for each signature where those for given sizes are.

    Attributes:
        padded: whether smaller calls are padded up to some of them.
    """

    def __init__(self, programs: Sequence[AnyProgram], signatures: Sequence[Signature]) -> None:
        self.padded = any(program.variant.pad for program in programs)
        # signature -> names of the dims of one size -> these sizes -> (place in order, program)
        self._tables: dict[
            int, dict[tuple[str, ...], dict[tuple[int, ...], list[tuple[int, AnyProgram]]]]
        ] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
        self._groups: dict[int, dict[tuple[object, ...], Group]] = defaultdict(dict)
        self._paths = [dict(signature.tensors()) for signature in signatures]
        for place, program in enumerate(programs):
            fixed = dict(sorted(program.variant.bucket.fixed().items()))
            table = self._tables[program.variant.signature][tuple(fixed)]
            table[tuple(fixed.values())].append((place, program))
            self._group(place, program)

    def near(self, signature: int, dims: Mapping[str, int]) -> list[AnyProgram]:
        """Return the programs whose single sizes are those of a call, in order.

        A bucket is not a guard: where none of these accepts the call, the groups say why.

        Args:
            signature: the index of theirs.
            dims: the sizes of the call, by dimension.
        """
        found: list[tuple[int, AnyProgram]] = []
        for names, table in self._tables.get(signature, {}).items():
            if dims.keys() >= set(names):
                found += table.get(tuple(dims[name] for name in names), [])
        return [program for _, program in sorted(found, key=lambda pair: pair[0])]

    def groups(self, signature: int) -> Iterator[Group]:
        """Yield the groups of the programs of a signature: all of them, each once."""
        yield from self._groups.get(signature, {}).values()

    def _group(self, place: int, program: AnyProgram) -> None:
        signature = program.variant.signature
        common, axes, sizes = [], [], []
        for guard in program.guards:
            leaf = self._paths[signature].get(guard.subject)
            if leaf is not None and guard.axis is not None and type(guard.expected) is int:
                axes.append((guard.subject, guard.axis))
                sizes.append(guard.expected)
            else:
                common.append(guard)
        key = (tuple(axes), *map(id, (*common, *program.setting_guards)))
        group = self._groups[signature].setdefault(key, Group(tuple(axes), tuple(common)))
        group.programs.append((place, program, tuple(sizes)))
