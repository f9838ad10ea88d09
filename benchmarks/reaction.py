"""From an offer visible at the marketplace to the request to rent it, through the whole engine.

    python -m benchmarks.reaction [--sizes 64 10000] [--trials 60]

gpuwatch's service is built like the daemon's (hunt, evaluation, one FULL transaction with decision, alert and intent,
executor on its thread, adapter over HTTP), with real settings and a database file; only its hunt is called directly,
not by the scheduler. Each trial polls the list without the bargain (connections warm, the watch rearmed), the bargain
appears, and it polls again. All milliseconds are by the server's clock.
"""

from __future__ import annotations

import argparse
import gc
import logging
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from sqlalchemy import delete

from benchmarks.figures import Figure, table
from benchmarks.server import COUNT, GPU, Control, running
from gpuwatch import settings
from gpuwatch.bootstrap import TimeSource, open_store, real_now, service
from gpuwatch.storage.setup import tables
from gpuwatch.storage.setup.database import Database

PAGE = 64  # of a hunt
GOAL_MS = 40.0
WARM_UP = 3  # trials
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


def trial(engine: Engine, control: Control, size: int, number: int) -> float:
    """Return the milliseconds from visible to requested."""
    seen = len(control("launches"))
    engine.look()
    engine.look()
    gc.collect()
    visible = control("publish", size, number)
    engine.look()
    for _ in range(1000):
        launches = control("launches")
        if len(launches) > seen:
            break
        time.sleep(0.005)
    control("withdraw", size)
    offer_id, arrived_ns = launches[-1]
    assert (offer_id, len(launches)) == (visible["id"], seen + 1), "one bargain, one request"
    engine.forget()
    return float(arrived_ns - visible["visible_ns"]) / 1e6


def figures(sizes: Sequence[int] = (PAGE,), trials: int = 30) -> list[Figure]:
    """Return the median of each size."""
    logging.disable()
    found = []
    with tempfile.TemporaryDirectory() as folder, running(list(sizes)) as control:
        for size in sizes:
            place = Path(folder, str(size))
            place.mkdir()
            with ExitStack() as opened:
                engine = Engine(control.url(size), place, opened)
                times_ms = [trial(engine, control, size, number) for number in range(trials + WARM_UP)][WARM_UP:]
            found.append(
                Figure(
                    name=f"offer visible to request to rent it, {size:,} offers, median",
                    goal=GOAL_MS,
                    measured=statistics.median(times_ms),
                    unit=" ms",
                    sample=f"n = {trials}, longest {max(times_ms):.0f} ms",
                )
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[PAGE])
    parser.add_argument("--trials", type=int, default=60)
    args = parser.parse_args()
    print(table(figures(args.sizes, args.trials)))


if __name__ == "__main__":
    main()
