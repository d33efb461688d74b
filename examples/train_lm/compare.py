"""Train in eager, by torch.compile and through the artifact, each in a fresh process, and compare.

python compare.py train_lm.tcb --text FILE [--plot curves.svg]
"""

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent


def trained(name: str, arguments: list[str], text: Path, steps: int, folder: Path) -> Any:
    """Train in a process of its own; return its losses and times."""
    made = folder / f"{name}.json"
    command = [sys.executable, str(HERE / "train.py"), *arguments, "--text", str(text)]
    command += ["--steps", str(steps), "--json", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(made.read_text(encoding="utf-8"))


def plot(ways: dict[str, Any], path: Path) -> None:
    """Plot the losses, with matplotlib."""
    plt: Any = importlib.import_module("matplotlib.pyplot")
    figure, axes = plt.subplots(figsize=(7, 4))
    styles = {"eager": "-", "torch.compile": "--", "tcbuild": ":"}
    for name, made in ways.items():
        axes.plot(made["losses"], styles.get(name, "-"), label=name, linewidth=2)
    axes.set_xlabel("step")
    axes.set_ylabel("loss, nats a byte")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifact", help="a .tcb file")
    parser.add_argument("--text", type=Path, required=True, help="a text to learn")
    parser.add_argument("--steps", type=int, default=200, help="%(default)s")
    parser.add_argument("--plot", type=Path, help="write the curves there")
    options = parser.parse_args()
    asked: dict[str, list[str]] = {
        "eager": [],
        "torch.compile": ["--compile"],
        "tcbuild": [options.artifact],
    }
    with tempfile.TemporaryDirectory() as folder:
        ways = {
            name: trained(name, arguments, options.text, options.steps, Path(folder))
            for name, arguments in asked.items()
        }
    eager = ways["eager"]["losses"]
    print(f"{'':15}first step s   ms a step   last loss   largest difference to eager's")
    for name, made in ways.items():
        apart = max(abs(a - b) for a, b in zip(made["losses"], eager, strict=True))
        print(
            f"{name:15}{made['first']:12.1f}{1e3 * made['step']:12.1f}"
            f"{made['losses'][-1]:12.4f}{apart:15.1e}"
        )
    if options.plot:
        plot(ways, options.plot)


if __name__ == "__main__":
    main()
