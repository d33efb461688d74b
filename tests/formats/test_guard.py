"""What guards accept, and what they say."""

from typing import Any

import pytest

from tcbuild.formats.errors import ManifestError, UnknownFeatureError
from tcbuild.formats.fact import FACTS, TENSOR, VALUE
from tcbuild.formats.guard import DIMS, HOST, MODULE, PROCESS, Guard, check

SIZES = {"batch": 4, "seq": 10}
STRIDED = ((2, 3), (3, 1))
TRANSPOSED = ((2, 3), (1, 2))

# fact, expected, an observed value that will do, one that will not
CASES: list[tuple[str, Any, Any, Any]] = [
    ("type", "Tensor", "Tensor", "Subclass"),
    ("dtype", "float32", "float32", "float64"),
    ("device", "cpu", "cpu", "cuda"),
    ("rank", 2, 2, 3),
    ("rank", 1, 1, True),
    ("size", 4, 4, 5),
    ("size", {"min": 2, "max": 4}, 4, 5),
    ("size", {"min": 2, "max": 4}, 2, 1),
    ("size", {"min": 2}, 10**9, 1),
    ("size", {"min": 2, "max": None}, 2, 0),
    ("size", "2*seq + batch", 24, 23),
    ("layout", "contiguous", STRIDED, TRANSPOSED),
    ("layout", "1,0", TRANSPOSED, STRIDED),
    ("layout", "0,2,3,1", ((1, 2, 1, 1), (2, 1, 2, 2)), STRIDED),
    ("neg", False, False, True),
    ("conj", False, False, True),
    ("requires_grad", True, True, False),
    ("shared", False, False, True),
    ("value", "0", "0", "False"),
    ("value", "None", "None", "0"),
    ("grad_mode", False, False, True),
    ("autocast", False, False, True),
    ("default_dtype", "float32", "float32", "float64"),
    ("deterministic", False, False, True),
    ("modes", 0, 0, 1),
    ("training", "none", "none", "all"),
    ("training", "all but bn", "all but bn", "all"),
    ("trainable", False, False, True),
    ("python", "cpython-311-x86_64-linux-gnu", "cpython-311-x86_64-linux-gnu", "none"),
    ("torch", "2.13.0", "2.13.0", "2.13.1"),
    ("os", "linux", "linux", "darwin"),
    ("arch", "x86_64", "x86_64", "aarch64"),
    ("isa", ["avx2", "fma"], frozenset({"avx2", "fma", "sse"}), frozenset({"avx2"})),
    ("isa", [], frozenset(), None),
    ("onednn", True, True, False),
    ("glibc", "2.34", "2.34", "2.9"),
    ("glibc", "2.34", "2.100", "2.33.9"),
    ("glibc", "2.34", "3", "0"),
    ("gpu", "sm_90", "sm_90", "sm_100"),
    ("gpu", "sm_90", "sm_90", "none"),
    ("cuda", "13.0", "13.0", "12.8"),
    ("driver", "13.0", "13.1", "12.9"),
    ("matmul_precision", "highest", "highest", "high"),
]


def of(fact: str, expected: Any) -> Guard:
    subject = FACTS[fact].subject
    subject = "x" if subject in (TENSOR, VALUE) else subject
    axis = 1 if fact == "size" else None
    return Guard(subject=subject, fact=fact, expected=expected, axis=axis)


@pytest.mark.parametrize(("fact", "expected", "good", "bad"), CASES)
def test_accepts(fact: str, expected: Any, good: Any, bad: Any) -> None:
    guard = of(fact, expected)
    check(guard, "here")
    assert guard.accepts(good, SIZES)
    if bad is not None:
        assert not guard.accepts(bad, SIZES)
        assert guard.refusal(bad, SIZES).startswith(f"{guard.name}: expected ")


def test_every_fact_is_tried() -> None:
    assert {case[0] for case in CASES} | {"relation"} == set(FACTS)


@pytest.mark.parametrize(
    ("text", "sizes", "holds"),
    [
        ("batch*seq <= 40", SIZES, True),
        ("batch*seq < 40", SIZES, False),
        ("seq % batch == 2", SIZES, True),
        ("seq % batch == 2", {"seq": 10}, False),  # a size that could not be read
        ("seq % batch == 2", {"seq": 10, "batch": 0}, False),  # no value
    ],
)
def test_relation(text: str, sizes: dict[str, int], holds: bool) -> None:
    assert of("relation", text).accepts(True, sizes) is holds


def test_size_of_an_unknown_dim() -> None:
    guard = of("size", "2*seq")
    assert not guard.accepts(20, {})
    assert guard.refusal(20, {}) == "x.size(1): expected 2*seq, found 20"


@pytest.mark.parametrize(
    ("guard", "name", "words"),
    [
        (of("size", {"min": 2, "max": 8}), "x.size(1)", "x.size(1): 2..8"),
        (of("size", {"min": 2}), "x.size(1)", "x.size(1): 2.."),
        (of("isa", ["avx2", "fma"]), "host.isa", "host.isa: avx2 fma"),
        (of("glibc", "2.34"), "host.glibc", "host.glibc: at least 2.34"),
        (of("autocast", False), "process.autocast", "process.autocast: False"),
        (of("relation", "a == b"), "dims.relation", "dims.relation: a == b"),
    ],
)
def test_words(guard: Guard, name: str, words: str) -> None:
    assert guard.name == name
    assert str(guard) == words


@pytest.mark.parametrize(
    ("guard", "actual", "text"),
    [
        (of("size", "2*seq"), 21, "x.size(1): expected 2*seq = 20, found 21"),
        (of("size", {"min": 2, "max": 8}), 9, "x.size(1): expected 2..8, found 9"),
        (of("layout", "contiguous"), TRANSPOSED, "x.layout: expected contiguous, found 1,0"),
        (
            of("layout", "contiguous"),
            ((2, 3), (6, 2)),
            "x.layout: expected contiguous, found strides (6, 2) for shape (2, 3)",
        ),
        (
            of("relation", "batch == seq"),
            True,
            "dims.relation: expected batch == seq, found false for batch=4, seq=10",
        ),
    ],
)
def test_refusal(guard: Guard, actual: object, text: str) -> None:
    assert guard.refusal(actual, SIZES) == text


ODD: tuple[Any, ...] = (None, True, -1, 1.5, "", "2.x", "²", [1], [["a"]], {}, {"max": 1})
WELL_FORMED: dict[str, tuple[Any, ...]] = {
    "modes": (),
    "rank": (),
    "size": ("", "2.x", "²"),  # the manifest's check holds expressions against the dims
    "isa": (),
    "glibc": (),
    "driver": (),
    **dict.fromkeys(("neg", "conj", "requires_grad", "shared"), (True,)),
    **dict.fromkeys(("grad_mode", "autocast", "deterministic", "trainable", "onednn"), (True,)),
}


@pytest.mark.parametrize("fact", FACTS)
def test_expected_of_another_form(fact: str) -> None:
    allowed = WELL_FORMED.get(fact, ("", "2.x", "²"))
    for odd in ODD:
        if any(odd is item for item in allowed):
            check(of(fact, odd), "here")
        else:
            with pytest.raises(ManifestError) as caught:
                check(of(fact, odd), "here")
            assert caught.value.expected == FACTS[fact].form.text


@pytest.mark.parametrize(
    "odd",
    [{"min": 2, "max": 1}, {"min": -1}, {"min": None}, {"min": 1, "step": 2}, {"min": True}, -1],
)
def test_size_that_none_has(odd: object) -> None:
    with pytest.raises(ManifestError, match="an integer, an expression"):
        check(of("size", odd), "here")


def test_unknown_fact() -> None:
    with pytest.raises(UnknownFeatureError, match="a guard on 'colour', expected one of type"):
        check(Guard(subject="x", fact="colour", expected="red"), "here")


def test_axis_goes_with_size() -> None:
    with pytest.raises(ManifestError, match="axis 0 for 'rank'"):
        check(Guard(subject="x", fact="rank", expected=1, axis=0), "here")
    with pytest.raises(ManifestError, match="axis None for 'size'"):
        check(Guard(subject="x", fact="size", expected=1), "here")


def test_subjects_are_no_parameters() -> None:
    assert not any(subject.isidentifier() for subject in (DIMS, PROCESS, MODULE, HOST))
