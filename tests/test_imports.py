"""Which package may import which, and what the runtime may load."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "formats": {"formats"},
    "runtime": {"formats", "runtime"},
    "aot": {"formats", "aot"},
}
OURS = {"tcbuild", *MAY_IMPORT}
NOT_AT_RUN_TIME = {"click", "onnx", "triton", "torch._dynamo", "torch._inductor", "tcbuild.aot"}


def own_imports(path: Path) -> Iterator[str]:
    """Yield the package each import of our own code leads to; "tcbuild" if it is not relative."""
    folder = path.relative_to(ROOT).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            names = [node.module] if node.module else [alias.name for alias in node.names]
            for name in names:
                yield (*folder[: len(folder) - node.level + 1], *name.split("."))[0]
        elif isinstance(node, ast.ImportFrom | ast.Import):
            module = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in module or [alias.name for alias in node.names]:
                if name.split(".")[0] in OURS:
                    yield "tcbuild"


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_import_direction(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        wrong = set(own_imports(path)) - MAY_IMPORT[package]
        assert not wrong, f"{path.relative_to(ROOT)} imports {sorted(wrong)}"


def modules_after(statement: str) -> set[str]:
    """Return the modules that a fresh interpreter holds after `statement`."""
    script = f"import sys\n{statement}\nprint(*sys.modules, sep='\\n')"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", script], env=env, check=True, capture_output=True, text=True
    )
    return set(run.stdout.split())


def test_runtime_is_light() -> None:
    assert not NOT_AT_RUN_TIME & modules_after("import tcbuild.runtime")


def test_formats_have_no_torch() -> None:
    assert "torch" not in modules_after("import tcbuild.formats")


def test_no_general_name_at_top_level() -> None:
    assert not set(MAY_IMPORT) & modules_after("import tcbuild.runtime, tcbuild.aot")
