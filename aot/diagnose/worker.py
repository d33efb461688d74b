"""A process that climbs rungs: one request a line on stdin, one answer a line on what was stdout.

Where it dies or hangs, `trace` in its folder has its Python frames, and `at` the operator that it ran.
"""

import faulthandler
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

from .. import source_line
from ..capture import line_of
from ..plan import Plan
from ..spec import Spec
from . import repro, walk
from .answers import Difference
from .kinds import FAILS, OVERFLOWS, WRONG_BACKWARD, WRONG_FAKE
from .ladder import BY_NAME
from .subject import Graph, Subject
from .walk import Stop

WALKS = {OVERFLOWS: walk.overflow, WRONG_FAKE: walk.fakes, WRONG_BACKWARD: walk.backwards}


class Worker:
    """What the requests have in common: the model, made by the first, and its graph."""

    def __init__(self, spec: Path, job: str, folder: Path) -> None:
        self._path = spec
        self._spec = Spec.load(spec)
        self._job = next(one for one in Plan.of(self._spec).jobs if one.id == job)
        self._folder = folder
        self._subject: Subject | None = None
        self._graph: Graph | None = None
        self._count = 0

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked for; raises what the layer raises."""
        if self._subject is None:
            self._subject = Subject.of(self._spec, self._job)
        subject = self._subject
        if request["do"] == "rung":
            return self._found(BY_NAME[request["rung"]].run(subject, self._folder, {}))
        if self._graph is None:
            self._graph = Graph(subject)
        graph = self._graph
        if request["do"] == "graph":
            return {"nodes": [_node(graph, i) for i in range(len(graph.nodes))]}
        if request["do"] == "walk":
            kind = request["kind"]
            if kind in WALKS:
                return self._found(WALKS[kind](graph, self._folder / "at"))
            walk.eager(graph, self._folder / "at")
            return {"kind": ""}
        window = graph.window(request["nodes"], request.get("outputs"))
        if request["do"] == "repro":
            told = {key: request[key] for key in ("rung", "kind", "headline", "modules")}
            return {"kind": "", "source": repro.source(window, subject, **told)}
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        rung = BY_NAME[request["rung"]]
        found = rung.run(window.subject(subject), folder, request.get("options", {}))
        made = self._found(found)
        if isinstance(found, Difference) and found.what.startswith("output["):
            number = int(found.what[len("output[") :].partition("]")[0])
            made["output"] = window.outputs[number]
        return made

    @staticmethod
    def _found(found: Difference | Stop | None) -> dict[str, Any]:
        if found is None:
            return {"kind": ""}
        if isinstance(found, Stop):
            return {"kind": found.kind, "said": found.problem, "node": found.index}
        return {"kind": found.kind, "said": f"{found.what}: {found.problem}", "what": found.what}


def _node(graph: Graph, index: int) -> dict[str, Any]:
    node, line = graph.nodes[index], graph.line(index)
    tensors = [one.meta.get("val") for one in node.all_input_nodes]
    made = torch.utils._pytree.tree_leaves(node.meta.get("val"))
    return {
        "op": str(node.target),
        "takes": [walk.form(one) for one in tensors if isinstance(one, torch.Tensor)],
        "makes": [walk.form(one) for one in made if isinstance(one, torch.Tensor)],
        "line": str(line) if line else "",
        "code": line.code if line else "",
        "uses": list(graph.uses(index)),
    }


def _failed(error: Exception) -> dict[str, Any]:
    cause = error.__cause__ if error.__cause__ is not None else error
    line = line_of(cause) or source_line.of_error(cause)
    text = [part.strip() for part in str(error).splitlines() if part.strip()]
    said = f"{type(error).__name__}: {' '.join(text[:3])[:600]}"
    return {"kind": FAILS, "said": said, "line": str(line) if line else ""}


def main(argv: list[str]) -> int:
    """Serve the requests; return the exit code."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what models and compilers print is no answer
    spec, job, folder = Path(argv[0]), argv[1], Path(argv[2])
    trace = (folder / "trace").open("w", encoding="utf-8")
    faulthandler.enable(trace)
    worker: Worker | None = None
    for line in sys.stdin:
        request = json.loads(line)
        faulthandler.dump_traceback_later(request["seconds"] * 0.95, file=trace)
        try:
            worker = worker or Worker(spec, job, folder)
            made = worker.answer(request)
        except Exception as error:
            traceback.print_exc()
            made = _failed(error)
        finally:
            faulthandler.cancel_dump_traceback_later()
        answers.write(json.dumps(made) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
