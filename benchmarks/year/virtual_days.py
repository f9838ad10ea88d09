"""Months of the daemon on the virtual clock: after the time that the history is kept, nothing grows.

    python -m benchmarks.year.virtual_days [--days 400]

The daemon's own service and tasks (deliver, hunt, sweep, health, roll-up, auto price, prune) with a SQLite file, at the
embedded marketplace; searches and checks are rarer than usual, so that 400 days take minutes. Printed: the size of the
store, processor time and memory of each tenth; the memory includes the marketplace's, whose withdrawn machines are
removed.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.day_market import DayMarket, models
from benchmarks.polling_day import Wire
from benchmarks.virtual_time import VirtualTime
from gpuwatch import settings
from gpuwatch.bootstrap import open_store
from gpuwatch.bootstrap.service import Service
from gpuwatch.daemon.tasks import periodic_tasks
from gpuwatch.emulator import Marketplace
from gpuwatch.providers.toolkit.http.client import PooledHttpClient

TASKS = ("deliver", "hunt", "sweep", "health", "roll-up", "auto price", "prune")
_RAREST_S = 3600.0  # of the tasks that only check whether something is due
_START = datetime(2026, 1, 5, tzinfo=UTC)
_GPUS = 2
_SETTINGS = """
database_url = "sqlite:///{folder}/gpuwatch.db"
record = {{ gpu = {gpus} }}
[history]
keep = {{ polls = "{polls_d}d", intervals = "{intervals_d}d", hourly = "{intervals_d}d" }}
[providers.vastai]
base_url = "http://127.0.0.1:9"
poll_every = "{poll_every}"
sweep_every = "{poll_every}"
rows_per_day = 0
[[watch]]
name = "auto"
gpu = "{gpu}"
max_price = "auto"
max_price_cap = 1
deadline = "30d"
"""


class Sample(NamedTuple):
    """The daemon at the end of a part of the time."""

    day: int
    store_kb: float
    cpu_s_a_day: float  # of this part
    memory_mb: float


def simulate(folder: Path, days: int, kept_days: int, poll_every: str, parts: int = 10, seed: int = 1) -> list[Sample]:
    """Run the daemon for this long; return a sample of each part.

    Args:
        folder: empty, for its database and its settings.
        days: a multiple of `parts`.
        kept_days: how long prices are kept; polls half as long.
    """
    random.seed(seed)  # tenacity draws its waits from it
    clock = VirtualTime(_START, seed)
    gpus = list(models())[:_GPUS]
    marketplace = Marketplace(clock=clock.unix, size=0)
    market = DayMarket(marketplace, gpus, clock, seed, refusals_a_day=1.0)
    names = msgspec.json.encode(gpus).decode()
    terms = {"gpu": gpus[0], "gpus": names, "poll_every": poll_every}
    text = _SETTINGS.format(folder=folder, polls_d=max(1, kept_days // 2), intervals_d=kept_days, **terms)
    (folder / "gpuwatch.toml").write_text(text)
    loaded = settings.load(str(folder / "gpuwatch.toml"), env={"HOME": str(folder)})
    samples: list[Sample] = []
    with ExitStack() as opened:
        store = opened.enter_context(open_store(loaded))
        wire = Wire(clock, marketplace, market, seed)
        http = PooledHttpClient(transport=wire, monotonic=clock.monotonic)
        opened.callback(http.close)
        service = Service(loaded, store, http, time_source=clock.source)
        opened.callback(service.close)
        with clock.passing():
            clock.spawn("market", market.live)
            for task in periodic_tasks(service):
                if task.name.startswith(TASKS):
                    clock.repeat(msgspec.structs.replace(task, every_s=max(task.every_s, _RAREST_S), jitter_s=0.0))
            for part in range(parts):
                before_s = time.process_time()
                for _ in range(days // parts):
                    clock.sleep(86_400)
                    for noted in (wire.searches, market.bargains, marketplace._log):  # what the harness remembers
                        noted.clear()
                    _forget_withdrawn(marketplace)
                spent_s = time.process_time() - before_s
                samples.append(_sample(folder, round((part + 1) * days / parts), spent_s * parts / days))
            service.stopping.set()
    return samples


def _forget_withdrawn(marketplace: Marketplace) -> None:
    market = marketplace._simulation.market
    for machine in [one for one in market.machines.values() if not one.slices]:
        market.remove_machine(machine.id)


def _sample(folder: Path, day: int, cpu_s_a_day: float) -> Sample:
    store = sum(file.stat().st_size for file in folder.glob("gpuwatch.db*"))
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Sample(day, store / 1024, cpu_s_a_day, pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--days", type=int, default=400)
    parser.add_argument("--kept-days", type=int, default=40)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        for one in simulate(Path(name), args.days, args.kept_days, "2h"):
            print(
                f"day {one.day:3}: store {one.store_kb:6.0f} KB, {one.cpu_s_a_day * 1000:4.0f} ms of CPU a day, "
                f"{one.memory_mb:.0f} MB",
                flush=True,
            )


if __name__ == "__main__":
    main()
