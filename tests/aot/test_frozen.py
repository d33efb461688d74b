"""The plain Python values of a model that the artifact records."""

from pathlib import Path

from torch import nn

from tcbuild.aot import Spec, frozen

from .. import models


def test_attributes_of_submodules_and_globals_of_their_code() -> None:
    found = frozen.find(nn.Sequential(models.seeded(models.Fours), nn.LayerNorm(4)))
    assert found["1.eps"] == "1e-05"
    assert found["globals tests.models.GROUP"] == "4"
    assert list(found) == sorted(found)
    assert not any(name.endswith("training") or "._" in name for name in found)


def test_a_module_of_the_spec_has_its_own_name(spec_copy: Path) -> None:
    path = spec_copy / "model.py"
    text = path.read_text(encoding="utf-8").replace("gelu(", "gelu(SCALE * ")
    path.write_text(f"{text}\n\nSCALE = 2.0\n", encoding="utf-8")
    module = Spec.load(spec_copy / "tcbuild.toml").model()
    assert frozen.find(module)["globals model.SCALE"] == "2.0"
