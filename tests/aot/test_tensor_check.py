"""The tensor check is compiled once, to the same bytes anywhere; a build does without where it must."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tcbuild import aot, runtime
from tcbuild.aot import tensor_check, toolchain
from tcbuild.aot.job_cache import JobCache

from .. import models


@pytest.mark.usefixtures("net_artifact")
def test_bytes_do_not_depend_on_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, notes = tensor_check.compiled(JobCache())
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    source = shutil.copy(tensor_check.SOURCE, tmp_path)
    monkeypatch.setattr(tensor_check, "SOURCE", Path(source))
    two, more = tensor_check.compiled(JobCache(tmp_path / "cache"))
    assert notes == more == []
    assert one is not None
    assert one == two
    for folder in (tmp_path, tensor_check.SOURCE.parent, Path(torch.__file__).parent):
        assert str(folder).encode() not in one.library


@pytest.mark.usefixtures("cast_artifact")
def test_a_build_without_python_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_check, "_FLAGS", (*tensor_check._FLAGS, "-DNOT_IN_THE_CACHE"))
    monkeypatch.setattr(toolchain, "header_folders", lambda: (str(tmp_path),))
    report = aot.build(replace(models.CAST, verify=False), tmp_path / "cast.tcb")
    assert report.compiled == 0
    (note,) = report.notes
    assert note.startswith("no compiled tensor check: calls take longer to recognise (")
    assert "Python.h" in note
    served = runtime.load(tmp_path / "cast.tcb", on_miss="raise")
    assert served.manifest.tensor_check is None
    with torch.no_grad():
        served(torch.ones(4, 8))


def test_a_compiler_that_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    broken.chmod(0o755)
    monkeypatch.setattr(toolchain, "driver", lambda *_: broken)
    made, notes = tensor_check.compiled(JobCache(tmp_path / "cache"))
    assert made is None
    assert "the compiler's exit code is 3" in notes[0]
