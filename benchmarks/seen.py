"""How soon a watch sees an offer, against the best schedule: 1, 5, 20 and 100 watches at vast.ai's spacing and quota.

    python -m benchmarks.seen [--hours 24] [--days 1] [--seed 1] [--rows 20000] [WATCHES]...

The daemon's own service and tasks on a virtual clock (`polling_day`), with twenty GPUs, all of them recorded. A watch
*sees* a bargain when the daemon's log first says that it matched. Only bargains that appear while their watch has no
match count; the first hour, in which the history begins, is left out. The bound is that of `best_schedule`, on the same
days: hunts may use half of the rows, as the history is promised the rest (docs/decisions/0016).
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.best_schedule import BestSchedule, Limits, Served, best_schedule
from benchmarks.day_market import DAY_S, Bargain, Habits, describe
from benchmarks.figures import Figure
from benchmarks.polling_day import ANSWER_S, SPACING_S, UPLINK_S, Day, Scenario, early, simulate, watches_of
from gpuwatch.engine.market.row_budget import HUNT_SHARE

GPUS = 20
SEED, ROWS_PER_DAY = 1, 20_000
DAYS = {1: 3, 5: 2, 20: 1, 100: 1}  # by watches: few watches find few bargains
GOAL = 1.2  # times the best schedule
WARM_UP_S = 3600.0
POLL_EVERY_S = 30.0  # the default
PAGE_ROWS = 64
LANES = ("hunt", "sweep")
UNMATCHED = {"no_offer", "no_data"}
HABITS = Habits(limit_share=0.7, bargain_every_s=2 * 3600.0, bargain_life_s=15 * 60.0)  # assumed


def scenario(watches: int, hours: float, rows_per_day: int) -> Scenario:
    """Return this number of watches on twenty GPUs, all of which are recorded."""
    return Scenario(
        title=f"{watches} watch{'es' if watches > 1 else ''}",
        watches=watches,
        gpus=min(watches, GPUS),
        recorded=GPUS,
        hours=hours,
        rows_per_day=rows_per_day,
        habits=HABITS,
    )


def waits_s(day: Day) -> tuple[list[float], int]:
    """Return the delays from visible to seen of every watch and bargain, ascending, and the number never seen."""
    found, missed = [], 0
    start_s = day.scenario.start.timestamp() + WARM_UP_S
    for name, gpu, limit in watches_of(day.scenario, day.watched):
        mine = [bargain for bargain in day.bargains if bargain.gpu == gpu and bargain.usd_hour <= limit]
        log = [(at, reason not in UNMATCHED) for at, watch, reason in day.decided if watch == name]
        for bargain in mine:
            if bargain.appears_s < start_s or _is_matched(log, bargain.appears_s) or _others(mine, bargain):
                continue
            seen_s = next(
                (at for at, matched in log if matched and bargain.appears_s <= at <= bargain.vanishes_s + 5.0), None
            )
            if seen_s is not None:
                found.append(seen_s - bargain.appears_s)
            elif bargain.vanishes_s < start_s - WARM_UP_S + day.scenario.hours * 3600:
                missed += 1
    return sorted(found), missed


def _is_matched(log: Sequence[tuple[float, bool]], at_s: float) -> bool:
    """Return the last logged reason of the watch."""
    return next((matched for when, matched in reversed(log) if when < at_s), False)


def _others(mine: Sequence[Bargain], one: Bargain) -> bool:
    return any(other is not one and other.appears_s <= one.appears_s < other.vanishes_s for other in mine)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table."""

    watches: int
    waits_s: Sequence[float]
    best: BestSchedule
    missed: int
    searches: int  # of hunts, per day
    rows: int  # of hunts, per day
    sweep_rows: int
    early: int

    @property
    def measured_s(self) -> tuple[float, float, float]:
        """Mean, median and p95."""
        p95_s = statistics.quantiles(self.waits_s, n=20, method="inclusive")[-1]
        return statistics.mean(self.waits_s), statistics.median(self.waits_s), p95_s

    @property
    def best_s(self) -> tuple[float, float, float]:
        """The same of the best schedule, with the time of an answer."""
        answer_s = sum(ANSWER_S) / 2
        return self.best.mean_s + answer_s, self.best.quantile_s(0.5) + answer_s, self.best.quantile_s(0.95) + answer_s


def measure(watches: int, hours: float, days: int, seed: int, rows_per_day: int) -> Row:
    """Simulate several days and combine them."""
    log = logging.getLogger("gpuwatch")
    log.propagate, lived = False, []
    log.addHandler(logging.NullHandler())
    for number in range(days):
        with tempfile.TemporaryDirectory() as folder:
            lived.append(simulate(scenario(watches, hours, rows_per_day), seed + number, Path(folder)))
    waits = [waits_s(day) for day in lived]
    scale = 24.0 / hours / days
    hunts, sweeps = ([search for day in lived for search in day.searches if search.task == task] for task in LANES)
    return Row(
        watches=watches,
        waits_s=sorted(wait for found, _ in waits for wait in found),
        best=bound(lived),
        missed=sum(missed for _, missed in waits),
        searches=round(len(hunts) * scale),
        rows=round(sum(hunt.rows for hunt in hunts) * scale),
        sweep_rows=round(sum(sweep.rows for sweep in sweeps) * scale),
        early=sum(early(day.searches) for day in lived),
    )


def bound(lived: Sequence[Day]) -> BestSchedule:
    """Return the best schedule for the market of these days; the history's rows arrive on full pages."""
    first = lived[0]
    quota = first.scenario.rows_per_day
    found = [
        Served(
            gpu=gpu,
            limit_usd=limit,
            weight=sum(one.gpu == gpu and one.usd_hour <= limit for day in lived for one in day.bargains),
        )
        for _, gpu, limit in watches_of(first.scenario, first.watched)
    ]
    history_searches = quota * (1 - HUNT_SHARE) / PAGE_ROWS
    limits = Limits(
        searches_per_s=1 / SPACING_S - history_searches / DAY_S,
        rows_per_s=quota * HUNT_SHARE / DAY_S if quota else None,
        poll_every_s=POLL_EVERY_S,
    )
    return best_schedule(found, [moment for day in lived for moment in day.prices], limits)


def figures(watches: int) -> list[Figure]:
    """Return the mean time, as a multiple of the best schedule's."""
    row = measure(watches, 24.0, DAYS[watches], SEED, ROWS_PER_DAY)
    measured, best = (" · ".join(f"{value:.0f}" for value in values) for values in (row.measured_s, row.best_s))
    sample = f"mean · median · p95 {measured} s, best {best} s; n = {len(row.waits_s)}, {row.missed} never seen"
    name = f"visible to seen, {watches} watch{'es' if watches > 1 else ''}, mean / best schedule"
    return [Figure(name=name, goal=GOAL, measured=row.measured_s[0] / row.best_s[0], unit=" ×", sample=sample)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("watches", nargs="*", type=int, default=list(DAYS))
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--days", type=int, default=1)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--rows", type=int, default=ROWS_PER_DAY, help="a day, by the marketplace; 0: no quota")
    args = parser.parse_args()
    print(
        f"{args.days} days of {args.hours:g} h, seed {args.seed}; {SPACING_S:g} s between searches, {args.rows:,} rows "
        f"a day. Assumed: limits {1 - HABITS.limit_share:.0%} under the usual price, watches of one GPU 4 % apart; "
        f"{describe(24.0, HABITS)}; an answer takes {UPLINK_S + ANSWER_S[0]:.1f} to {UPLINK_S + ANSWER_S[1]:.1f} s.\n"
    )
    print("| watches | n | mean · median · p95 | of the best | × | unseen | hunts a day | rows: hunt · sweep | early |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for watches in args.watches:
        row = measure(watches, args.hours, args.days, args.seed, args.rows)
        measured, best = (" · ".join(f"{value:.0f}" for value in values) for values in (row.measured_s, row.best_s))
        ratios = " · ".join(f"{one / other:.2f}" for one, other in zip(row.measured_s, row.best_s, strict=True))
        print(
            f"| {watches} | {len(row.waits_s)} | {measured} s | {best} s | {ratios} | {row.missed} | "
            f"{row.searches:,} | {row.rows:,} · {row.sweep_rows:,} | {row.early} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
