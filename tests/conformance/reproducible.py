"""`make reproducible`: the same spec twice, in other folders, with other caches and hash seeds: same bytes?

Three builds: for inference, for training, and tuned by the record of an earlier search. Prints the SHA-256
of both files of each; where they differ, what `tcbuild diff` says. The exit code is 1 then.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from ..conftest import ROOT, TINY_MODEL, TINY_SPEC, python_path

KINDS: Final = {
    "inference": TINY_SPEC,
    "training": f"{TINY_SPEC}\n[training]\n",
    "tuned": f'{TINY_SPEC}\n[build]\nmode = "max-autotune"\n\n[tune]\ncandidates = 2\n',
}


def tcbuild(*arguments: str | Path, folder: Path | None = None, seed: str = "0") -> str:
    """Run the command line, with every cache in `folder`; return what it prints."""
    environment = {**os.environ, "PYTHONPATH": python_path(ROOT / "src"), "PYTHONHASHSEED": seed}
    for name in ("HOME", "TMPDIR", "TCBUILD_CACHE", "TORCHINDUCTOR_CACHE_DIR"):
        if folder is not None:
            place = folder / name.lower()
            place.mkdir(parents=True, exist_ok=True)
            environment[name] = str(place)
    command = [sys.executable, "-m", "tcbuild.aot.cli", *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def built(kind: str, folder: Path, seed: str, record: Path | None) -> Path:
    """Build a kind in a folder of its own; return the artifact."""
    spec = folder / "spec"
    spec.mkdir(parents=True)
    (spec / "model.py").write_text(TINY_MODEL, encoding="utf-8")
    (spec / "tcbuild.toml").write_text(KINDS[kind], encoding="utf-8")
    out = folder / f"{kind}.tcb"
    more = () if record is None else ("--tuning-from", record)
    tcbuild("build", spec / "tcbuild.toml", "-o", out, *more, folder=folder, seed=seed)
    return out


def main() -> int:
    """Build and compare; return the exit code."""
    good = True
    with tempfile.TemporaryDirectory(prefix="tcbuild-") as made:
        for kind in KINDS:
            folder = Path(made) / kind
            record = built(kind, folder / "record", "1", None) if kind == "tuned" else None
            pair = [
                built(kind, folder / name, seed, record)
                for name, seed in (("a", "2"), ("elsewhere/b", "3"))
            ]
            digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in pair]
            same = digests[0] == digests[1]
            good &= same
            print(
                f"{kind:10} {digests[0]}\n{'':10} {digests[1]}  {'same' if same else 'DIFFERENT'}"
            )
            if not same:
                print(tcbuild("diff", *pair))
            sys.stdout.flush()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
