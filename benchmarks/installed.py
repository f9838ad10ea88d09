"""gpuwatch as a user has it: a wheel in an environment of its own, with compiled bytecode (`.venv-bench`).

The locked packages are installed once; the wheel is built and installed at every run, from the files as they are.
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
    """The environment's `bin` folder, with today's gpuwatch in it."""
    locked = ROOT / "requirements" / "runtime.txt"
    stamp = f"{sys.version}\n{hashlib.sha256(locked.read_bytes()).hexdigest()}"
    pip = [str(HOME / "bin/python"), "-m", "pip", "--disable-pip-version-check", "-q", "install"]
    done = HOME / "stamp"
    if not done.exists() or done.read_text() != stamp:
        print("making .venv-bench …", file=sys.stderr)
        venv.create(HOME, with_pip=True, clear=True)
        _run([*pip, "--only-binary", ":all:", "--require-hashes", "-r", str(locked)])
        _run([*pip, "--no-deps", "httpx>=0.28.1,<1", "idna"])  # of the bare script; an installation has neither
        done.write_text(stamp)
    with tempfile.TemporaryDirectory() as folder:
        _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder])
        (wheel,) = Path(folder).glob("*.whl")
        _run([*pip, "--no-deps", "--force-reinstall", "--compile", str(wheel)])
    return HOME / "bin"


def official_client() -> Path | None:
    """The marketplace's own command line; None: `make test` was not run here."""
    return OFFICIAL if OFFICIAL.exists() else None


def _run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(HOME, ignore_errors=True)
        raise SystemExit(done.stdout + done.stderr)
