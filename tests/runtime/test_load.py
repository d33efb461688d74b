"""What `load` refuses, before any native code; where it puts libraries; what it leaves alone."""

import gc
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tcbuild import runtime
from tcbuild.formats import Artifact, Manifest, TcbuildError, Variant
from tcbuild.formats.errors import DigestError, FormatError, WeightsError
from tcbuild.runtime import library_files, program

from .. import models
from ..conftest import ROOT, Rewrite
from .conftest import Script, same

Edit = Callable[[Manifest], Manifest]


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if a library is loaded."""

    def refuse(path: object) -> None:
        raise AssertionError(path)

    monkeypatch.setattr(program, "Library", refuse)


def of_variants(change: Callable[[Variant], Variant]) -> Edit:
    """Return an edit of the compiled variants."""
    return lambda manifest: replace(
        manifest,
        variants=tuple(change(v) if v.form == "library" else v for v in manifest.variants),
    )


def guarded(name: str, expected: Any) -> Edit:
    """Return an edit that lets a guard expect another value."""
    return of_variants(
        lambda variant: replace(
            variant,
            guards=tuple(
                replace(guard, expected=expected) if guard.name == name else guard
                for guard in variant.guards
            ),
        )
    )


HOSTS = {
    "host.torch": ("1.0.0", f"expected 1.0.0, found {torch.__version__.split('+')[0]}"),
    "host.os": ("plan9", "expected plan9, found linux"),
    "host.arch": ("z80", "expected z80, found "),
    "host.glibc": ("9.9", "expected at least 9.9, found 2."),
    "host.isa": (["mmx9"], "expected mmx9, found a host without mmx9"),
}


@pytest.mark.usefixtures("no_library")
@pytest.mark.parametrize("guard", HOSTS)
def test_another_host_is_refused_before_anything_is_loaded(
    net_artifact: Path, rewrite: Rewrite, guard: str
) -> None:
    expected, says = HOSTS[guard]
    path = rewrite(net_artifact, guarded(guard, expected))
    with pytest.raises(runtime.HostError) as caught:
        runtime.load(path)
    assert caught.value.where == str(path)
    assert f"{guard}: {says}" in caught.value.found
    assert "tcbuild build" in caught.value.tip


@pytest.mark.usefixtures("no_library")
@pytest.mark.parametrize("device", ["cuda", "meta"])
def test_another_device_is_refused(net_artifact: Path, device: str) -> None:
    with pytest.raises(runtime.HostError, match=f"device: expected cpu, found {device}"):
        runtime.load(net_artifact, device=device)


@pytest.mark.usefixtures("no_library")
def test_another_policy_is_refused(net_artifact: Path) -> None:
    with pytest.raises(ValueError, match="on_miss: found 'ignore', expected 'fallback' or 'raise'"):
        runtime.load(net_artifact, on_miss="ignore")


def test_only_variants_for_this_host_are_loaded(net_artifact: Path, rewrite: Rewrite) -> None:
    def first_elsewhere(manifest: Manifest) -> Manifest:
        first, *others = manifest.variants
        changed = guarded("host.torch", "1.0.0")(replace(manifest, variants=(first,)))
        return replace(manifest, variants=(*changed.variants, *others))

    served = runtime.load(rewrite(net_artifact, first_elsewhere), on_miss="raise")
    args, _ = models.net_call(seq=1)
    with torch.no_grad():
        served(*models.net_call(seq=2)[0])
        with pytest.raises(runtime.MissError):
            served(*args)


def stored_weights(path: Path) -> tuple[dict[str, Any], bytes]:
    """Return the header of the weights, and the tensors' bytes."""
    with Artifact(path) as artifact:
        data = bytes(artifact.read("weights"))
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


@pytest.mark.usefixtures("no_library")
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("missing", {"dense.bias": None}),
        ("dtype", {"dense.bias": {"dtype": "I32"}}),
        ("shape", {"dense.weight": {"shape": [4, 16]}}),
    ],
)
def test_weights_that_are_not_the_listed_ones(
    net_artifact: Path, rewrite: Rewrite, name: str, change: dict[str, Any]
) -> None:
    header, data = stored_weights(net_artifact)
    for key, fields in change.items():
        if fields is None:
            header["other"] = header.pop(key)
        else:
            header[key].update(fields)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64 + 56)
    section = len(text).to_bytes(8, "little") + text + data
    path = rewrite(net_artifact, sections={"weights": section})
    with pytest.raises((WeightsError, runtime.StateError)) as caught:
        runtime.load(path)
    assert next(iter(change)) in str(caught.value)


def flip_bit(path: Path, place: int) -> None:
    """Change one bit of a file."""
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 8]))


@pytest.mark.usefixtures("no_library")
@pytest.mark.parametrize("part", ["weights", "graph.py", "model.so"])
def test_a_flipped_bit_is_refused(net_artifact: Path, tmp_path: Path, part: str) -> None:
    path = Path(shutil.copy(net_artifact, tmp_path / "copy.tcb"))
    with Artifact(path) as artifact:
        (name, *_) = [s.name for s in artifact.manifest.sections if s.name.startswith(part)]
        section = artifact.manifest.section(name)
        place = artifact.data + section.offset + section.length - 5
    flip_bit(path, place)
    with Artifact(path) as artifact, pytest.raises(FormatError) as caught:
        artifact.check()
    assert part in str(caught.value)
    if part == "weights":
        with pytest.raises(DigestError):
            runtime.load(path)


def test_a_library_with_a_flipped_bit_is_never_loaded(
    net_artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TCBUILD_CACHE", str(tmp_path / "cache"))
    path = Path(shutil.copy(net_artifact, tmp_path / "copy.tcb"))
    with Artifact(path) as artifact:
        section = artifact.manifest.section(artifact.manifest.variants[0].files["model.so"])
        place = artifact.data + section.offset + section.length // 2
    flip_bit(path, place)
    monkeypatch.setattr(program, "Library", pytest.fail)
    with pytest.raises(FormatError):
        runtime.load(path)


def test_a_fallback_with_other_weights_is_refused(net_artifact: Path) -> None:
    other = models.net()
    with torch.no_grad():
        other.dense.bias[3] += 1
    with pytest.raises(runtime.StateError, match=r"dense.bias: .*found other values"):
        runtime.load(net_artifact, fallback=other)
    wide = models.net()
    wide.small = torch.nn.Parameter(torch.zeros(3))
    with pytest.raises(runtime.StateError, match=r"small: .*float32 \[3\].*float32 \[2\]"):
        runtime.load(net_artifact, fallback=wide)


def test_a_fallback_that_reads_another_global_is_refused(
    fours_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fallback = models.seeded(models.Fours)
    runtime.load(fours_artifact, fallback=fallback)
    monkeypatch.setattr(models, "GROUP", 2)
    with pytest.raises(runtime.StateError) as caught:
        runtime.load(fours_artifact, fallback=fallback)
    assert "globals tests.models.GROUP" in caught.value.where
    assert (caught.value.found, caught.value.expected[:2]) == ("2", "4,")
    monkeypatch.delattr(models, "GROUP")  # what is not there is left alone
    runtime.load(fours_artifact, fallback=fallback)


def test_weights_can_be_left_unread(net_artifact: Path) -> None:
    served = runtime.load(net_artifact, check_weights=False)
    args, _ = models.net_call()
    with torch.no_grad():
        assert same(served(*args), models.net()(*args))


def test_the_file_may_be_replaced_while_it_is_served(net_artifact: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(net_artifact, tmp_path / "copy.tcb"))
    served = runtime.load(path)
    (tmp_path / "new").write_bytes(b"something else")
    os.replace(tmp_path / "new", path)
    args, _ = models.net_call()
    with torch.no_grad():
        assert same(served(*args), models.net()(*args))
        assert same(served(*models.net_call(2)[0]), models.net()(*models.net_call(2)[0]))


SERVE = """
import sys, torch
from tcbuild import runtime
from tests import models

served = runtime.load(sys.argv[1], on_miss="raise")
with torch.no_grad():
    for seq in (1, 5):
        args, _ = models.net_call(seq=seq)
        assert torch.allclose(served(*args).logits, models.net()(*args).logits, atol=1e-5)
"""


def libraries(cache: Path) -> list[Path]:
    """Return the files of a cache of libraries."""
    return sorted(path for path in (cache / "libraries").rglob("*") if path.is_file())


def test_processes_that_start_at_once_on_an_empty_cache(
    net_artifact: Path, tmp_path: Path, script: Script
) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "TCBUILD_CACHE": str(tmp_path),
    }
    processes = [
        subprocess.Popen([sys.executable, "-c", SERVE, str(net_artifact)], env=environment)
        for _ in range(2)
    ]
    assert [process.wait() for process in processes] == [0, 0]
    files = libraries(tmp_path)
    names = ["model.so", "model.so", "tcbuild_tensor_check.so"]
    assert sorted(path.name for path in files) == names
    whole = [path.read_bytes() for path in files]
    files[0].write_bytes(whole[0][:1000])  # cut short
    for path, data in zip(files[1:], whole[1:], strict=True):
        path.write_bytes(data.replace(b"GLIBC", b"glibc"))  # tampered with
    script(SERVE, net_artifact, TCBUILD_CACHE=str(tmp_path))
    assert [path.read_bytes() for path in files] == whole


# In a process that may write nowhere: as another user, in a folder of root's, without a home or PATH.
NOWHERE = """
import os, sys
import torch
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
os.environ.update(HOME="/proc", TMPDIR="/proc", PATH="", TCBUILD_CACHE=sys.argv[2])
os.environ.pop("XDG_CACHE_HOME", None)
from tcbuild.runtime import library_files
"""


@pytest.mark.parametrize("cache", ["/proc/no", "folder"])
def test_a_read_only_file_system_without_a_path(
    net_artifact: Path, tmp_path: Path, script: Script, cache: str
) -> None:
    (tmp_path / "folder").mkdir(mode=0o555)
    cache = str(tmp_path / cache) if cache == "folder" else cache
    for folder in (tmp_path, *tmp_path.parents):  # tmp_path's own are for their owner only
        if folder.stat().st_uid == os.getuid() and str(folder).startswith("/tmp/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    copy = Path(shutil.copy(net_artifact, tmp_path / "copy.tcb"))
    copy.chmod(0o444)
    told = script(
        f"{NOWHERE}{SERVE}\nprint(len(library_files._in_memory))",
        *(copy, cache),
    )
    assert told == "3\n"  # two variants and the tensor check
    assert os.listdir(tmp_path / "folder") == []


def test_a_library_of_several_files_needs_a_folder(
    net_artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TCBUILD_CACHE", "/proc/no")
    with Artifact(net_artifact) as artifact:
        name = artifact.manifest.variants[0].files["model.so"]
        files = {"model.so": name, "model.json": name}
        places = library_files.place(artifact, files)
        assert {path.name for path in places.values()} == {"model.so", "model.json"}
        assert places["model.so"].read_bytes() == artifact.read(name)
        shutil.rmtree(places["model.so"].parent)


# What a serving process loads, starts and opens: with a miss served by the embedded graph among it.
PURE = """
import os, sys
started = []
sys.addaudithook(lambda event, args: started.append(event) if event in {
    "subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn"} else None)
import torch
from tcbuild import runtime
from tests.containers import Pair

served = runtime.load(sys.argv[1])
with torch.no_grad():
    for batch, seq in ((3, 5), (3, 5), (4, 5)):
        pair = Pair(torch.zeros(batch, 8), torch.zeros(batch, 8))
        ids = torch.zeros(batch, seq, dtype=torch.int64)
        served(ids, {"a": torch.zeros(batch, seq, 8), "pair": pair})
assert served.stats().fallbacks["embedded graph"] == 1
heavy = ("torch._inductor", "torch._dynamo", "click", "onnx", "triton", "tcbuild.aot")
print([name for name in sys.modules if name in heavy], started)
"""


def test_serving_loads_no_compiler_and_starts_no_process(
    net_artifact: Path, script: Script
) -> None:
    assert script(PURE, net_artifact, PATH="") == "[] []\n"


# Loading again and again, and the descriptors and memory that are left of it.
CYCLES = """
import gc, os, sys
import torch
from tcbuild import runtime

def descriptors():
    return len(os.listdir("/proc/self/fd")) + open("/proc/self/maps").read().count(".tcb")

def megabytes():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024

def cycles(count):
    for _ in range(count):
        served = runtime.load(sys.argv[1])
        del served
    gc.collect()

cycles(20)
before = descriptors(), megabytes()
cycles(200)
after = descriptors(), megabytes()
assert after[0] <= before[0], (before, after)
assert after[1] < before[1] + 32, (before, after)
"""


def test_nothing_grows_over_200_loads(conv_artifact: Path, script: Script) -> None:
    script(CYCLES, conv_artifact)


@pytest.mark.parametrize("artifact", ["net_artifact", "fours_artifact"])
def test_the_module_as_a_command(artifact: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(artifact)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}

    def run(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "tcbuild.runtime", *map(str, arguments)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    done = run(path)
    assert done.returncode == 0, done.stderr
    with Artifact(path) as opened:
        variants = [v.id for v in opened.manifest.variants if v.form == "library"]
    assert all(f"  {name}: answered " in done.stdout for name in variants)
    assert f"{2 * len(variants)} calls, 0.0% missed" in done.stdout
    if artifact == "net_artifact":
        assert run().returncode == 2
        wrong = run(__file__)
        assert wrong.returncode == 10
        assert "not a .tcb artifact" in wrong.stderr


def test_answers_outlive_what_gave_them(net_artifact: Path) -> None:
    """Also the one that is a weight: when the artifact goes, so does the memory of its weights."""
    served = runtime.load(net_artifact)
    args, _ = models.net_call()
    with torch.no_grad():
        made = [served(*args), served(*args)]
    del served
    gc.collect()
    with torch.no_grad():
        assert all(same(one, models.net()(*args)) for one in made)


def test_an_artifact_may_go_while_a_mode_is_active(conv_artifact: Path) -> None:
    class Refusing(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            raise AssertionError(func)

    served = runtime.load(conv_artifact)
    mode = Refusing()  # type: ignore[no-untyped-call]
    with mode, torch.device("meta"):  # a garbage collection may come at any time
        del served
        gc.collect()


def test_an_artifact_may_go_while_a_model_is_traced(conv_artifact: Path) -> None:
    class Dropping(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            held.clear()
            gc.collect()
            return x + 1

    held = [runtime.load(conv_artifact)]
    program = torch.export.export(Dropping(), (torch.ones(4),), strict=False)
    assert not held
    assert not program.constants
    (call,) = (node for node in program.graph.nodes if node.op == "call_function")
    assert call.target == torch.ops.aten.add.Tensor


def test_a_library_may_outlive_the_object_that_loaded_it(fours_artifact: Path) -> None:
    from tcbuild.runtime.aoti import Library

    weight = models.seeded(models.Fours).weight
    with Artifact(fours_artifact) as artifact:
        (variant, *_) = artifact.manifest.variants
        library = Library(library_files.place(artifact, variant.files)["model.so"])
        library.bind(dict.fromkeys(variant.constants, weight))
    run = library.run
    del library
    gc.collect()
    x = torch.randn(8, 2)
    assert torch.allclose(run([x])[0], models.seeded(models.Fours)(x)[0])
    del run
    gc.collect()
    assert weight.shape == (4, 1)  # what was given is left alone


def test_errors_of_ours_have_all_three_parts(net_artifact: Path) -> None:
    with pytest.raises(TcbuildError) as caught:
        runtime.load(__file__)
    assert all([caught.value.found, caught.value.expected, caught.value.tip])
