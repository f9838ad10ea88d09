"""Waiting out of sample: rules fitted on the first part of a price series are followed on the rest of it.

    python -m benchmarks.advise [--data FILE] [--train 0.6] [--refit] [--each]

For each GPU × count of a file of price rows, a buyer at every hour of the held-out part needs one within the deadline
and pays what `gpuwatch forecasts advise` (or "auto") achieves. The comparisons: buying at once; a limit fixed at the
median of the first part, and at the deadline any price; the lowest price, which nobody can know. In the averages each
series has equal weight.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gpuwatch.domain.forecasts.advice import why_too_little_data
from gpuwatch.domain.forecasts.optimal_stopping import PricePath as Prices
from gpuwatch.domain.forecasts.optimal_stopping import (
    best_stopping_rule,
    level_of,
    price_path_of,
    rule_costs,
)
from gpuwatch.domain.forecasts.wait_outcomes import Numbers, next_price
from gpuwatch.domain.history.price_rows import PriceRow, canonical_gpu
from gpuwatch.domain.history.price_series import PriceSeries, series_of
from gpuwatch.domain.history.row_conversion import history_of_rows
from gpuwatch.storage.history.imports.price_file_rows import read_rows

HERE = Path(__file__).parents[1]
FILE = HERE / "tests/recorded/price-history/primeintellect-best-2025-10-19_11-03.csv.gz"
DEADLINES_H = (12, 24, 48)
DAY_H = 24
WAYS = ("at once", "fixed at the median", "advise", "the lowest")
_LEAST_STARTS = 24


class Part(NamedTuple):
    """One series."""

    name: str
    series: PriceSeries


def parts_of(rows: list[PriceRow]) -> Iterator[Part]:
    """Return each GPU × count, on demand."""
    groups: dict[tuple[str, int], list[PriceRow]] = {}
    for row in rows:
        if not row.spot:
            groups.setdefault((canonical_gpu(row.gpu_wire, row.gpu_memory_gib)[0], row.gpu_count), []).append(row)
    for (gpu, count), mine in sorted(groups.items()):
        series = series_of(
            history_of_rows(mine, "a file"), lambda _, interval, n=count: interval.machine_microusd_hour / n
        )  # type: ignore[misc]
        yield Part(f"{gpu} × {count}", series)


def followed(prices: Prices, begin: int, hours: int, every_h: int | None) -> Numbers:
    """Return the cost with `advise` for each start from `begin` on; fitted once, or again at an interval."""
    level, costs = level_of(prices), np.full(len(prices.prices), np.nan)
    step = every_h or len(costs)
    for at in range(begin, len(costs), step):
        before = Prices(prices=prices.prices[:at], polled=prices.polled[:at])
        rule = best_stopping_rule(before, hours).rule
        signal = prices.prices / level if rule.relative else prices.prices
        costs[at : at + step] = rule_costs(prices, signal, rule.limits, None)[at : at + step]
    return costs


def judged(part: Part, hours: int, train: float, every_h: int | None) -> Mapping[str, float] | str:
    """Return the mean cost of each rule on the held-out part, or why it is unknown."""
    begin = int(len(part.series.lows) * train)
    first = PriceSeries(
        first_hour=part.series.first_hour,
        lows=part.series.lows[:begin],
        polled=part.series.polled[:begin],
        source="",
    )
    if why := why_too_little_data(first, hours):
        return why
    prices = price_path_of(part.series)
    median = float(np.nanmedian(prices.prices[:begin]))
    ways = {
        "at once": rule_costs(prices, prices.prices, [np.inf] * (hours + 1), None),
        "fixed at the median": rule_costs(prices, prices.prices, [np.inf, *[median] * hours], None),
        "advise": followed(prices, begin, hours, every_h),
        "the lowest": lowest(prices, hours),
    }
    known = prices.polled & ~np.isnan(list(ways.values())).any(axis=0)
    known[:begin] = False
    if known.sum() < _LEAST_STARTS:
        return f"{known.sum()} starts in the held part"
    return {name: float(costs[known].mean()) for name, costs in ways.items()} | {"starts": float(known.sum())}


def lowest(prices: Prices, hours: int) -> Numbers:
    """Return the lowest price within the deadline, or the next after it."""
    padded = np.append(next_price(prices.prices)[0], np.full(hours, np.nan))
    return np.lib.stride_tricks.sliding_window_view(padded, hours + 1).min(axis=1)


def show(found: Mapping[str, Mapping[str, float]], hours: int, each: bool) -> bool:
    """Print a table against buying at once; return whether `advise` beats both others."""
    print(f"\ndeadline {hours} h: {len(found)} series, {sum(one['starts'] for one in found.values()):,.0f} starts")
    shares = {way: np.array([one[way] / one["at once"] - 1 for one in found.values()]) for way in WAYS}
    if each:
        for at, (name, one) in enumerate(found.items()):
            if any(abs(shares[way][at]) > 5e-4 for way in WAYS):
                print(f"  {name:24} {one['at once']:8.4f} " + "".join(f"{shares[w][at]:+9.1%}" for w in WAYS[1:]))
    for way in WAYS[1:]:
        mine = shares[way]
        cheaper, dearer = int((mine < -1e-6).sum()), int((mine > 1e-6).sum())
        print(f"  {way:20} {mine.mean():+8.2%} on average; cheaper in {cheaper}, dearer in {dearer}; "
              f"worst {mine.max():+.1%}, best {mine.min():+.1%}")  # fmt: skip
    against = shares["advise"] - shares["fixed at the median"]
    cheaper, dearer = int((against < -1e-6).sum()), int((against > 1e-6).sum())
    print(f"  advise against the median: cheaper in {cheaper}, dearer in {dearer}")
    return bool(shares["advise"].mean() < min(0.0, shares["fixed at the median"].mean()))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.advise", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=FILE, help="price rows in nine columns")
    parser.add_argument("--train", type=float, default=0.6, help="how much of it is the first part")
    parser.add_argument("--refit", action="store_true", help="fit anew every day, on all that came before, as a daemon")
    parser.add_argument("--each", action="store_true", help="show each series whose price moved")
    args = parser.parse_args()
    parts = list(parts_of(read_rows(args.data).rows))
    print(f"{args.data.name}: fitted on the first {args.train:.0%}{', then anew every day' if args.refit else ''}; "
          "cost against buying at once")  # fmt: skip
    beaten = []
    for hours in DEADLINES_H:
        reported = {part.name: judged(part, hours, args.train, DAY_H if args.refit else None) for part in parts}
        known = {name: one for name, one in reported.items() if not isinstance(one, str)}
        if left_out := [name for name, one in reported.items() if isinstance(one, str)]:
            name = left_out[0]
            print(f"\ndeadline {hours} h: {len(left_out)} series are not enough, such as {name}: {reported[name]}")
        if known:
            beaten.append(show(known, hours, args.each))
    verdict = "beats buying at once and the fixed median" if beaten and all(beaten) else "does NOT beat both"
    print(f"\nadvise {verdict} in expected cost.")


if __name__ == "__main__":
    main()
