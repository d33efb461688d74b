"""Two artifacts without torch: a tiny one, and one with every kind of record."""

import dataclasses
import struct
from pathlib import Path

from tcbuild.formats.bucket import Bucket, Range
from tcbuild.formats.container import Content, write
from tcbuild.formats.extension import Extension
from tcbuild.formats.guard import DIMS, HOST, PROCESS, Guard
from tcbuild.formats.manifest import Manifest, Weight, Weights
from tcbuild.formats.safetensors_header import write_header
from tcbuild.formats.section import RAW
from tcbuild.formats.signature import (
    Branch,
    DimLeaf,
    InputLeaf,
    Parameter,
    Sample,
    Signature,
    Symbol,
    TensorLeaf,
    ValueLeaf,
)
from tcbuild.formats.target import Target
from tcbuild.formats.variant import GRAPH, LIBRARY, Variant

TARGET = Target(device="cpu", arch="x86_64", isa="x86-64-v3")
SOURCE = b"def bind(c):\n    return lambda x: (x * c['c0'].sum(),)\n"
LIBRARY_BYTES = b"\x7fELF machine code"

HOST_GUARDS = (
    Guard(subject=HOST, fact="os", expected="linux"),
    Guard(subject=HOST, fact="arch", expected="x86_64"),
    Guard(subject=HOST, fact="torch", expected="2.13.0"),
)


def tensor_guards(path: str, leaf: TensorLeaf, sizes: tuple[object, ...]) -> tuple[Guard, ...]:
    """Return the guards that a library needs on one of its input tensors."""
    return (
        Guard(subject=path, fact="type", expected="Tensor"),
        Guard(subject=path, fact="dtype", expected=leaf.dtype),
        Guard(subject=path, fact="device", expected="cpu"),
        Guard(subject=path, fact="rank", expected=len(sizes)),
        *(
            Guard(subject=path, fact="size", axis=axis, expected=size)
            for axis, size in enumerate(sizes)
        ),
        Guard(subject=path, fact="layout", expected=leaf.layout),
        Guard(subject=path, fact="neg", expected=False),
        Guard(subject=path, fact="conj", expected=False),
    )


def tiny() -> tuple[Manifest, list[Content]]:
    """Return an artifact of one variant, one input and one weight that has two names."""
    x = TensorLeaf(dtype="float32", shape=("batch",), index=0)
    signature = Signature(
        parameters=(Parameter(name="x", form="positional_or_keyword", node=x),),
        symbols=(Symbol(name="batch", input=0, axis=0),),
    )
    variant = Variant(
        id="batch=1..8@cpu-x86-64-v3",
        form=LIBRARY,
        signature=0,
        bucket=Bucket(dims={"batch": Range(min=1, max=8)}),
        guards=(*tensor_guards("x", x, ({"min": 1, "max": 8},)), *HOST_GUARDS),
        outputs=TensorLeaf(dtype="float32", shape=("batch",), index=0),
        files={"model.so": "model.so"},
        constants={"c0": "scale"},
        reference="graph.py",
        target=TARGET,
    )
    weight = Weight(dtype="float32", shape=(2,))
    manifest = Manifest(
        name="tiny",
        producer="tcbuild 0.1.0",
        signatures=(signature,),
        variants=(variant,),
        sections=(),
        weights=Weights(
            section="weights",
            tensors={"scale": weight, "tied": weight},
            aliases={"tied": "scale"},
        ),
    )
    head = write_header({"scale": ("float32", (2,))}, 64)
    return manifest, [
        Content(name="weights", parts=[head, struct.pack("<2f", 1.0, -0.5)], encoding=RAW),
        Content(name="model.so", parts=[LIBRARY_BYTES]),
        Content(name="graph.py", parts=[SOURCE]),
    ]


def rich() -> tuple[Manifest, list[Content]]:
    """Return an artifact that has every kind of record, node, fact and expression at least once."""
    manifest, contents = tiny()
    x = TensorLeaf(dtype="float32", shape=("batch",), index=0)
    ids = TensorLeaf(
        dtype="int64", shape=("batch", "seq"), index=0, sample=Sample(low=0, high=30521)
    )
    pixels = TensorLeaf(
        dtype="float16",
        shape=(2, 3, "2*seq + 4", 8),
        index=1,
        layout="0,2,3,1",
        sample=Sample(mean=-0.25, std=2.0),
    )
    feats = Branch(
        type="dict",
        form="dict",
        keys=("feats", "#7", "##"),
        children=(
            Branch(type="list", form="list", children=(pixels,)),
            ValueLeaf.of(None),
            ValueLeaf.of("a 'b' \"c\" \N{SNOWMAN}"),
        ),
    )
    signature = Signature(
        parameters=(
            Parameter(name="ids", form="positional_only", node=ids),
            Parameter(name="inputs", form="positional_or_keyword", node=feats),
            Parameter(name="rest", form="var_positional", node=Branch(type="tuple", form="tuple")),
            Parameter(
                name="scale",
                form="keyword_only",
                default=ValueLeaf.of(0.5),
                node=ValueLeaf.of(0.5),
            ),
            Parameter(name="hook", form="keyword_only"),
            Parameter(
                name="more",
                form="var_keyword",
                node=Branch(
                    type="dict", form="dict", keys=("flag",), children=(ValueLeaf.of(True),)
                ),
            ),
        ),
        symbols=(
            Symbol(name="batch", input=0, axis=0),
            Symbol(name="seq", input=1, axis=2, scale=2, offset=4),
        ),
    )
    values = tuple(
        Guard(subject=path, fact="value", expected=leaf.text)
        for path, leaf in signature.inputs()
        if isinstance(leaf, ValueLeaf)
    )
    pixel_path = "inputs['feats'][0]"
    call = (
        *tensor_guards("ids", ids, (4, {"min": 2, "max": None})),
        *tensor_guards(pixel_path, pixels, (2, 3, "2*seq + 4", 8)),
        Guard(subject=pixel_path, fact="requires_grad", expected=False),
        *values,
        Guard(subject=DIMS, fact="relation", expected="batch*seq <= 4096 and not seq % 2 == 1"),
        Guard(subject=PROCESS, fact="grad_mode", expected=False),
        Guard(subject=PROCESS, fact="autocast", expected=False),
        Guard(subject=PROCESS, fact="default_dtype", expected="float32"),
        Guard(subject=PROCESS, fact="deterministic", expected=False),
        Guard(subject=PROCESS, fact="modes", expected=0),
    )
    made = TensorLeaf(dtype="bfloat16", shape=("max(batch, 2)", "seq // 2", 8), index=0)
    outputs = Branch(
        type="some.package:Outer.Output",
        form="dataclass",
        keys=("hidden", "rest"),
        children=(
            made,
            Branch(
                type="some.package:Pair",
                form="namedtuple",
                keys=("first", "second"),
                children=(InputLeaf(index=0), DimLeaf(size="min(batch, seq, 7)")),
            ),
        ),
    )
    library = Variant(
        id="batch=4,seq=2..@cpu-x86-64-v3",
        form=LIBRARY,
        signature=1,
        bucket=Bucket(dims={"batch": 4, "seq": Range(min=2)}),
        guards=(
            *call,
            *HOST_GUARDS,
            Guard(subject=HOST, fact="isa", expected=["avx2", "fma"]),
            Guard(subject=HOST, fact="glibc", expected="2.34"),
        ),
        outputs=outputs,
        files={"model.so": "model.so", "model.json": "model.json"},
        constants={"c0": "scale", "c1": "conv.weight"},
        target=TARGET,
        options={"layout_optimization": "True"},
    )
    graph = Variant(
        id="embedded",
        form=GRAPH,
        signature=0,
        bucket=Bucket(dims={"batch": Range(min=0)}),
        guards=tensor_guards("x", x, ({"min": 0},))[:5],
        outputs=InputLeaf(index=0),
        files={"graph.py": "graph.py"},
        constants={},
    )
    assert manifest.weights is not None
    tensors = {
        **manifest.weights.tensors,
        "conv.weight": Weight(dtype="int8", shape=(2, 3, 1, 4), layout="0,2,3,1"),
        "empty": Weight(dtype="bfloat16", shape=(0, 5)),
    }
    stored = {
        "scale": ("float32", (2,)),
        "conv.weight": ("int8", (2, 1, 4, 3)),
        "empty": ("bfloat16", (0, 5)),
    }
    data = [write_header(stored, 64), struct.pack("<2f", 1.0, -0.5), bytes(range(24))]
    return dataclasses.replace(
        manifest,
        name="rich",
        signatures=(*manifest.signatures, signature),
        variants=(*manifest.variants, library, graph),
        weights=dataclasses.replace(manifest.weights, tensors=tensors),
        environment={"torch": "2.13.0+cpu", "compiler": "g++ 12.2.0"},
        model="model:build",
        tensor_check=Extension(
            section="tensor_check.so",
            guards=(*HOST_GUARDS, Guard(subject=HOST, fact="python", expected="cpython-311")),
        ),
    ), [
        Content(name="weights", parts=data, encoding=RAW),
        *contents[1:],
        Content(name="model.json", parts=[b"{}\n"]),
        Content(name="tensor_check.so", parts=[LIBRARY_BYTES + b" again"]),
    ]


def write_tiny(path: Path) -> Path:
    """Write the tiny artifact."""
    write(path, *tiny())
    return path


def write_rich(path: Path) -> Path:
    """Write the artifact with every kind of record."""
    write(path, *rich())
    return path
