"""`tcbuild inspect`."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tcbuild.aot.cli import words
from tcbuild.formats import Artifact, Manifest
from tcbuild.formats.signature import (
    Branch,
    DimLeaf,
    InputLeaf,
    Parameter,
    Signature,
    TensorLeaf,
    ValueLeaf,
)

from ..conftest import CommandLine


def test_inspect_says_what_is_in_the_file(tcbuild: CommandLine, tiny_artifact: Path) -> None:
    done = tcbuild("inspect", tiny_artifact.name, cwd=tiny_artifact.parent)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("tiny.tcb: tiny from model:build, ")
    for line in ("  x: float32[batch, 4]", "  float32[batch, 4]", "    sizes   batch=2..64"):
        assert line in lines
    assert "  2 tensors, 272 B" in lines
    assert any(line.startswith("  torch ") for line in lines)
    assert lines[lines.index("tensor check") + 1].startswith("  compiled, for python: cpython-")
    assert max(map(len, lines)) <= 80
    assert "x.dtype" not in done.stdout


def test_inspect_guards_in_words(tcbuild: CommandLine, tiny_artifact: Path) -> None:
    done = tcbuild("inspect", tiny_artifact.name, "--guards", cwd=tiny_artifact.parent)
    assert "      x.dtype: float32\n" in done.stdout
    assert "      x.size(0): 2..64\n" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_inspect_as_json(tcbuild: CommandLine, tiny_artifact: Path) -> None:
    done = tcbuild("inspect", tiny_artifact, "--json", "--guards", "--check")
    record = json.loads(done.stdout)
    assert record["bytes"] == tiny_artifact.stat().st_size
    assert record["checked"] is True
    compiled = record["manifest"]["variants"][0]["id"]
    assert "x.dtype: float32" in record["guards"][compiled]
    with Artifact(tiny_artifact) as artifact:
        text = json.dumps(record["manifest"]).encode()
        assert Manifest.from_bytes(text, "inspect") == artifact.manifest


def test_inspect_check_finds_a_changed_byte(
    tcbuild: CommandLine, tiny_artifact: Path, tmp_path: Path
) -> None:
    data = bytearray(tiny_artifact.read_bytes())
    data[-1] ^= 1  # the last byte of the weights
    path = tmp_path / "changed.tcb"
    path.write_bytes(data)
    assert tcbuild("inspect", path).returncode == 0
    done = tcbuild("inspect", path, "--check")
    assert done.returncode == 10
    assert "section 'weights'" in done.stderr
    assert "TIP: " in done.stderr
    fine = tcbuild("inspect", tiny_artifact, "--check")
    assert fine.returncode == 0
    assert "sections have the digest that was recorded" in fine.stdout


@pytest.mark.parametrize("size", [0, 7, 40, 5000])
def test_inspect_refuses_a_file_that_is_cut_short(
    tcbuild: CommandLine, tiny_artifact: Path, tmp_path: Path, size: int
) -> None:
    path = tmp_path / "cut.tcb"
    path.write_bytes(tiny_artifact.read_bytes()[:size])
    assert tcbuild("inspect", path).returncode == 10


def test_inspect_lists_tied_weights(tcbuild: CommandLine, edited: Callable[..., Path]) -> None:
    def tie(manifest: Manifest) -> Manifest:
        assert manifest.weights is not None
        name = next(iter(manifest.weights.tensors))
        tensors = {**manifest.weights.tensors, "twin": manifest.weights.tensors[name]}
        return replace(
            manifest, weights=replace(manifest.weights, tensors=tensors, aliases={"twin": name})
        )

    done = tcbuild("inspect", edited(tie))
    assert "  twin is tied to " in done.stdout


def tensor(index: int, *shape: int | str, layout: str = "contiguous") -> TensorLeaf:
    """Return a leaf of float32."""
    return TensorLeaf(dtype="float32", shape=shape, index=index, layout=layout)


def test_words_of_a_signature() -> None:
    signature = Signature(
        parameters=(
            Parameter(name="x", form="positional_only", node=tensor(0, "batch", 4)),
            Parameter(
                name="mask",
                form="positional_or_keyword",
                default=ValueLeaf.of(None),
                node=tensor(1, "2*batch", layout="0"),
            ),
            Parameter(
                name="flag",
                form="keyword_only",
                default=ValueLeaf.of(True),
                node=ValueLeaf.of(True),
            ),
            Parameter(
                name="mode", form="keyword_only", default=ValueLeaf.of("a"), node=ValueLeaf.of("b")
            ),
            Parameter(name="other", form="keyword_only"),
        )
    )
    assert list(words.parameters(signature)) == [
        "x: float32[batch, 4]",
        "/",
        "mask: float32[2*batch] in memory order 0 = None",
        "*",
        "flag = True",
        "mode = 'b' (not 'a')",
        "other, left out",
    ]


def test_words_of_containers() -> None:
    leaf = tensor(0, "batch")
    named = Branch(type="somewhere:Out", form="dataclass", keys=("a",), children=(leaf,))
    keyed = Branch(
        type="dict", form="dict", keys=("k", "#1"), children=(named, DimLeaf(size="batch"))
    )
    both = Branch(type="tuple", form="tuple", children=(keyed, InputLeaf(index=0)))
    assert words.node(both, ["x"]) == "({'k': Out(a=float32[batch]), 1: int(batch)}, x)"
    assert words.node(Branch(type="tuple", form="tuple", children=(leaf,))) == "(float32[batch],)"
    assert words.node(Branch(type="list", form="list")) == "[]"
