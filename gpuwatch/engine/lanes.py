"""The day's rows at a provider, planned and not hit: two lanes share what is left of them.

The *hunt* asks per watch for a handful of rows at or under the threshold: while nothing is for sale at that price it costs
nothing. A watch that stays matched would cost its handful at every poll, so it is asked less often. The *sweep* reads
everything for the history and takes what the hunt leaves. Pure: rows and times in, plan out.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

HUNT_ROWS = 10  # a handful: the cheapest are what a watch is about
HUNT_SHARE = 0.5  # of the rows left, kept for the hunts until the day is over
SWEEP_EVERY_MIN_S = 300.0  # CONTRACT §2: "auto" is never under 5 minutes
_SWEEP_GUESS_ROWS = 500  # until a sweep was counted


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How a provider's rows are spent from now to the reset."""

    rows_per_day: int  # 0: no quota
    rows_used: int
    rows_left: int | None  # None: no quota
    resets_at: datetime
    sweep_every_s: float | None  # None: no sweep before the reset, the rows do not reach
    matched_every_s: float  # how often a watch that stays matched is asked

    @property
    def spent(self) -> bool:
        """Is nothing left?"""
        return self.rows_left is not None and self.rows_left <= 0


def next_reset(now: datetime) -> datetime:
    """The next 00:00 UTC (source: vastai.md §0, reset of the search quota)."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + timedelta(days=1)


def plan_rows(
    now: datetime,
    *,
    rows_per_day: int,
    rows_used: int,
    poll_every_s: float,
    matched_watches: int,
    sweep_rows: int | None,
    sweep_every_s: float | None,
) -> Plan:
    """Share the rest of the day.

    Args:
        matched_watches: hunts that return rows at every poll as things are.
        sweep_rows: what the last whole sweep cost; None: not known yet.
        sweep_every_s: the owner's own interval; None: "auto".
    """
    resets_at = next_reset(now)
    if not rows_per_day:
        return Plan(
            rows_per_day=0,
            rows_used=rows_used,
            rows_left=None,
            resets_at=resets_at,
            sweep_every_s=sweep_every_s or SWEEP_EVERY_MIN_S,
            matched_every_s=poll_every_s,
        )
    left = max(0, rows_per_day - rows_used)
    rest_s = (resets_at - now).total_seconds()
    return Plan(
        rows_per_day=rows_per_day,
        rows_used=rows_used,
        rows_left=left,
        resets_at=resets_at,
        sweep_every_s=_sweep_every_s(left, rest_s, sweep_rows, sweep_every_s),
        matched_every_s=_matched_every_s(left, rest_s, matched_watches, poll_every_s),
    )


def _matched_every_s(left: int, rest_s: float, matched: int, poll_every_s: float) -> float:
    polls = left * HUNT_SHARE / (HUNT_ROWS * matched) if matched else float("inf")
    return max(poll_every_s, rest_s / polls if polls >= 1 else rest_s)


def _sweep_every_s(left: int, rest_s: float, sweep_rows: int | None, wanted_s: float | None) -> float | None:
    cost = max(1, sweep_rows if sweep_rows is not None else _SWEEP_GUESS_ROWS)
    sweeps = int(left * (1 - HUNT_SHARE) // cost)
    if sweeps < 1:
        # one sweep may still fit whole if the hunts leave it
        return rest_s if left >= 2 * cost else None
    every_s = rest_s / sweeps
    return max(every_s, wanted_s if wanted_s is not None else SWEEP_EVERY_MIN_S)
