"""All watches against all offers of a poll, as the daemon matches them.

python -m benchmarks.watches [--offers 10000] [--watches 100] [--rounds 10] [--limit-ms 500]
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
from datetime import timedelta
from decimal import Decimal

from benchmarks.seeded_market import MODELS, START, Market
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.watches.match import matches
from gpuwatch.domain.watches.watch import Watch

COMMISSIONS = {"vastai": Commission("0.20")}
_MEMORY_GIB = dict.fromkeys(("RTX 3060", "RTX 4070 Ti", "RTX 3080", "GTX 1080 Ti"), 12)
_MEMORY_GIB |= dict.fromkeys(("RTX 4080S", "RTX 4060 Ti", "RTX 5080", "RTX 5070 Ti", "RTX A4000", "Tesla T4"), 16)
_MEMORY_GIB |= dict.fromkeys(("RTX 6000 Ada", "RTX A6000", "A40", "L40S", "RTX 8000"), 48)
_MEMORY_GIB |= dict.fromkeys(("RTX PRO 6000", "A100 PCIe", "A100 SXM 80GB", "H200", "B200"), 80)
_MEMORY_GIB |= dict.fromkeys(("H100 PCIe", "H100 SXM", "H100 NVL"), 80)  # the others: 24


def make_watches(count: int, seed: int = 3) -> list[Watch]:
    """Return watches: four in five name one or two models, the others memory; their limits accept few offers."""
    rng = random.Random(seed)
    return [_watch(f"watch-{number}", rng) for number in range(count)]


def _watch(name: str, rng: random.Random) -> Watch:
    gpu, usd, _ = rng.choices(MODELS, [share for *_, share in MODELS])[0]
    if rng.random() < 0.8:
        names = {gpu} | ({rng.choice(MODELS)[0]} if rng.random() < 0.3 else set())
        count, most = rng.choice([1, 1, 1, 2, 4, 8]), usd * rng.uniform(0.55, 0.85)
    else:
        least_gib = rng.choice([16, 24, 48, 80])
        names = {model for model, *_ in MODELS if _MEMORY_GIB.get(model, 24) >= least_gib}
        count, most = 1, rng.uniform(0.05, 0.3)
    return Watch(
        name=name,
        gpu=tuple(sorted(names)),
        gpu_names=tuple(sorted(names)),
        max_price_usd_gpu_hour=Decimal(f"{most:.4f}") * Decimal("1.2"),
        gpu_count_min=count,
        gpu_count_max=count,
        min_reliability=rng.choice([0.95, 0.98, 0.99]),
        verified=rng.random() < 0.7 or None,
        regions=("US", "DE") if rng.random() < 0.4 else (),
    )


def measure(offers: int, count: int, rounds: int) -> list[tuple[float, int]]:
    """Return the milliseconds of each poll, and its matches."""
    watches = make_watches(count)
    measured = []
    for at, poll in enumerate(Market(offers).polls(rounds)):
        now = START + timedelta(minutes=at)
        gc.collect()
        before = time.process_time()
        found = [matches(watch, poll, COMMISSIONS, now) for watch in watches]
        measured.append(((time.process_time() - before) * 1000, sum(map(len, found))))
    return measured


def main() -> None:
    """Print each poll and the median; exit 1 if it exceeds the limit."""
    parser = argparse.ArgumentParser(description="All watches against all offers.")
    parser.add_argument("--offers", type=int, default=10_000)
    parser.add_argument("--watches", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--limit-ms", type=float, default=500.0)
    args = parser.parse_args()
    measured = measure(args.offers, args.watches, args.rounds)
    for number, (ms, pairs) in enumerate(measured, 1):
        print(f"poll {number:2}  {ms:6.1f} ms  {pairs:,} matches")
    median_ms = statistics.median(ms for ms, _ in measured)
    print(
        f"{args.offers:,} offers x {args.watches} watches: median {median_ms:.0f} ms of CPU, limit {args.limit_ms:.0f}"
    )
    raise SystemExit(median_ms > args.limit_ms)


if __name__ == "__main__":
    main()
