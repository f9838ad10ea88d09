"""Plans the day's rows at a provider, so that the quota is never used up: two lanes share the remaining rows.

The *hunt* queries each watch for a few rows at or under the threshold: without offers at that price it costs nothing.
A watch that stays matched costs its rows at every poll, so it is polled less often, unless it is about to rent: such
polls may use a quarter of the rows that are left, so that no day ends without rows. The *sweep* reads everything for
the history and uses the rest. Pure: rows and times in, plan out.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

HUNT_ROWS = 10  # only the cheapest offers matter to a watch
HUNT_SHARE = 0.5  # share of the remaining rows that is reserved for hunts until the reset
SWEEP_EVERY_MIN_S = 300.0  # minimum for "auto"
_SWEEP_GUESS_ROWS = 500  # until a sweep was counted
_HURRY_SHARE = 0.25  # of an even day's rows until the reset; below the rest of it, every query is paced
DAY_S = 86_400.0


class RowDemand(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that a provider's lanes would use."""

    rows_per_day: int  # 0: no quota
    poll_every_s: float
    matched_rows: int = 0  # rows of one poll of every query that currently returns rows
    sweep_rows: int | None = None  # rows of the last complete sweep; None: unknown
    sweep_every_s: float | None = None  # the owner's interval; None: "auto"


class RowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How a provider's rows are used from now to the reset."""

    rows_per_day: int  # 0: no quota
    rows_used: int
    rows_left: int | None  # None: no quota
    resets_at: datetime
    sweep_every_s: float | None  # None: no sweep before the reset, for lack of rows
    matched_every_s: float  # poll interval of a watch that stays matched
    hunt_rows_per_s: float | None = None  # available to hunts until the reset; None: no quota
    may_hurry: bool = True  # enough rows are left for polls at full pace of watches that are about to rent

    @property
    def spent(self) -> bool:
        """Whether no rows are left."""
        return self.rows_left is not None and self.rows_left <= 0


def plan_rows(demand: RowDemand, rows_used: int, now: datetime) -> RowPlan:
    """Divide the rest of the day's rows."""
    resets_at = next_reset(now)
    if not demand.rows_per_day:
        return RowPlan(
            rows_per_day=0,
            rows_used=rows_used,
            rows_left=None,
            resets_at=resets_at,
            # list prices that are polled a few times a day need no sweep every five minutes
            sweep_every_s=demand.sweep_every_s or max(SWEEP_EVERY_MIN_S, demand.poll_every_s),
            matched_every_s=demand.poll_every_s,
        )
    left = max(0, demand.rows_per_day - rows_used)
    rest_s = (resets_at - now).total_seconds()
    return RowPlan(
        rows_per_day=demand.rows_per_day,
        rows_used=rows_used,
        rows_left=left,
        resets_at=resets_at,
        sweep_every_s=_sweep_every_s(left, rest_s, demand),
        matched_every_s=_matched_every_s(left, rest_s, demand),
        hunt_rows_per_s=left * HUNT_SHARE / rest_s,
        may_hurry=_may_hurry(left, rest_s, demand),
    )


def _may_hurry(left: int, rest_s: float, demand: RowDemand) -> bool:
    """Whether enough is left after the next round to poll on until the reset."""
    after = left - max(demand.matched_rows, HUNT_ROWS)
    return after > 0 and after >= demand.rows_per_day * rest_s / DAY_S * (1 - _HURRY_SHARE)


def _matched_every_s(left: int, rest_s: float, demand: RowDemand) -> float:
    polls = left * HUNT_SHARE / demand.matched_rows if demand.matched_rows else float("inf")
    return max(demand.poll_every_s, rest_s / polls if polls >= 1 else DAY_S)


def _sweep_every_s(left: int, rest_s: float, demand: RowDemand) -> float | None:
    cost = max(1, demand.sweep_rows if demand.sweep_rows is not None else _SWEEP_GUESS_ROWS)
    sweeps = int(left * (1 - HUNT_SHARE) // cost)
    if sweeps < 1:  # one complete sweep may still fit if the hunts leave enough
        return rest_s if left >= 2 * cost else None
    return max(rest_s / sweeps, demand.sweep_every_s or SWEEP_EVERY_MIN_S)


def matched_pace_s(rows_per_day: int, queries: int) -> float:
    """Return how often matching queries can be polled with a whole day's rows, at a full page each; 0: no quota."""
    return queries * HUNT_ROWS * DAY_S / (rows_per_day * HUNT_SHARE) if rows_per_day else 0.0


def paced_age(rows_per_day: int, queries: int) -> timedelta:
    """Return how old an answer may become while so many queries match: until twice their pace."""
    return timedelta(seconds=2 * matched_pace_s(rows_per_day, queries))


def next_reset(now: datetime) -> datetime:
    """Return the next 00:00 UTC (source: vastai.md §0, reset of the search quota)."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + timedelta(days=1)
