"""The keeper: its cost, and how long the real daemon takes to end an overdue instance during a fault.

    python -m benchmarks.keeper

Three daemons run side by side, each at its own marketplace, with `max_runtime = "5s"`: one with a damaged database,
one whose task that follows instances hangs, one whose list of instances is never answered. The end is measured at the
marketplace. The cost is that of the keeper's thread with nothing overdue: one check, and the additional memory of a
process that has loaded the daemon.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from gpuwatch.emulator import Delays, Marketplace

MAX_RUNTIME_S = 5.0
WITHIN_S = 120.0
CHECKS = 20_000
HANGS = {"GPUWATCH_FAILPOINT": "reconcile.listed:3@sleep600"}
_SETTINGS = """
database_url = "sqlite:///{folder}/gpuwatch.db"
dry_run = false
[budget]
max_usd_hour = 100.0
[providers.vastai]
base_url = "{url}"
api_key = "demo-key"
poll_every = "1s"
search_interval = "0.1s"
[[watch]]
name = "h100"
gpu = "H100"
max_price = 2.40
action = "launch"
[watch.launch]
image = "some/image"
max_runtime = "{runtime:.0f}s"
ready_within = "{runtime:.0f}s"
"""


@contextmanager
def daemon(folder: Path, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `gpuwatch run` in this folder."""
    command = [sys.executable, "-m", "gpuwatch", "--config", str(folder / "gpuwatch.toml"), "run"]
    environment = os.environ | {"HOME": str(folder)} | env
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def ended_after_s(folder: Path, market: Marketplace, running_s: float) -> float:
    """Return the seconds past `max_runtime` until the marketplace has no instance."""
    until_s = running_s + MAX_RUNTIME_S + WITHIN_S
    while market.instances():
        if time.monotonic() > until_s:
            raise SystemExit(f"{folder.name}: still there {WITHIN_S:.0f} s past its end")
        time.sleep(0.05)
    return time.monotonic() - running_s - MAX_RUNTIME_S


def _rented(market: Marketplace) -> float:
    while not any(instance.get("actual_status") == "running" for instance in market.instances()):
        time.sleep(0.05)
    return time.monotonic()


def database_gone(folder: Path, market: Marketplace) -> float:
    """The daemon is killed, its database is damaged, and it starts again."""
    with daemon(folder, **HANGS):
        running_s = _rented(market)
        time.sleep(1.0)
    for path in folder.glob("gpuwatch.db*"):
        path.write_bytes(b"no database" * 500)
    with daemon(folder):
        return ended_after_s(folder, market, running_s)


def scheduler_hung(folder: Path, market: Marketplace) -> float:
    """The task that follows instances never returns."""
    with daemon(folder, **HANGS):
        return ended_after_s(folder, market, _rented(market))


def list_down(folder: Path, market: Marketplace) -> float:
    """The list is never answered once the instance runs."""
    with daemon(folder):
        running_s = _rented(market)
        time.sleep(1.0)
        market.faults.add("instances", "503", times=None)
        return ended_after_s(folder, market, running_s)


def measured(case: Callable[[Path, Marketplace], float]) -> float:
    folder = Path(tempfile.mkdtemp(prefix=case.__name__))
    try:
        with Marketplace(seed=5, key="demo-key", size=0, delays=Delays(running_s=0.1)) as market:
            text = _SETTINGS.format(folder=folder, url=market.url, runtime=MAX_RUNTIME_S)
            (folder / "gpuwatch.toml").write_text(text)
            market.publish(gpu="H100 SXM", count=1, usd_hour=1.5)
            return case(folder, market)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def cost(folder: Path) -> tuple[float, float]:
    """Return the microseconds of processor time per check, and MB of memory, in a process with a loaded daemon."""
    from gpuwatch import settings
    from gpuwatch.bootstrap import real_monotonic, real_now
    from gpuwatch.daemon import process  # noqa: F401 its modules are loaded anyway
    from gpuwatch.daemon.keeper_thread import KeeperThread
    from gpuwatch.daemon.service_manager import Notifier
    from gpuwatch.daemon.task_progress import TaskProgress

    (folder / "gpuwatch.toml").write_text(_SETTINGS.format(folder=folder, url="http://127.0.0.1:9", runtime=60.0))
    found = settings.load(str(folder / "gpuwatch.toml"), env={"HOME": str(folder)})
    before_mb = _resident_mb()
    thread = KeeperThread(found, TaskProgress(real_now, real_monotonic), Notifier(None))
    thread.check()
    added_mb, began_s = _resident_mb() - before_mb, time.process_time()
    for _ in range(CHECKS):
        thread.check()
    return (time.process_time() - began_s) / CHECKS * 1e6, added_mb


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        micro_s, added_mb = cost(Path(folder))
    print(f"a check                {micro_s:6.1f} µs, {micro_s * 86_400 / 1e6:.1f} CPU seconds a day")
    print(f"memory                 {added_mb:6.1f} MB")
    cases = (database_gone, scheduler_hung, list_down)
    with ThreadPoolExecutor(len(cases)) as pool:
        late = list(pool.map(measured, cases))
    for case, late_s in zip(cases, late, strict=True):
        print(f"{case.__name__.replace('_', ' '):<22} {late_s:6.1f} s past its end")
    return 0 if max(late) < WITHIN_S else 1


if __name__ == "__main__":
    sys.exit(main())
