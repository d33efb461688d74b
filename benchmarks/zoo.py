"""Architectures of transformers, small and random: built, verified, and timed against eager.

Every one is declared for a batch of 2 to 8 and, where it takes text, for a range of lengths;
`fixed` says what its code or its architecture ties to one size. For each, one line:

- `built`, or the first line of the error;
- `covers`: the share of the declared sizes that some variant serves;
- `error`: the largest error of an output, divided by what the rule allows;
- `speed`: eager's processor time divided by the artifact's, the median at one size, with one thread;
  of models this small that is mostly what Python takes;
- `build`: the seconds that the build took, with its verification.

Each is a process of its own, so that a crash costs one line. `--json` keeps the whole errors.
"""

import argparse
import fnmatch
import importlib
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.export import Dim

import measure
from measure import Row
from tcbuild import aot, runtime
from tcbuild.aot.dims import Dynamic
from tcbuild.formats.errors import TcbuildError

WORDS: Final = 200
SAMPLED: Final = 7  # sizes of each dim that the coverage is taken from
WARM: Final = 3
ROUNDS: Final = 30

BATCH: Final = Dim("batch", min=2, max=8)
SEQ: Final = Dim("seq", min=2, max=32)
TARGET: Final = Dim("target", min=2, max=16)
PAST: Final = Dim("past", min=2, max=31)
SAMPLES: Final = Dim("samples", min=320, max=1600)
TEXT: Final = {0: BATCH, 1: SEQ}
ROWS: Final = {0: BATCH}

Shapes = dict[str, Any]  # as torch.export takes them


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, an example call, and the axes that vary.

    Attributes:
        model: in eval mode, with random weights.
        call: the keyword arguments.
        shapes: the axes that vary.
        fixed: what is not declared to vary although it could be another size, and why.
    """

    model: nn.Module
    call: dict[str, Any]
    shapes: Shapes
    fixed: str = ""


def make(config: str, auto: str = "AutoModel", **options: Any) -> Any:
    """Return a model of transformers with random weights, the same ones each time."""
    transformers: Any = importlib.import_module("transformers")
    torch.manual_seed(0)
    return getattr(transformers, auto).from_config(getattr(transformers, config)(**options)).eval()


def ids(*shape: int) -> Tensor:
    """Return random words; none of the first few, which are padding and the like."""
    return torch.randint(5, WORDS, shape, generator=torch.Generator().manual_seed(1))


def noise(*shape: int) -> Tensor:
    """Return random values."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def mask(*shape: int) -> Tensor:
    """Return a mask whose rows end at different places."""
    masked = torch.ones(shape, dtype=torch.int64)
    for row in range(shape[0]):
        masked[row, shape[1] - row :] = 0
    return masked


SMALL: Final = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
GROUPED: Final = {**SMALL, "num_key_value_heads": 2}
PICTURE: Final = {
    **{key: SMALL[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads")},
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}


def encoder(config: str, **options: Any) -> Callable[[], Case]:
    """Return what makes a text encoder: words and a mask in, vectors out."""

    def case() -> Case:
        call = {"input_ids": ids(4, 16), "attention_mask": mask(4, 16)}
        return Case(
            model=make(config, **{**SMALL, **options}),
            call=call,
            shapes=dict.fromkeys(call, TEXT),
        )

    return case


def decoder(config: str, **options: Any) -> Callable[[], Case]:
    """Return what makes a decoder without a cache: words and a mask in, logits out."""

    def case() -> Case:
        call = {"input_ids": ids(4, 16), "attention_mask": mask(4, 16)}
        return Case(
            model=make(config, "AutoModelForCausalLM", **options),
            call={**call, "use_cache": False},
            shapes=dict.fromkeys(call, TEXT),
        )

    return case


class Step(nn.Module):
    """One step of a decoder, with its cache as tensors in and out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Tensor, keys: tuple[Tensor, ...], values: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Take words, int64 [batch, 1], and for each layer keys and values of all words before.

        Return the logits, and for each layer the keys and values with those of the new word.
        """
        cache: Any = importlib.import_module("transformers").DynamicCache()
        for layer, (key, value) in enumerate(zip(keys, values, strict=True)):
            cache.update(key, value, layer)
        made = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True)
        layers = made.past_key_values.layers
        return made.logits, tuple(x.keys for x in layers), tuple(x.values for x in layers)


def step(config: str, heads: int, **options: Any) -> Callable[[], Case]:
    """Return what makes one step of a decoder with a cache; `heads` have keys of 8 values."""

    def case() -> Case:
        layers = 2
        model = make(config, "AutoModelForCausalLM", **options)
        cache = tuple(noise(4, heads, 12, 8) for _ in range(layers))
        axes = ({0: BATCH, 2: PAST},) * layers
        return Case(
            model=Step(model).eval(),
            call={"input_ids": ids(4, 1), "keys": cache, "values": cache},
            shapes={"input_ids": ROWS, "keys": axes, "values": axes},
            fixed="1 new word: a step",
        )

    return case


def translator(config: str, **options: Any) -> Callable[[], Case]:
    """Return what makes an encoder with a decoder: two texts in, logits for the second out."""

    def case() -> Case:
        source = {"input_ids": ids(4, 16), "attention_mask": mask(4, 16)}
        return Case(
            model=make(config, "AutoModelForSeq2SeqLM", **options),
            call={**source, "decoder_input_ids": ids(4, 8), "use_cache": False},
            shapes={**dict.fromkeys(source, TEXT), "decoder_input_ids": {0: BATCH, 1: TARGET}},
        )

    return case


def vision(config: str, size: int = 32, **options: Any) -> Callable[[], Case]:
    """Return what makes a model of square pictures."""

    def case() -> Case:
        return Case(
            model=make(config, **options),
            call={"pixel_values": noise(4, 3, size, size)},
            shapes={"pixel_values": ROWS},
            fixed="height, width: a picture is resized before the model",
        )

    return case


def wav2vec2() -> Case:
    """Make a speech encoder of raw samples, with two layers of convolution."""
    options: dict[str, Any] = {**SMALL}
    del options["max_position_embeddings"]
    options.update(conv_dim=(16, 16), conv_kernel=(10, 3), conv_stride=(5, 2))
    options.update(num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4)
    return Case(
        model=make("Wav2Vec2Config", **options),
        call={"input_values": noise(4, 640)},
        shapes={"input_values": {0: BATCH, 1: SAMPLES}},
    )


def whisper() -> Case:
    """Make the encoder of Whisper: frames of a spectrum in, vectors out."""
    model = make(
        "WhisperConfig",
        vocab_size=WORDS,
        d_model=32,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_layers=1,
        decoder_attention_heads=4,
        decoder_ffn_dim=64,
        num_mel_bins=16,
        max_source_positions=20,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return Case(
        model=model.get_encoder(),
        call={"input_features": noise(4, 16, 40)},
        shapes={"input_features": ROWS},
        fixed="frames: the encoder takes windows of one length",
    )


def mamba() -> Case:
    """Make a state-space model."""
    options = {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}
    return Case(
        model=make("MambaConfig", "AutoModelForCausalLM", **options),
        call={"input_ids": ids(4, 8), "use_cache": False},
        shapes={"input_ids": ROWS},
        fixed="seq: the model's code is a Python loop over it",
    )


CASES: Final[Mapping[str, Callable[[], Case]]] = {
    "bert": encoder("BertConfig"),
    "roberta": encoder("RobertaConfig", max_position_embeddings=66),
    "distilbert": encoder("DistilBertConfig", dim=32, n_layers=2, n_heads=4, hidden_dim=64),
    "electra": encoder("ElectraConfig", embedding_size=16),
    "albert": encoder("AlbertConfig", embedding_size=16),
    "deberta-v2": encoder(
        "DebertaV2Config", relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=16
    ),
    "mpnet": encoder("MPNetConfig", max_position_embeddings=66),
    "gpt2": decoder("GPT2Config", vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=64),
    "gpt-neox": decoder("GPTNeoXConfig", **SMALL),
    "llama": decoder("LlamaConfig", **GROUPED),
    "mistral": decoder("MistralConfig", **GROUPED, sliding_window=8),
    "qwen2": decoder("Qwen2Config", **GROUPED),
    "gemma": decoder("GemmaConfig", **GROUPED, head_dim=8),
    "phi": decoder("PhiConfig", **SMALL),
    "opt": decoder(
        "OPTConfig",
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=64,
        max_position_embeddings=64,
        word_embed_proj_dim=32,
    ),
    "gpt2-step": step(
        "GPT2Config", 4, vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=64
    ),
    "llama-step": step("LlamaConfig", 2, **GROUPED),
    "mixtral": decoder(
        "MixtralConfig", **GROUPED, num_local_experts=4, experts_implementation="batched_mm"
    ),
    "qwen2-moe": decoder(
        "Qwen2MoeConfig",
        **GROUPED,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
        experts_implementation="batched_mm",
    ),
    "mamba": mamba,
    "t5": translator(
        "T5Config", vocab_size=WORDS, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4
    ),
    "bart": translator(
        "BartConfig",
        vocab_size=WORDS,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=64,
    ),
    "vit": vision("ViTConfig", **PICTURE),
    "deit": vision("DeiTConfig", **PICTURE),
    "swin": vision(
        "SwinConfig",
        image_size=32,
        patch_size=4,
        embed_dim=16,
        depths=[2, 1],
        num_heads=[2, 4],
        window_size=4,
    ),
    "clip-vision": vision("CLIPVisionConfig", **PICTURE),
    "resnet": vision(
        "ResNetConfig",
        embedding_size=8,
        hidden_sizes=[8, 16],
        depths=[1, 1],
        layer_type="basic",
    ),
    "convnext": vision("ConvNextConfig", num_stages=2, hidden_sizes=[8, 16], depths=[1, 1]),
    "mobilenet-v2": vision("MobileNetV2Config", image_size=32, depth_multiplier=0.25),
    "wav2vec2": wav2vec2,
    "whisper": whisper,
}


def spread(low: int, high: int) -> list[int]:
    """Return some sizes of a range, both ends among them."""
    return sorted({low + (high - low) * i // (SAMPLED - 1) for i in range(SAMPLED)})


def declared(spec: aot.Spec) -> Iterator[dict[str, int]]:
    """Yield calls' sizes from all over the declared range."""
    ranges = {}
    for name, dim in spec.dims.items():
        assert isinstance(dim, Dynamic)
        assert dim.max is not None
        ranges[name] = spread(dim.min, dim.max)
    for sizes in itertools.product(*ranges.values()):
        yield dict(zip(ranges, sizes, strict=True))


def examine(name: str, folder: Path, rounds: int) -> Row:
    """Build one, and return its line; the error in it where the build fails."""
    case = CASES[name]()
    spec = aot.Spec.from_module(case.model, kwargs=case.call, dynamic_shapes=case.shapes, name=name)
    began = time.perf_counter()
    try:
        report = aot.build(spec, folder / f"{name}.tcb")
    except TcbuildError as error:
        return {
            "error": str(error),
            "tip": error.tip,
            "seconds": time.perf_counter() - began,
            "fixed": case.fixed,
        }
    served = runtime.load(report.artifact, on_miss="raise")
    with torch.no_grad():
        calls = map(spec.inputs, declared(spec))
        asked = [served.explain(*args, **kwargs) for args, kwargs in calls]
    compared = [row for row in report.verification if math.isfinite(row.allowed)]
    return {
        "seconds": report.seconds,
        "bytes": report.bytes,
        "relations": sorted({text for job in report.jobs for text in job.relations}),
        "notes": list(report.notes),
        "coverage": sum(said.variant is not None for said in asked) / len(asked),
        "missed": next((said.reason for said in asked if said.variant is None), ""),
        "outputs": len(compared),
        "random": len(report.verification) - len(compared),
        "worst": max((row.error / row.allowed for row in compared if row.allowed), default=0.0),
        "fixed": case.fixed,
        **speed(case, served, rounds),
    }


def speed(case: Case, served: runtime.Dispatcher, rounds: int) -> Row:
    """Return the median times of the example call, in ms, and their ratio round by round.

    They are processor time of the one thread: a process beside this one would slow the longer call
    more often than the shorter.
    """

    def way(model: Callable[..., Any]) -> Callable[[], float]:
        def run() -> float:
            began = time.thread_time()
            model(**case.call)
            return (time.thread_time() - began) * 1e3

        return run

    with torch.inference_mode():
        ways = {"eager": way(case.model), "artifact": way(served)}
        measure.in_turn(ways, WARM)
        times = measure.in_turn(ways, rounds)
    return {
        "eager": measure.median(times["eager"]),
        "artifact": measure.median(times["artifact"]),
        "speed": measure.ratio(times["eager"], times["artifact"]),
    }


def apart(name: str, rounds: int) -> Row:
    """Examine one in a fresh process; a crash becomes the line's error."""
    paths = [str(measure.ROOT), str(measure.ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="tcbuild-zoo-") as folder:
        answer = Path(folder) / "row.json"
        command = [sys.executable, __file__, "--one", name, folder, "--rounds", str(rounds)]
        done = subprocess.run(
            [*command, "--json", str(answer)],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        row: Row = {"table": "zoo", "name": name}
        if answer.exists():
            return {**row, **json.loads(answer.read_text(encoding="utf-8"))}
    lines = done.stderr.strip().splitlines() or ["no output"]
    ended = f"exit code {done.returncode}"
    if done.returncode < 0:
        ended = signal.Signals(-done.returncode).name
    return {**row, "error": f"crashed ({ended}): {lines[-1]}", "output": done.stderr}


def whole(row: Row) -> bool:
    """Return whether it was built, every output compared, and every declared size is served."""
    return "error" not in row and row["coverage"] == 1.0 and not row["random"]


HEADER: Final = f"{'name':14}{'covers':>8}{'error':>7}{'speed':>8}{'build':>9}  result"


def line(row: Row) -> str:
    """Return the line that is printed for a row."""
    seconds = f"{row['seconds']:.0f} s" if "seconds" in row else ""
    if "error" in row:
        first = row["error"].splitlines()[0]
        return f"{row['name']:14}{'':>8}{'':>7}{'':>8}{seconds:>9}  {first}"
    numbers = f"{row['coverage']:>8.0%}{row['worst']:>7.2f}{row['speed']:>7.2f}x{seconds:>9}"
    notes = [f"fixed {row['fixed']}" if row["fixed"] else ""]
    notes.append(f"misses: {row['missed']}" if row["missed"] else "")
    notes.append(f"{row['random']} outputs are random" if row["random"] else "")
    return f"{row['name']:14}{numbers}  {'; '.join(filter(None, ['built', *notes]))}"


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="GLOB", default="*", help="names to take, as in gpt*")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="timed calls (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rows there, too")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    return parser.parse_args(given)


def main() -> None:
    options = arguments()
    if options.one:
        name, folder = options.one
        row = examine(name, Path(folder), options.rounds)
        options.json.write_text(json.dumps(row), encoding="utf-8")
        return
    names = fnmatch.filter(CASES, options.only)
    if not names:
        sys.exit(f"--only: found {options.only!r}, expected a pattern of {', '.join(CASES)}")
    rows = []
    print(HEADER, flush=True)
    with measure.own_folder():
        for name in names:
            rows.append(apart(name, options.rounds))
            print(line(rows[-1]), flush=True)
    print(f"{sum(map(whole, rows))} of {len(rows)} built and verified whole")
    measure.save(options.json, "zoo", rows)


if __name__ == "__main__":
    main()
