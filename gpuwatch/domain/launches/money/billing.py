"""The cost of a launch: each hourly rate for as long as it applied, with the provider's minimum and billing steps."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from gpuwatch.domain.launches.launch import LOST_STATES, Launch, LaunchState, Promise

END_PROVEN_S: Final = 120.0  # from the request of its end until that is proven; until then it counts as billed
MS_AN_HOUR = 3_600_000


def cost_microusd(launch: Launch, now: datetime, since: datetime | None = None, listed: bool = False) -> int:
    """Return the cost of a launch so far: its price while it ran, and its disk from the request until it ran.

    If the provider's answer was lost, this is an upper bound: the full price counts from the request on.

    Args:
        since: count only from this time (a budget's day or month); None: from the start.
        listed: only the provider's share, without the commission.
    """
    spent = sum(rate * _overlap_ms(start, end, since) for start, end, rate in billed_spans(launch, now, listed))
    return round(spent / MS_AN_HOUR)


def billed_spans(launch: Launch, now: datetime, listed: bool = False) -> list[tuple[datetime, datetime, int]]:
    """Return (from, to, micro-dollars an hour) of everything billed until `now`, in order: no gaps, no overlaps.

    Minimum billing and whole billing steps count from the start: the last span may end after `now`.
    """
    if launch.dry_run or launch.requested_at is None:
        return []
    if launch.state is LaunchState.FAILED and launch.instance_id is None:
        return []
    end = launch.ended_at or now
    full = _full_rates(launch, listed)
    disk = launch.disk_microusd_hour
    starts = [(launch.requested_at, disk if listed else launch.with_commission(disk)), *full]
    if full:
        end = max(end, full[0][0] + billed_time(launch.promised, end - full[0][0]))
    ends = [start for start, _ in starts[1:]] + [end]
    return [(start, max(start, stop), rate) for (start, rate), stop in zip(starts, ends, strict=True)]


def billed_time(promised: Promise, lived: timedelta) -> timedelta:
    """Return the billed time of an instance that ran this long: at least the minimum, in whole steps."""
    lived = max(lived, timedelta(seconds=promised.min_billing_s))
    step = timedelta(seconds=promised.billing_step_s)
    return lived if not step else -(-lived // step) * step


def proof_time(launch: Launch) -> timedelta:
    """Return how long a launch may still be billed after its end was requested; a command proves nothing."""
    return timedelta(0) if launch.is_by_command or launch.dry_run else timedelta(seconds=END_PROVEN_S)


def _full_rates(launch: Launch, listed: bool) -> list[tuple[datetime, int]]:
    if launch.spans:
        return [
            (span.since, span.listed_microusd_hour if listed else span.price_microusd_hour) for span in launch.spans
        ]
    full_from = launch.requested_at if launch.state in LOST_STATES else launch.running_at
    rate = launch.listed_microusd_hour if listed else launch.price_microusd_hour
    return [] if full_from is None else [(full_from, rate)]


def _overlap_ms(start: datetime, end: datetime, since: datetime | None) -> int:
    return max(0, (end - max(start, since or start)) // timedelta(milliseconds=1))
