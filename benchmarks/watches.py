"""All watches against all offers: `WatchIndex` against an incremental floor, in turn, in one run.

    python -m benchmarks.watches [--offers 10000] [--watches 100] [--rounds 15] [--limit 1.3]

The floor is what one would write by hand for exactly this purpose: rules by GPU, each compiled to one expression,
evaluated only for offers whose price changed since the last poll; it gives unordered (watch, offer) pairs. It assumes
that only prices change, which is true of the seeded market and not of a real one: the index compares every field,
prices exactly with commission and disk, and returns matches in order. Both must find the same pairs. Between polls 2 %
of the offers are repriced and 1 % replaced. All objects are new, including their strings, which is harder than in
reality: an adapter takes names from its tables.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import TypeVar

from benchmarks.seeded_market import MODELS, START, Market
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.domain.watches.watch_index import WatchIndex

COMMISSIONS = {"vastai": Commission("0.20")}
T = TypeVar("T")
_MEMORY_GIB = dict.fromkeys(("RTX 3060", "RTX 4070 Ti", "RTX 3080", "GTX 1080 Ti"), 12)
_MEMORY_GIB |= dict.fromkeys(("RTX 4080S", "RTX 4060 Ti", "RTX 5080", "RTX 5070 Ti", "RTX A4000", "Tesla T4"), 16)
_MEMORY_GIB |= dict.fromkeys(("RTX 6000 Ada", "RTX A6000", "A40", "L40S", "RTX 8000"), 48)
_MEMORY_GIB |= dict.fromkeys(("RTX PRO 6000", "A100 PCIe", "A100 SXM 80GB", "H200", "B200"), 80)
_MEMORY_GIB |= dict.fromkeys(("H100 PCIe", "H100 SXM", "H100 NVL"), 80)  # the others: 24
Pairs = set[tuple[int, str]]  # number of the watch, id of the offer


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


def incremental_floor(watches: list[Watch]) -> Callable[[list[Offer]], Pairs]:
    """Compiled rules by GPU; evaluates only offers whose price changed."""
    rules: dict[str, list[tuple[int, Callable[[Offer], bool]]]] = {gpu: [] for gpu, *_ in MODELS}
    for number, watch in enumerate(watches):
        for gpu in watch.gpu_names:
            rules[gpu].append((number, _compiled(watch)))
    last: dict[str, float] = {}
    found: dict[str, list[int]] = {}

    def evaluate(offers: list[Offer]) -> Pairs:
        nonlocal last
        seen = {o.offer_id: o.quoted_usd_hour for o in offers}
        for o in offers:
            if last.get(o.offer_id) != o.quoted_usd_hour:
                found[o.offer_id] = [number for number, fits in rules[o.gpu] if fits(o)]
        for gone in last.keys() - seen.keys():
            found.pop(gone, None)
        last = seen
        return {(number, offer_id) for offer_id, numbers in found.items() for number in numbers}

    return evaluate


def _compiled(watch: Watch) -> Callable[[Offer], bool]:
    parts = [
        f"{watch.gpu_count_min} <= o.gpu_count <= {watch.gpu_count_max}",
        f"o.quoted_usd_hour * 1.2 <= {watch.max_price_usd_gpu_hour} * o.gpu_count",
        f"o.reliability >= {watch.min_reliability}",
    ]
    parts += ["o.verification == 'verified'"] if watch.verified else []
    parts += [f"o.country in {watch.regions!r}"] if watch.regions else []
    rule: Callable[[Offer], bool] = eval(f"lambda o: {' and '.join(parts)}")
    return rule


def measure(offers: int, count: int, rounds: int) -> list[tuple[float, float, int]]:
    """Return the milliseconds of the index and of the floor, and the number of pairs, per round."""
    watches = make_watches(count)
    index, floor = WatchIndex(watches, COMMISSIONS), incremental_floor(watches)
    numbers = {watch.name: number for number, watch in enumerate(watches)}
    measured = []
    mine, theirs = (Market(offers).polls(rounds + 1) for _ in range(2))  # the same offers, decoded separately
    for at in range(rounds + 1):
        now = START + timedelta(minutes=at)
        found, index_ms = _timed(partial(index.update, now=now), next(mine))
        expected, floor_ms = _timed(floor, next(theirs))
        pairs = {(numbers[name], match.offer.offer_id) for name, matched in found.items() for match in matched}
        if pairs != expected:
            raise SystemExit(f"round {at}: {len(pairs)} pairs, the floor finds {len(expected)}")
        measured.append((index_ms, floor_ms, len(pairs)))
    return measured[1:]  # in the first poll everything is new


def _timed(work: Callable[[list[Offer]], T], poll: list[Offer]) -> tuple[T, float]:
    gc.collect()
    before = time.process_time()
    result = work(poll)
    return result, (time.process_time() - before) * 1000


def main() -> None:
    """Print each round and the median ratio; exit 1 if it exceeds the limit."""
    parser = argparse.ArgumentParser(description="All watches against all offers.")
    parser.add_argument("--offers", type=int, default=10_000)
    parser.add_argument("--watches", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--limit", type=float, default=1.3)
    args = parser.parse_args()
    measured = measure(args.offers, args.watches, args.rounds)
    for number, (index_ms, floor_ms, pairs) in enumerate(measured, 1):
        times = f"index {index_ms:6.2f} ms  floor {floor_ms:6.2f} ms  ratio {index_ms / floor_ms:5.2f}"
        print(f"round {number:2}  {times}  {pairs:,} pairs")
    ratio = statistics.median(index_ms / floor_ms for index_ms, floor_ms, _ in measured)
    quickest = min(index_ms for index_ms, *_ in measured) / min(floor_ms for _, floor_ms, _ in measured)
    print(f"{args.offers:,} offers x {args.watches} watches, 3 % changed; CPU time, which a busy machine distorts less")
    print(f"median ratio {ratio:.2f}, quickest rounds {quickest:.2f}, limit {args.limit}")
    raise SystemExit(ratio > args.limit)


if __name__ == "__main__":
    main()
