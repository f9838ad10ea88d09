"""An idle daemon: five watches that match nothing, pages of 64 offers from the embedded marketplace.

    python -m benchmarks.idle [--seconds 120] [--size 2000]

The first start creates the database, in which it sweeps once; after 20 s the daemon's share of one core is measured,
and its resident memory at the end.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figures import Figure, table

GOAL_MB, GOAL_PERCENT = 90.0, 0.5
_BEGINS_S = 20.0
_WATCHES = [("RTX 4090", 0.1), ("RTX 3090", 0.05), ("H100 SXM", 0.5), ("A100 SXM 80GB", 0.2), ("L40S", 0.1)]


@contextmanager
def marketplace(size: int) -> Iterator[str]:
    """Run the emulator as a process; yields its URL."""
    command = [sys.executable, "-m", "gpuwatch", "emulator", "--size", str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
        process.terminate()


def settings_toml(url: str, folder: Path) -> str:
    watches = "".join(f'\n[[watch]]\nname = "{gpu}"\ngpu = "{gpu}"\nmax_price = {usd}\n' for gpu, usd in _WATCHES)
    provider = f'[providers.vastai]\nbase_url = "{url}"\napi_key = "demo-key"\n'
    return f'database_url = "sqlite:///{folder}/gpuwatch.db"\n\n{provider}{watches}'


def measure(folder: Path, seconds: float) -> tuple[float, float]:
    """Return the percent of a core, and the resident MB, of one daemon."""
    command = [sys.executable, "-m", "gpuwatch", "--config", str(folder / "gpuwatch.toml"), "run"]
    environment = os.environ | {"HOME": str(folder)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as daemon:
        try:
            time.sleep(_BEGINS_S)
            before = _cpu_s(daemon.pid)
            time.sleep(seconds)
            return 100 * (_cpu_s(daemon.pid) - before) / seconds, _resident_mb(daemon.pid)
        finally:
            daemon.send_signal(signal.SIGTERM)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # user and system


def _resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def figures(seconds: float = 45.0, size: int = 2000) -> list[Figure]:
    """Return the daemon's memory and its share of a core."""
    with tempfile.TemporaryDirectory() as name, marketplace(size) as url:
        folder = Path(name)
        (folder / "gpuwatch.toml").write_text(settings_toml(url, folder))
        (folder / "gpuwatch.toml").chmod(0o600)
        percent, mb = measure(folder, seconds)
    watches = f"idle daemon, {len(_WATCHES)} watches"
    return [
        Figure(name=f"{watches}: resident memory", goal=GOAL_MB, measured=mb, unit=" MB", sample="n = 1"),
        Figure(
            name=f"{watches}: share of one core",
            goal=GOAL_PERCENT,
            measured=percent,
            unit=" %",
            sample=f"{seconds:.0f} s",
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--size", type=int, default=2000)
    args = parser.parse_args()
    print(table(figures(args.seconds, args.size)))


if __name__ == "__main__":
    main()
