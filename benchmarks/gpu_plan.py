"""Which processes the table of gpu.py takes, in which order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import gpu_table
from gpu_cell import HEADERS, MAKERS, NEEDS, Setting
from gpu_lanes import Task
from gpu_profile import PROFILE

# Each takes over what those before it have tuned or compiled, of the same model.
CHAIN: Final = ("max-autotune", "make package", "max-no-graph", "bare replay", "max-no-descent")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What makes the tasks.

    Attributes:
        setting: of all cells.
        timeout: seconds for a cell.
        build_timeout: and for one that builds.
    """

    setting: Setting
    timeout: float
    build_timeout: float

    def cell(self, model: str, way: str) -> Task:
        """Return the task of a cell, which waits for nothing."""
        built = way in MAKERS or way in HEADERS
        return Task(
            model=model,
            way=way,
            script="gpu.py",
            arguments=(*passed(self.setting), "--one", model, way, "--json"),
            limit=self.build_timeout if built else self.timeout,
        )

    def making(self, models: Sequence[str], makers: Sequence[str]) -> list[Task]:
        """Return the tasks that build what is not there yet.

        Where several builds would wait for the same headers, the headers come first.
        """
        built = [
            (model, maker)
            for maker in makers
            for model in models
            if not self.setting.made(maker, model).exists()
        ]
        tasks = []
        for way, maker in HEADERS.items():
            if sum(other == maker for _, other in built) > 1:
                tasks.append(self.cell("-", way))
        headers = {maker: (("-", way),) for way, maker in HEADERS.items()}
        for model, maker in built:
            tasks.append(replace(self.cell(model, maker), after=headers[maker]))
        return tasks

    def cells(self, models: Sequence[str], ways: Sequence[str]) -> list[Task]:
        """Return the tasks of the table.

        Eager and ours come first, then what takes long: with more models than half of the jobs, it
        may take all of them while ours waits for its headers.
        """
        makers = dict.fromkeys(NEEDS[way] for way in ways if way in NEEDS)
        making = self.making(models, tuple(makers))
        headers = [task for task in making if task.model == "-"]
        built = {task.key: task for task in making}
        first = ("eager", "make artifact", *gpu_table.OURS, "eager graph")
        order = [way for way in CHAIN if way in ways or way in makers]
        rest = [way for way in ways if way not in (*first, *order)]
        tasks = list(headers)
        for way in (*(way for way in first if way in ways or way in makers), *order, *rest):
            for model in models:
                if way in MAKERS and (model, way) not in built:
                    continue
                task = built.get((model, way)) or self.cell(model, way)
                needs = ((model, NEEDS[way]),) if way in NEEDS else ()
                before = order[: order.index(way)] if way in order else ()
                after = tuple((model, other) for other in before)
                tasks.append(replace(task, needs=needs, after=(*task.after, *after)))
        return tasks

    def profile(self, model: str, way: str) -> Task:
        """Return the task that profiles a way."""
        return self.cell(model, PROFILE + way)


def passed(setting: Setting) -> list[str]:
    """Return the arguments that give a cell its setting."""
    device = setting.device.partition(":")[0]
    size = ["--small"] if setting.small else []
    given = {"device": device, "folder": setting.folder, "calls": setting.calls}
    pairs = {**given, "mode": setting.mode}.items()
    return [*size, *(text for name, value in pairs for text in (f"--{name}", str(value)))]
