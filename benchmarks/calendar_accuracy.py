"""How often `gpuwatch forecasts calendar` reports "no effect" correctly, and finds an effect that exists.

    python -m benchmarks.calendar_accuracy [--runs 200] [--weeks 2,4,8] [--process NAME] [--only quiet|power]

Processes without a clock (or with one price a day) generate hourly prices, with other noise than the tests assume:
prices that stay for days, wander, fall for some hours, jump and decay. A run is right if none of its comparisons
(night, weekend, 24 hours) claims an effect. Then nights or weekends are made cheaper by 5, 10 and 30 %. 200 runs
take half an hour; `--runs 20 --weeks 4` takes a minute.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from gpuwatch.app.history.past_prices import hourly_lows, load_prices
from gpuwatch.domain.forecasts.week_effects import (
    MIN_WEEKS,
    CalendarEffect,
    EffectVerdict,
    HourEffect,
    WeekPart,
    compare_parts,
    default_parts,
)
from gpuwatch.domain.forecasts.week_patterns import hourly_logs
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.history.price_series import PriceSeries
from gpuwatch.settings import load

Logs = NDArray[np.float64]
Process = Callable[[int, np.random.Generator], Logs]

ZONE = ZoneInfo("Europe/Berlin")
PUBLIC = Path(__file__).parent.parent / Path("tests/recorded/price-history/primeintellect-best-2025-10-19_11-03.csv.gz")
FIRST_HOUR = 1_772_323_200 // 3600  # 2026-03-01; the clocks change on the 29th
PARTS = default_parts()
QUIET = {EffectVerdict.NO_EFFECT, EffectVerdict.NOT_ENOUGH}
EFFECTS = (0.05, 0.10, 0.30)
ROUNDED = 0.05  # percent points: intervals are shown with one digit


def autoregressive(phi: float, step: float) -> Process:
    def made(hours: int, rng: np.random.Generator) -> Logs:
        logs, at = np.empty(hours), rng.normal() * step / math.sqrt(1 - phi**2)
        for hour, noise in enumerate(rng.normal(size=hours) * step):
            at = phi * at + noise
            logs[hour] = at
        return logs

    return made


def plateaus(mean_hours: float, step: float = 0.15, *, wanders: bool = False) -> Process:
    """One price for days, then another: independent of the last, or a step away from it."""

    def made(hours: int, rng: np.random.Generator) -> Logs:
        ends = np.cumsum(rng.exponential(mean_hours, int(3 * hours / mean_hours) + 50))
        number = np.searchsorted(ends, np.arange(hours))
        levels = rng.normal(size=number.max() + 1) * step
        return np.asarray((np.cumsum(levels) if wanders else levels)[number])

    return made


def daily(at_hour: int, chance: float = 1.0) -> Process:
    """A price may change once a day, always at the same time."""

    def made(hours: int, rng: np.random.Generator) -> Logs:
        number = (np.arange(hours) + 24 - at_hour) // 24
        days = number.max() + 1
        return np.asarray(np.cumsum((rng.random(days) < chance) * rng.normal(size=days) * 0.1)[number])

    return made


def dips(hours: int, rng: np.random.Generator) -> Logs:
    """One price, and offers far below it for some hours."""
    logs = np.zeros(hours)
    for hour in np.flatnonzero(rng.random(hours) < 1 / 60):
        logs[hour : hour + 1 + int(rng.exponential(4))] -= rng.uniform(0.1, 0.8)
    return logs


def saw(hours: int, rng: np.random.Generator) -> Logs:
    """Jumps up, and falls slowly."""
    logs, at = np.empty(hours), 0.0
    for hour, jump in enumerate(rng.exponential(0.3, hours) * (rng.random(hours) < 1 / 40)):
        at = 0.98 * at + jump
        logs[hour] = at
    return logs


def cheapest_of_offers(hours: int, rng: np.random.Generator) -> Logs:
    """Offers appear and disappear, each with a constant price; the cheapest counts."""
    logs, at = np.full(hours, 0.4), 0.0
    while at < hours:
        at += rng.exponential(8)
        until, price = int(at + rng.exponential(30)) + 1, rng.normal() * 0.15
        logs[int(at) : until] = np.minimum(logs[int(at) : until], price)
    return logs


def falling(hours: int, rng: np.random.Generator) -> Logs:
    """Plateaus that wander, 13 % cheaper a week."""
    return np.asarray(plateaus(60, 0.045, wanders=True)(hours, rng) - np.arange(hours) * 0.0008)


def public_shuffled(hours: int, rng: np.random.Generator) -> Logs:
    """Parts of the public H100 SXM series, two days long on average, in random order (the stationary bootstrap).

    Whole days would keep their time of day: with fifteen days, drawn repeatedly, some hour is really cheaper.
    """
    logs = _public()
    begins = rng.random(hours) < 1 / 48
    begins[0] = True
    number = np.cumsum(begins) - 1
    starts = rng.integers(0, len(logs), number[-1] + 1)
    return np.asarray(logs[(starts[number] + np.arange(hours) - np.flatnonzero(begins)[number]) % len(logs)])


@cache
def _public() -> Logs:
    always = (datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC))
    settings, scope = load(env={}, cwd=PUBLIC.parent), MarketFilter(gpus=("H100 SXM",), spot=False)
    series = hourly_lows(settings, load_prices(settings, scope, *always, PUBLIC), always[1], UTC)
    return np.log(np.array([low for low in series.lows if low is not None], dtype=np.float64))


PROCESSES: dict[str, Process] = {
    "independent": lambda hours, rng: rng.normal(size=hours) * 0.1,
    "autoregressive 0.9": autoregressive(0.9, 0.02),
    "autoregressive 0.99": autoregressive(0.99, 0.02),
    "random walk": lambda hours, rng: np.cumsum(rng.normal(size=hours) * 0.01),
    "plateaus, 12 h": plateaus(12),
    "plateaus, 3 days": plateaus(72),
    "plateaus, 7 days": plateaus(168),
    "plateaus that wander": plateaus(72, wanders=True),
    "a few jumps": plateaus(300, 0.1, wanders=True),
    "a new price at 09:00": daily(8),
    "now and then at 01:00": daily(0, 0.2),
    "dips of hours": dips,
    "jump and decay": saw,
    "cheapest of offers": cheapest_of_offers,
    "falling": falling,
    "public, shuffled": public_shuffled,
}


def answered(logs: Logs, first_hour: int, seed: int) -> tuple[list[CalendarEffect], CalendarEffect, list[HourEffect]]:
    """Return the command's result for these prices."""
    lows = [max(1, round(2e6 * math.exp(log))) for log in logs]
    series = PriceSeries(first_hour=first_hour, lows=lows, polled=[True] * len(lows), source="made up")
    return compare_parts(hourly_logs(series, ZONE), PARTS, seed)


def planted(logs: Logs, first_hour: int, part: WeekPart, cheaper: float) -> Logs:
    """Return the same prices with a part of the week made cheaper."""
    local = [datetime.fromtimestamp((first_hour + at) * 3600, UTC).astimezone(ZONE) for at in range(len(logs))]
    inside = np.array([part.mask[one.weekday() * 24 + one.hour] for one in local])
    return np.asarray(logs + inside * math.log(1 - cheaper))


def quiet_share(process: Process, weeks: int, runs: int, seed: int) -> float:
    """Return the share of runs in which no comparison claims an effect."""
    quiet = 0
    for run in range(runs):
        rng = np.random.default_rng([seed, weeks, run])
        logs, first = process(weeks * 168, rng), FIRST_HOUR + int(rng.integers(168))
        effects, any_hour, by_hour = answered(logs, first, run)
        verdicts = [any_hour.verdict, *(effect.verdict for effect in effects), *(hour.verdict for hour in by_hour)]
        quiet += all(verdict in QUIET for verdict in verdicts)
    return quiet / runs


def found_share(process: Process, weeks: int, runs: int, part: int, cheaper: float) -> tuple[float, float]:
    """Return the share of runs that call a planted effect cheaper, and the share whose interval contains it."""
    found = held = tested = 0
    for run in range(runs):
        rng = np.random.default_rng([7, weeks, run])
        first = FIRST_HOUR + int(rng.integers(168))
        logs = planted(process(weeks * 168, rng), first, PARTS[part], cheaper)
        effect = answered(logs, first, run)[0][part]
        found += effect.verdict is EffectVerdict.CHEAPER
        if effect.low_percent is not None and effect.high_percent is not None:
            tested += 1
            held += effect.low_percent - ROUNDED <= cheaper * 100 <= effect.high_percent + ROUNDED
    return found / runs, held / tested if tested else math.nan


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calendar_accuracy", description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--weeks", default="2,4,8")
    parser.add_argument("--process", action="append", choices=list(PROCESSES), help="only these")
    parser.add_argument("--only", choices=["quiet", "power"], help="only where there is nothing to find, or something")
    args = parser.parse_args(argv)
    weeks = [int(word) for word in args.weeks.split(",")]
    names = args.process or list(PROCESSES)
    began = time.monotonic()
    if args.only != "power":
        _quiet(names, weeks, args.runs)
    if args.only != "quiet":
        _power(names, [number for number in weeks if number >= MIN_WEEKS], max(20, args.runs // 5))
    print(f"\n({time.monotonic() - began:.0f} s)")


def _quiet(names: Sequence[str], weeks: Sequence[int], runs: int) -> None:
    print(f'"no effect" where there is none, {runs} runs each, percent by weeks of data\n')
    print(f"{'':24}" + "".join(f"{number:>8}" for number in weeks))
    every = []
    for name in names:
        shares = [quiet_share(PROCESSES[name], number, runs, seed=1) for number in weeks]
        every.append(shares)
        print(f"{name:24}" + "".join(f"{share:8.1%}" for share in shares), flush=True)
    print(f"{'all':24}" + "".join(f"{share:8.1%}" for share in np.mean(every, axis=0)))


def _power(names: Sequence[str], weeks: Sequence[int], runs: int) -> None:
    for part, what in enumerate(PARTS):
        print(f"\n{what.name} made cheaper: found / the interval holds it, {runs} runs each\n")
        columns = [(number, cheaper) for number in weeks for cheaper in EFFECTS]
        print(f"{'':24}" + "".join(f"{f'{number} w, {cheaper:.0%}':>14}" for number, cheaper in columns))
        for name in names:
            shares = [found_share(PROCESSES[name], *column[:1], runs, part, column[1]) for column in columns]
            print(f"{name:24}" + "".join(f"{f'{share:.0%} / {held:.0%}':>14}" for share, held in shares), flush=True)


if __name__ == "__main__":
    main()
