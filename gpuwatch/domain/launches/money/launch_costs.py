"""The cost of launches by our own calculation, in whole micro-dollars. Pure.

- What is billed: each hourly rate for as long as it applied, with the provider's minimum and billing steps.
- Its parts (GPU, disk, commission, traffic), by UTC day. Money is rounded once at each cut in time, always computed
  from the launch's start. So the days of a launch add up to its cost, and its components to its price, to the
  micro-dollar; a single component of a day may be off by one.
- What is billed now, and what is still to come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from fractions import Fraction
from math import isfinite
from typing import Final

import msgspec

from gpuwatch.domain.launches.launch import FINAL_STATES, LOST_STATES, Launch, LaunchState, Promise
from gpuwatch.domain.market.money import MICRO

END_PROVEN_S: Final = 120.0  # from the request of its end until that is proven; until then it counts as billed
MS_AN_HOUR = 3_600_000

_MS = timedelta(milliseconds=1)
_DAY = timedelta(days=1)


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


def current_microusd_hour(launch: Launch) -> int:
    """Return what an hour costs now, commission included: while only its disk is kept, that of the disk."""
    return launch.spans[-1].price_microusd_hour if launch.is_kept and launch.spans else launch.price_microusd_hour


def is_billed_since(launch: Launch, since: datetime, now: datetime) -> bool:
    """Return whether it may have cost anything since then: a tenth of the work of computing what."""
    spans = billed_spans(launch, now)
    return bool(spans) and (spans[-1][1] > since or (launch.running_at is not None and launch.running_at >= since))


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


class LaunchCost(msgspec.Struct, frozen=True, kw_only=True):
    """The predicted cost of some launches over some time, in whole micro-dollars."""

    gpu: int = 0  # listed
    disk: int = 0  # listed
    commission: int = 0  # the price minus the listed price
    traffic: int = 0  # an estimate: the GB stated in the watch, at the offer's prices
    billed_ms: int = 0  # with its GPUs or with its disk only

    @property
    def listed(self) -> int:
        """The cost at the provider's list price, without traffic."""
        return self.gpu + self.disk

    @property
    def effective(self) -> int:
        """The cost with the commission: shown as cost by `launches`, and counted in budgets."""
        return self.listed + self.commission

    @property
    def total(self) -> int:
        """All components."""
        return self.effective + self.traffic

    @property
    def billed_hours(self) -> float:
        """The billed time."""
        return self.billed_ms / MS_AN_HOUR

    def __add__(self, other: LaunchCost) -> LaunchCost:
        return LaunchCost(
            gpu=self.gpu + other.gpu,
            disk=self.disk + other.disk,
            commission=self.commission + other.commission,
            traffic=self.traffic + other.traffic,
            billed_ms=self.billed_ms + other.billed_ms,
        )


class PriceSegment(msgspec.Struct, frozen=True):
    """A period with one price in micro-dollars an hour; `gpu` is the GPUs' part of the listed price."""

    start: datetime
    end: datetime
    listed: int
    price: int
    gpu: int


def price_segments(launch: Launch, now: datetime) -> list[PriceSegment]:
    """Return everything billed for a launch until `now`, oldest first."""
    listed = billed_spans(launch, now, listed=True)
    prices = billed_spans(launch, now)
    return [
        PriceSegment(start, end, rate, price, max(0, rate - launch.disk_microusd_hour))
        for (start, end, rate), (_, _, price) in zip(listed, prices, strict=True)
    ]


def predicted_cost(
    launch: Launch, now: datetime, since: datetime | None = None, until: datetime | None = None
) -> LaunchCost:
    """Return the cost of a launch from `since` until `until` (exclusive; None: all of it).

    Traffic counts at the moment when the launch starts running.
    """
    parts = price_segments(launch, now)
    before, after = _cumulative(parts, since, nothing=True), _cumulative(parts, until)
    return LaunchCost(
        gpu=after.gpu - before.gpu,
        disk=after.disk - before.disk,
        commission=after.commission - before.commission,
        traffic=_traffic(launch) if parts and _within(launch.running_at, since, until) else 0,
        billed_ms=after.billed_ms - before.billed_ms,
    )


def billed_days(launch: Launch, now: datetime) -> Iterator[date]:
    """Yield the UTC days on which the launch was billed, oldest first, including the day when it started running."""
    parts = price_segments(launch, now)
    moments = [moment for part in parts if part.end > part.start for moment in (part.start, part.end - _MS)]
    if parts and launch.running_at is not None:
        moments.append(launch.running_at)  # its traffic counts even if it ended at the same moment
    if moments:
        day, last = min(moments).astimezone(UTC).date(), max(moments).astimezone(UTC).date()
        while day <= last:
            yield day
            day += _DAY


def midnight(day: date) -> datetime:
    """Return the start of a UTC day."""
    return datetime.combine(day, time(), UTC)


def month_of(day: date) -> tuple[datetime, datetime]:
    """Return the start of the day's month and of the next one, in UTC."""
    first = day.replace(day=1)
    return midnight(first), midnight((first + 31 * _DAY).replace(day=1))


def total_cost(costs: Iterable[LaunchCost]) -> LaunchCost:
    """Return the total of these costs."""
    return sum(costs, LaunchCost())


# --- what is billed now -----------------------------------------------------------------------------------------------


def further_microusd_hour(launch: Launch) -> int:
    """Return the highest price of an hour by which it is extended: while only its disk is kept, that of the disk."""
    return launch.with_commission(launch.disk_microusd_hour) if launch.is_kept else launch.bound_microusd_hour


class BurnRate(msgspec.Struct, frozen=True, kw_only=True):
    """The current rate in micro-dollars per hour, and the number of billed launches.

    `held` of them may not exist, of `kept` of them only the disk is left.
    """

    listed: int = 0
    effective: int = 0
    launches: int = 0
    held: int = 0
    kept: int = 0


def burn_rate(launches: Sequence[Launch], now: datetime) -> BurnRate:
    """Return the current rate. A launch whose answer was lost counts with its full price, as it does in budgets."""
    last = [
        (launch, parts[-1])
        for launch in launches
        if launch.state not in FINAL_STATES and (parts := price_segments(launch, now))
    ]
    billed = [(launch, part) for launch, part in last if part.price]
    return BurnRate(
        listed=sum(part.listed for _launch, part in billed),
        effective=sum(part.price for _launch, part in billed),
        launches=len(billed),
        held=sum(launch.state is LaunchState.HELD for launch, _part in billed),
        kept=sum(launch.is_kept for launch, _part in billed),
    )


def remaining_cost(launch: Launch, now: datetime, until: datetime) -> tuple[int, int]:
    """Return its further (listed, effective) cost in micro-dollars from `now` to `until`, or to its own end if earlier.

    A launch that is not running yet counts with its full price from now on; one that is being stopped ends now.
    """
    if launch.state in FINAL_STATES or launch.state is LaunchState.STOPPING:
        return 0, 0
    parts = price_segments(launch, now)
    if not parts:
        return 0, 0
    listed, price = parts[-1].listed, parts[-1].price
    if launch.state is LaunchState.STARTING and not launch.spans:
        listed, price = launch.listed_microusd_hour, launch.price_microusd_hour
    ends_at = launch.deadline
    if launch.running_at is not None and launch.max_runtime_s is not None:
        ends_at = launch.running_at + timedelta(seconds=launch.max_runtime_s)
    from_ = max(now, parts[-1].end)  # whole billing steps are billed in advance
    left_ms = max(0, ((until if ends_at is None else min(until, ends_at)) - from_) // _MS)
    return _whole_microusd(listed * left_ms), _whole_microusd(price * left_ms)


def _cumulative(parts: Sequence[PriceSegment], until: datetime | None, nothing: bool = False) -> LaunchCost:
    """The cost from the start. `until` None means to the end, or with `nothing` that no time has passed."""
    if until is None and nothing:
        return LaunchCost()
    ends = [part.end if until is None else min(part.end, until) for part in parts]
    timed = [(part, max(0, (end - part.start) // _MS)) for part, end in zip(parts, ends, strict=True)]
    listed = _whole_microusd(sum(part.listed * ms for part, ms in timed))
    gpu = _whole_microusd(sum(part.gpu * ms for part, ms in timed))
    price = _whole_microusd(sum(part.price * ms for part, ms in timed))
    billed_ms = sum(ms for part, ms in timed if part.price)
    return LaunchCost(gpu=gpu, disk=listed - gpu, commission=price - listed, billed_ms=billed_ms)


def _whole_microusd(microusd_ms_an_hour: int) -> int:
    """Whole micro-dollars, rounded half-even, exactly."""
    return round(Fraction(microusd_ms_an_hour, MS_AN_HOUR))


def _traffic(launch: Launch) -> int:
    promised = launch.promised
    usd = promised.download_gb * (promised.download_usd_gb or 0.0) + promised.upload_gb * (
        promised.upload_usd_gb or 0.0
    )
    return round(usd * MICRO) if isfinite(usd) and usd > 0 else 0


def _within(moment: datetime | None, since: datetime | None, until: datetime | None) -> bool:
    return moment is not None and (since is None or since <= moment) and (until is None or moment < until)
