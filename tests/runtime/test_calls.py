"""The calling convention, what a call gets back, and what the operator is told of a miss."""

import logging
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tcbuild import runtime
from tcbuild.formats.signature import Branch, Parameter, Signature, Symbol, TensorLeaf, ValueLeaf
from tcbuild.formats.tree import StructureError
from tcbuild.runtime import alert as alerts
from tcbuild.runtime.binding import Binder, compile_lookup, memo_key
from tcbuild.runtime.setting import Setting

from .. import models
from ..conftest import Rewrite
from .conftest import same

Call = Callable[[Any, Any], tuple[tuple[Any, ...], dict[str, Any]]]

CALLS: dict[str, Call] = {
    "by position": lambda ids, feats: ((ids, feats), {}),
    "by name": lambda ids, feats: ((), {"ids": ids, "feats": feats}),
    "by name, in another order": lambda ids, feats: ((), {"feats": feats, "ids": ids}),
    "both": lambda ids, feats: ((ids,), {"feats": feats}),
    "keys in another order": lambda ids, feats: ((ids, dict(reversed(feats.items()))), {}),
    "defaults by name": lambda ids, feats: (
        (ids, feats),
        {"mask": None, "strict": True, "repeat": 2, "temperature": 0.0, "mode": "mean"},
    ),
    "a default by position": lambda ids, feats: ((ids, feats, None), {}),
    "a parameter for a tensor": lambda ids, feats: (
        (ids, {**feats, "a": torch.nn.Parameter(feats["a"], requires_grad=False)}),
        {},
    ),
    "one tensor twice": lambda ids, feats: (
        (ids, {**feats, "pair": models.Pair(feats["pair"].left, feats["pair"].left)}),
        {},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_are_the_same_call(
    strict_net: runtime.Dispatcher, eager: models.Net, name: str
) -> None:
    (ids, feats), _ = models.net_call()
    args, kwargs = CALLS[name](ids, feats)
    for _ in range(3):
        assert same(strict_net(*args, **kwargs), eager(*args, **kwargs))
    assert sum(strict_net.stats().hits.values()) == 3


@pytest.mark.parametrize("kind", [OrderedDict, lambda feats: defaultdict(list, feats)])
def test_another_class_of_mapping_is_refused(strict_net: runtime.Dispatcher, kind: Any) -> None:
    (ids, feats), _ = models.net_call()
    strict_net(ids, feats)
    with pytest.raises(runtime.MissError, match="feats: expected a dict, found a"):
        strict_net(ids, kind(feats))


def test_what_a_call_returns(net: runtime.Dispatcher) -> None:
    (ids, feats), _ = models.net_call()
    first, second = net(ids, feats), net(ids, feats)
    assert type(first) is models.Out
    assert first.left_out is None
    assert first.ids is ids  # what is returned as it was passed
    assert list(first.extras) == ["hidden", "sizes", "small", "pooled"]
    assert first.extras["sizes"] == (5, 7)
    assert first.extras["pooled"][0] is first.extras["pooled"][1]
    assert first.extras["pooled"][2] is None
    assert not first.logits.requires_grad
    first.logits.zero_()  # belongs to the caller
    assert same(net(ids, feats), second)


def test_explain_runs_and_counts_nothing(net: runtime.Dispatcher) -> None:
    args, _ = models.net_call(seq=5)
    told = net.explain(*args)
    assert told.variant is not None
    assert told.variant.startswith("batch=3,seq=2..16@")
    assert str(told).startswith(f"answered by {told.variant}\n  batch=3,seq=1@")
    assert "ids.size(1): expected 1, found 5" in str(told)
    args, _ = models.net_call(batch=4, seq=17)
    missed = net.explain(*args)
    assert missed.variant is None
    assert str(missed).startswith("no variant accepts this call\n  batch=3,seq=1@")
    assert len(missed.refusals) == 2
    assert missed.guards == (
        "ids.size(0), ids.size(1), feats['a'].size(0), feats['pair'].left.size(0), "
        "feats['pair'].right.size(0)"
    ) or missed.guards.startswith("ids.size(0), ids.size(1)")
    assert net.stats().calls == 0


def test_warmup_counts_nothing(net: runtime.Dispatcher) -> None:
    net.warmup()
    assert net.stats().calls == 0


def test_a_miss_is_answered_by_the_embedded_graph(
    net: runtime.Dispatcher, eager: models.Net
) -> None:
    for batch, seq in ((4, 5), (2, 40), (3, 17)):
        args, _ = models.net_call(batch, seq)
        assert same(net(*args), eager(*args))
    assert net.stats().fallbacks == {"fallback module": 0, "embedded graph": 3, "nothing": 0}


def test_a_miss_that_the_embedded_graph_refuses_too(net: runtime.Dispatcher) -> None:
    (ids, feats), _ = models.net_call(batch=4)
    with pytest.raises(runtime.MissError) as caught:
        net(ids, feats, mode="sum")
    assert "mode.value: expected 'mean', found 'sum'" in caught.value.found
    assert "the embedded graph: mode.value" in caught.value.found
    assert net.stats().fallbacks["nothing"] == 1


def test_an_artifact_without_an_embedded_graph(net_artifact: Path, rewrite: Rewrite) -> None:
    path = rewrite(
        net_artifact,
        lambda manifest: replace(
            manifest, variants=tuple(v for v in manifest.variants if v.form == "library")
        ),
    )
    args, _ = models.net_call(batch=4)
    with torch.no_grad(), pytest.raises(runtime.MissError, match=r"fallback=<module>"):
        runtime.load(path)(*args)


def test_on_miss_raise_asks_no_fallback(net_artifact: Path, eager: models.Net) -> None:
    served = runtime.load(net_artifact, fallback=eager, on_miss="raise")
    args, _ = models.net_call(batch=4)
    with torch.no_grad(), pytest.raises(runtime.MissError) as caught:
        served(*args)
    assert "ids.size(0): expected 3, found 4" in caught.value.found
    assert "batch=3,seq=1@" in caught.value.expected
    assert served.stats().fallbacks["nothing"] == 1


def test_alerts_go_to_the_callback_each_and_to_the_log_at_a_bounded_rate(
    net_artifact: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[runtime.Alert] = []
    served = runtime.load(net_artifact, on_alert=seen.append)
    caplog.set_level(logging.WARNING, "tcbuild.runtime")
    args, _ = models.net_call(seq=17)
    long, _ = models.net_call(seq=18)
    with torch.no_grad():
        for call in (args, args, long):  # one kind: the values are no part of it
            served(*call)
        served(*models.net_call(batch=4)[0])
    assert [alert.count for alert in seen] == [1, 2, 3, 1]
    assert seen[2].guards == "ids.size(1)"
    assert seen[2].reason.startswith("ids.size(1): expected 2..16, found 18 [batch=3,seq=2..16@")
    assert seen[2].served_by == "embedded graph"
    assert len(caplog.records) == 2
    assert "net: miss, served by embedded graph: ids.size(1)" in caplog.text
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    with torch.no_grad():
        served(*args)
        served(*args)
    assert len(caplog.records) == 3
    assert caplog.text.endswith("(seen 4x)\n")


def test_a_callback_that_fails_changes_no_answer(
    net_artifact: Path, eager: models.Net, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(alert: runtime.Alert) -> None:
        raise ZeroDivisionError

    served = runtime.load(net_artifact, on_alert=broken)
    args, _ = models.net_call(seq=17)
    with torch.no_grad():
        assert same(served(*args), eager(*args))
    assert "the on_alert callback failed" in caplog.text


def test_kinds_of_misses_are_bounded() -> None:
    alerter = alerts.Alerter("m")
    for i in range(300):
        alerter.miss(f"guard {i}", "reason", "nothing")
    counts = alerter.counts()
    assert len(counts) == alerts.MAX_KINDS + 1
    assert counts["other"] == 300 - alerts.MAX_KINDS
    assert sum(counts.values()) == 300


def test_stats_as_text(net: runtime.Dispatcher) -> None:
    assert net.stats().fallback_share == 0
    for seq in (5, 5, 17, 1):
        net(*models.net_call(seq=seq)[0])
    text = str(net.stats())
    assert text.startswith("4 calls, 25.0% missed\n")
    assert "  miss ids.size(1): 1" in text
    assert "  served by embedded graph: 1" in text


def tensor(index: int) -> TensorLeaf:
    """Return a leaf for a tensor of one axis."""
    return TensorLeaf(dtype="float32", shape=("n",), index=index)


# def forward(x, /, a=1, sizes=(1, 2), *rest, key, other=<an object>, **more), where a call passed x,
# sizes, one more, key and one more by name.
ALL_FORMS = Signature(
    parameters=(
        Parameter(name="x", form="positional_only", node=tensor(0)),
        Parameter(
            name="a", form="positional_or_keyword", default=ValueLeaf.of(1), node=ValueLeaf.of(1)
        ),
        Parameter(
            name="sizes",
            form="positional_or_keyword",
            node=Branch(type="tuple", form="tuple", children=(ValueLeaf.of(3), ValueLeaf.of(-0.0))),
        ),
        Parameter(
            name="rest",
            form="var_positional",
            node=Branch(type="tuple", form="tuple", children=(tensor(1),)),
        ),
        Parameter(name="key", form="keyword_only", node=ValueLeaf.of("k")),
        Parameter(name="other", form="keyword_only"),
        Parameter(
            name="more",
            form="var_keyword",
            node=Branch(type="dict", form="dict", keys=("m",), children=(ValueLeaf.of(None),)),
        ),
    ),
    symbols=(Symbol(name="n", input=0, axis=0),),
)

X = torch.zeros(3)
BOUND: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    # The call, and why it is refused; nothing where it is accepted.
    "all": ((X, 1, (3, -0.0), X), {"key": "k", "m": None}, ""),
    "another value": ((X, 2, (3, -0.0), X), {"key": "k", "m": None}, "value"),
    "another zero": ((X, 1, (3, 0.0), X), {"key": "k", "m": None}, "value"),
    "another key": ((X, 1, (3, -0.0), X), {"key": "l", "m": None}, "value"),
    "another type": ((X, True, (3, -0.0), X), {"key": "k", "m": None}, "value"),
    "another length": ((X, 1, (3, -0.0, 1), X), {"key": "k", "m": None}, "expected 2 items, found 3"),
    "another class": ((X, 1, [3, -0.0], X), {"key": "k", "m": None}, "expected a tuple, found a list"),
    "left out": ((X,), {"key": "k", "m": None}, "sizes: expected a value, found it left out"),
    "one less": ((X, 1, (3, -0.0)), {"key": "k", "m": None}, "rest: expected 1 items, found 0"),
    "one more": ((X, 1, (3, -0.0), X, X), {"key": "k", "m": None}, "rest: expected 1 items, found 2"),
    "a name less": ((X, 1, (3, -0.0), X), {"key": "k"}, "more: expected keys"),
    "a name more": ((X, 1, (3, -0.0), X), {"key": "k", "m": None, "o": 1}, "more: expected keys"),
    "no key": ((X, 1, (3, -0.0), X), {"m": None}, "missing a required"),
    "what was left out": (
        (X, 1, (3, -0.0), X),
        {"key": "k", "m": None, "other": 1},
        "other: expected to be left out, found a value",
    ),
    "by name what has none": (
        (),
        {"x": X, "a": 1, "sizes": (3, -0.0), "key": "k", "m": None},
        "arguments: ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BOUND)
def test_every_form_of_parameter_is_read_alike_in_both_ways(name: str) -> None:
    args, kwargs, reason = BOUND[name]
    memo = {memo_key(ALL_FORMS, (X, X), Setting()): "found"}
    lookup = compile_lookup(ALL_FORMS, memo, Setting)
    try:
        found = lookup(*args, **kwargs)
    except Exception:
        found = None
    if reason not in ("", "value"):
        with pytest.raises(StructureError) as caught:
            Binder(ALL_FORMS).bind(args, kwargs)
        assert reason in str(caught.value)
        assert found is None
        return
    leaves = Binder(ALL_FORMS).bind(args, kwargs)
    expected = {path: str(leaf) for path, leaf in ALL_FORMS.inputs() if isinstance(leaf, ValueLeaf)}
    same_values = all(repr(leaves[path]) == text for path, text in expected.items())
    assert same_values == (reason == "")
    assert (found is not None) == same_values
    if found is not None:
        assert found[0] == "found"
        assert found[1] == (X, X) or all(one is X for one in found[1])
