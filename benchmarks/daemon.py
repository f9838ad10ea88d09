"""A daemon's poll of the whole market in steady state: processor time and memory, against a hand-written floor.

    python -m benchmarks.daemon [--offers 10000] [--polls 500] [--paired 60]

One poll of gpuwatch: one search that finds every offer, the evaluation of all 100 watches, and the answer stored in
the history, with the parts of the daemon's own service. The floor queries with http.client, decodes typed, stores
changes and an hourly sum, and compares with limits by GPU. Each is a process of its own; they poll in turn. Between
polls 2 % of the offers are repriced and 1 % replaced. After the paired polls gpuwatch continues alone, to see whether
its memory grows.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

GOAL_CPU, GOAL_MB, GOAL_GROWTH = 1.8, 85.0, 1.01
EARLY = 50
SETTLED = 120  # a poll a minute: by then two hours have ended
_MODELS = [
    ("RTX 4090", 0.36), ("RTX 5090", 0.54), ("RTX 3090", 0.16), ("H100 SXM", 2.2), ("A100 SXM4", 0.75), ("H200", 2.8),
    ("RTX 6000Ada", 0.6), ("L40S", 0.6), ("RTX A6000", 0.42), ("B200", 3.6),
]  # fmt: skip


def watches() -> list[tuple[str, float]]:
    """Ten limits for each model, as GPU and maximum listed USD per GPU-hour; few offers are below them."""
    return [(gpu, usd * (0.4 + 0.04 * step)) for step in range(10) for gpu, usd in _MODELS]


def floor(url: str, folder: Path, opened: ExitStack) -> Callable[[], object]:
    from benchmarks.floors.daemon import Floor

    bars: dict[str, list[float]] = {}
    for gpu, usd in watches():
        bars.setdefault(gpu, []).append(usd)
    made = Floor(url, folder, bars)
    opened.callback(made.close)
    return made.poll


def gpuwatch(url: str, folder: Path, opened: ExitStack) -> Callable[[], object]:
    import msgspec

    from gpuwatch import settings
    from gpuwatch.bootstrap import open_store, real_now, service
    from gpuwatch.ports import Query

    listed = "".join(
        f'[[watch]]\nname = "watch {number}"\ngpu = "{gpu}"\nmax_price = {usd * 1.2:.6f}\n'
        "gpu_count = { min = 1, max = 16 }\n\n"
        for number, (gpu, usd) in enumerate(watches())
    )
    text = (
        f'database_url = "sqlite:///{folder}/gpuwatch.db"\n\n[providers.vastai]\nbase_url = "{url}"\n'
        f'search_interval = "0s"\nrows_per_day = 0\n\n{listed}'
    )
    (folder / "gpuwatch.toml").write_text(text)
    loaded = settings.load(str(folder / "gpuwatch.toml"), env={"HOME": str(folder)})
    store = opened.enter_context(open_store(loaded))
    made = opened.enter_context(service.build_service(loaded, store))
    (station,), (adapter,) = made.polling.workers.values(), made.adapters.values()

    minutes = itertools.count()
    began_at = real_now()

    def poll() -> None:
        # a poll per minute by the clock: the data of the current hour must not be those of eight
        now = began_at + timedelta(minutes=next(minutes))
        answer = msgspec.structs.replace(adapter.market.search(Query()), observed_at=now)
        observed = made.polling.evaluator.observe(loaded.watches, answer, False, now)
        made.polling.evaluator.evaluate(loaded.watches, answer.provider, False, observed, now)
        station.recorder.record_sweep("", False, answer, now)

    return poll


SIDES = {"floor": floor, "gpuwatch": gpuwatch}


def child(side: str, url: str, folder: Path) -> None:
    """Poll once for every line of standard input, and print the measurements."""
    logging.disable()
    with ExitStack() as opened:
        poll = SIDES[side](url, folder, opened)
        for _ in sys.stdin:
            wall, cpu = time.perf_counter(), time.process_time()
            poll()
            took = {"ms": (time.perf_counter() - wall) * 1e3, "cpu_ms": (time.process_time() - cpu) * 1e3}
            print(json.dumps(took | {"mb": _status_mb("VmRSS"), "peak_mb": _status_mb("VmHWM")}), flush=True)


def _status_mb(field: str) -> float:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) / 1024


@contextmanager
def polled(side: str, url: str, folder: Path) -> Iterator[Callable[[], dict[str, float]]]:
    """Run a side in its own process; the callable makes it poll once."""
    command = [sys.executable, "-m", "benchmarks.daemon", "--child", side, url, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        given, reported = process.stdin, process.stdout
        assert given is not None
        assert reported is not None

        def poll() -> dict[str, float]:
            given.write("poll\n")
            given.flush()
            found: dict[str, float] = json.loads(reported.readline())
            return found

        yield poll
        given.close()


def report(offers: int, polls: int, paired: int) -> None:
    from benchmarks.server import running  # it loads the emulator, which neither a daemon nor a floor needs

    place = os.environ.get("GPUWATCH_BENCH_DIR")
    with tempfile.TemporaryDirectory(dir=place) as folder, running([offers]) as control:
        both: dict[str, list[dict[str, float]]] = {"floor": [], "gpuwatch": []}
        url, where = control.url(offers), Path(folder)
        with polled("gpuwatch", url, where):  # a daemon's first start validates the settings and creates the database
            pass
        with polled("floor", url, where) as one, polled("gpuwatch", url, where) as other:
            for number in range(polls):
                control("evolve", offers)
                if number < paired:
                    both["floor"].append(one())
                both["gpuwatch"].append(other())
        reported(offers, both)


def reported(offers: int, both: dict[str, list[dict[str, float]]]) -> None:
    ours, base = both["gpuwatch"], both["floor"]
    warm = slice(3, len(base))
    print(f"{offers} offers, 100 watches; {len(base)} polls in turn, {len(ours)} of gpuwatch")
    for name, values in both.items():
        cpu, wall = (statistics.median(value[key] for value in values[warm]) for key in ("cpu_ms", "ms"))
        print(f"  {name:9} processor {cpu:6.1f} ms a poll   wall {wall:6.1f} ms   RSS {values[-1]['mb']:5.1f} MB   "
              f"peak {values[-1]['peak_mb']:5.1f} MB")  # fmt: skip
    ratio = statistics.median(a["cpu_ms"] / b["cpu_ms"] for a, b in zip(ours[warm], base[warm], strict=True))
    print(f"  processor time, gpuwatch / floor {ratio:.2f}; goal ≤ {GOAL_CPU}")
    print(f"  RSS {ours[-1]['mb']:.1f} MB; goal ≤ {GOAL_MB:.0f}")
    if len(ours) > SETTLED:
        early, settled = ours[EARLY - 1]["mb"], [value["mb"] for value in ours[SETTLED:]]
        print(f"  RSS at poll {len(ours)} / at poll {EARLY}: {ours[-1]['mb'] / early:.3f}; goal ≤ {GOAL_GROWTH}")
        print(f"  RSS from poll {SETTLED} on: {min(settled):.1f} to {max(settled):.1f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--offers", type=int, default=10_000)
    parser.add_argument("--polls", type=int, default=500)
    parser.add_argument("--paired", type=int, default=60)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child[0], args.child[1], Path(args.child[2]))
    else:
        report(args.offers, args.polls, min(args.paired, args.polls))


if __name__ == "__main__":
    main()
