"""gpuwatch as a user has it: a wheel in an environment of its own, with compiled bytecode (`.venv-bench`).

The locked packages are installed once; every run builds and installs the wheel from the current files.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".venv-bench"
OFFICIAL = ROOT / ".venv-official" / "bin" / "vastai"


def bench_environment() -> Path:
    """Return the environment's `bin` folder, with the current gpuwatch installed."""
    locked = ROOT / "requirements" / "runtime.txt"
    stamp = f"{sys.version}\n{hashlib.sha256(locked.read_bytes()).hexdigest()}"
    pip = [str(HOME / "bin/python"), "-m", "pip", "--disable-pip-version-check", "-q", "install"]
    done = HOME / "stamp"
    if not done.exists() or done.read_text() != stamp:
        print("making .venv-bench …", file=sys.stderr)
        venv.create(HOME, with_pip=True, clear=True)
        _run([*pip, "--only-binary", ":all:", "--require-hashes", "-r", str(locked)])
        done.write_text(stamp)
    with tempfile.TemporaryDirectory() as folder:
        _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder])
        (wheel,) = Path(folder).glob("*.whl")
        _run([*pip, "--no-deps", "--force-reinstall", "--compile", str(wheel)])
    return HOME / "bin"


def official_client() -> Path | None:
    """Return the marketplace's own client; None: `make test` has not installed it."""
    return OFFICIAL if OFFICIAL.exists() else None


def _run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(HOME, ignore_errors=True)
        raise SystemExit(done.stdout + done.stderr)
