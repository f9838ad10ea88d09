"""How soon a watch sees an offer: 1, 5, 20 and 100 watches on 20 GPUs at vast.ai's spacing and quota.

    python -m benchmarks.seen [--hours 24] [--days 3] [--seed 1] [--rows 20000] [WATCHES]...

The daemon's own service and tasks on a virtual clock, as in `polling_day`. A watch *sees* a bargain when the daemon's
log first mentions it. Only bargains that appear while their watch has no match count; the first hour, in which the
history begins, is left out.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.day_market import Bargain, Habits, describe
from benchmarks.polling_day import simulate, watches_of
from benchmarks.polling_table import ANSWER_S, SPACING_S, UPLINK_S, Day, Scenario, early

GPUS = 20
COUNTS = (1, 5, 20, 100)
WARM_UP_S = 3600.0
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
    missed: int
    searches: int  # of hunts, per day
    rows: int  # of hunts, per day
    sweep_rows: int
    early: int


def measure(watches: int, hours: float, days: int, seed: int, rows_per_day: int) -> Row:
    """Simulate several days and combine them."""
    lived = []
    for number in range(days):
        with tempfile.TemporaryDirectory() as folder:
            lived.append(simulate(scenario(watches, hours, rows_per_day), seed + number, Path(folder)))
    waits = [waits_s(day) for day in lived]
    scale = 24.0 / hours / days
    hunts = [search for day in lived for search in day.searches if search.task == "hunt"]
    return Row(
        watches=watches,
        waits_s=sorted(wait for found, _ in waits for wait in found),
        missed=sum(missed for _, missed in waits),
        searches=round(len(hunts) * scale),
        rows=round(sum(hunt.rows for hunt in hunts) * scale),
        sweep_rows=round(
            sum(search.rows for day in lived for search in day.searches if search.task == "sweep") * scale
        ),
        early=sum(early(day.searches) for day in lived),
    )


def _cells(row: Row, first: Row) -> str:
    median, p95 = _figures(row)
    of_one = " · ".join(f"{mine / its:.1f}" for mine, its in zip((median, p95), _figures(first), strict=True))
    return (
        f"| {row.watches} | {len(row.waits_s)} | {median:.0f} s | {p95:.0f} s | {of_one} | {row.missed} | "
        f"{row.searches:,} | {row.rows:,} · {row.sweep_rows:,} | {row.early} |"
    )


def _figures(row: Row) -> tuple[float, float]:
    return statistics.median(row.waits_s), statistics.quantiles(row.waits_s, n=20, method="inclusive")[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("watches", nargs="*", type=int, default=list(COUNTS))
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=int, default=20_000, help="a day, as the marketplace grants them; 0: no quota")
    args = parser.parse_args()
    logging.getLogger("gpuwatch").propagate = False
    logging.getLogger("gpuwatch").addHandler(logging.NullHandler())
    print(
        f"{args.days} days of {args.hours:g} h, seed {args.seed}; {SPACING_S:g} s between searches, {args.rows:,} rows "
        f"a day. Assumed: limits {1 - HABITS.limit_share:.0%} under the usual price, watches of one GPU 4 % apart; "
        f"{describe(24.0, HABITS)}; an answer takes {UPLINK_S + ANSWER_S[0]:.1f} to {UPLINK_S + ANSWER_S[1]:.1f} s.\n"
    )
    print("| watches | n | median | p95 | × of one | never seen | hunts a day | rows a day: hunt · sweep | early |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    first: Row | None = None
    for watches in args.watches or COUNTS:
        days = args.days if watches >= GPUS else args.days * 4  # few watches find few bargains
        row = measure(watches, args.hours, days, args.seed, args.rows)
        first = first or row
        print(_cells(row, first), flush=True)


if __name__ == "__main__":
    main()
