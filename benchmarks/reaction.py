"""From an offer visible at the marketplace to the request to rent it: the whole engine against a minimal script.

    python -m benchmarks.reaction [--sizes 64 10000] [--trials 60]

gpuwatch's service is built like the daemon's (hunt, evaluation, one FULL transaction with decision, alert and intent,
executor on its thread, adapter over HTTP), with real settings and a database file; only its hunt is called directly,
not by the scheduler. Each trial: both poll the list without the bargain (connections warm, the watch rearmed), the
bargain appears, both poll; in turn, in one process. All milliseconds are by the server's clock.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from sqlalchemy import delete

from benchmarks.floors.reaction import Floor
from benchmarks.server import COUNT, GPU, Control, running
from gpuwatch import settings
from gpuwatch.bootstrap import TimeSource, open_store, real_now, service
from gpuwatch.storage.setup import tables
from gpuwatch.storage.setup.database import Database

GOAL_MS = {64: 40.0}  # the page of a hunt
GOAL_TAIL = 3.0  # p99 / median
MOST_USD = 0.50  # GPU price without commission


class Clock:
    """The monotonic clock, which can be advanced: orders must be seconds apart, and a trial must not wait for that."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


CLOCK = Clock()


def settings_toml(url: str, folder: Path) -> str:
    return (
        f'database_url = "sqlite:///{folder}/gpuwatch.db"\ndry_run = false\n\n'
        f'[providers.vastai]\nbase_url = "{url}"\nsearch_interval = "0s"\nrows_per_day = 0\n'
        'api_key = "a-key-of-the-benchmark"\n\n'
        '[notify.telegram]\nbot_token = "1:not-used"\nchat_id = "1"\nbase_url = "http://127.0.0.1:9"\n\n'
        f'[[watch]]\nname = "bargain"\ngpu = "{GPU}"\ngpu_count = {COUNT}\nmax_price = {MOST_USD * 1.2:.2f}\n'
        'min_reliability = 0.99\naction = "launch"\n\n[watch.launch]\nimage = "vastai/pytorch"\nmax_runtime = "24h"\n'
        "max_total = 0\n\n[budget]\nmax_usd_hour = 20.0\n"
    )


class Engine:
    """gpuwatch's side."""

    def __init__(self, url: str, folder: Path, opened: ExitStack) -> None:
        (folder / "gpuwatch.toml").write_text(settings_toml(url, folder))
        loaded = settings.load(str(folder / "gpuwatch.toml"), env={"HOME": str(folder)})
        self._store: Database = opened.enter_context(open_store(loaded))
        ahead = TimeSource(real_now, CLOCK, lambda stop, seconds: stop.wait(seconds))
        self._service = opened.enter_context(service.build_service(loaded, self._store, time_source=ahead))
        for reconciler in self._service.following.reconcilers.values():
            reconciler.run_if_due(real_now())
        (self._station,) = self._service.polling.workers.values()
        (self._hunter,) = (station.hunter for station in self._service.polling.workers.values())

    def look(self) -> None:
        """Run one round of the hunt, regardless of the last poll."""
        assert self._hunter is not None
        self._hunter._polled_at.clear()  # trials follow one another immediately
        self._station.hunt()

    def wait_until_ordered(self) -> None:
        """Wait until no order is in flight."""
        while self._service.slots.in_flight():
            time.sleep(0.002)

    def forget(self) -> None:
        """Delete the launch, so that every trial starts from the same state."""
        self.wait_until_ordered()
        with self._store.write() as connection:
            for name in ("launch_event", "delivery", "alert", "launch"):
                connection.execute(delete(tables.metadata.tables[name]))
        self._service.slots.free("bargain")
        CLOCK.ahead_s += 60.0


def trial(look: Callable[[], None], control: Control, size: int, number: int) -> float:
    """Return the milliseconds from visible to requested."""
    seen = len(control("launches"))
    look()
    look()
    gc.collect()
    visible = control("publish", size, number)
    look()
    for _ in range(1000):
        launches = control("launches")
        if len(launches) > seen:
            break
        time.sleep(0.005)
    control("withdraw", size)
    offer_id, arrived_ns = launches[-1]
    assert (offer_id, len(launches)) == (visible["id"], seen + 1), "one bargain, one request"
    return float(arrived_ns - visible["visible_ns"]) / 1e6


def reported(size: int, floor: list[float], ours: list[float]) -> None:
    ratio = statistics.median(mine / base for mine, base in zip(ours, floor, strict=True))
    print(f"{size} offers, {len(ours)} trials")
    for name, values in (("bare httpx + msgspec + commit", floor), ("gpuwatch", ours)):
        ordered = sorted(values)
        p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        middle = statistics.median(values)
        print(f"  {name:30} median {middle:7.2f} ms   p99 {p99:7.2f} ms ({p99 / middle:.1f} × median)   "
              f"least {ordered[0]:.2f}")  # fmt: skip
    goal = f"; goal of the median ≤ {GOAL_MS[size]:.0f} ms" if size in GOAL_MS else ""
    print(f"  gpuwatch / bare               {ratio:.2f}{goal}; p99 goal ≤ {GOAL_TAIL} × median", flush=True)


def report(sizes: list[int], trials: int) -> None:
    logging.disable()
    with tempfile.TemporaryDirectory(dir=os.environ.get("GPUWATCH_BENCH_DIR")) as folder, running(sizes) as control:
        for size in sizes:
            place = Path(folder, str(size))
            place.mkdir()
            with ExitStack() as opened:
                floor = Floor(control.url(size), place, GPU, MOST_USD)
                opened.callback(floor.close)
                engine = Engine(control.url(size), place, opened)
                times: tuple[list[float], list[float]] = ([], [])
                for number in range(trials + 3):
                    one = (
                        trial(floor.look, control, size, 2 * number),
                        trial(engine.look, control, size, 2 * number + 1),
                    )
                    engine.forget()
                    if number >= 3:
                        times[0].append(one[0])
                        times[1].append(one[1])
                reported(size, *times)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 2000, 10_000])
    parser.add_argument("--trials", type=int, default=60)
    args = parser.parse_args()
    report(args.sizes, args.trials)


if __name__ == "__main__":
    main()
