"""May this launch be begun? Limits, budget and the rest after failures, on values: the ledger asks in its transaction.

The budget is admitted on an upper bound: the price with commission, for the whole `max_runtime` (24 h where none is
set). What is unknown, held or being stopped still counts as running.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from gpuwatch.launches.launch import (
    End,
    Launch,
    LaunchState,
    Refusal,
    RefusalReason,
    cost_microusd,
)
from gpuwatch.market.pricing import microusd, usd
from gpuwatch.watches.watch import Budget, LaunchSpec

DAY = timedelta(days=1)
AVOID_FOR = DAY  # a machine on which a launch failed stays the cheapest: it would be rented again and again
_UNTIL_MENDED = timedelta(hours=1)  # no credit, a refused key, a wrong order: only a person can help
_FIRST_REST_S = 30.0
_LONGEST_REST_S = 3600.0
_NEEDS_A_PERSON = (End.NO_CREDIT, End.KEY)
_MACHINE_FAULTS = (End.NOT_READY, End.BROKEN, End.WRONG_TYPE, End.DEARER)


def free_slot(spec: LaunchSpec, watch: str, mine: Sequence[Launch], total: int) -> int | Refusal:
    """The lowest free slot of a watch, or why there is none.

    Args:
        mine: the launches of this watch that are alive.
        total: how many it ever rented, those included.
    """
    taken = {launch.slot for launch in mine}
    free = [slot for slot in range(spec.max_active) if slot not in taken]
    if not free or len(mine) >= spec.max_active:
        return Refusal(
            RefusalReason.MAX_ACTIVE, f"watch {watch!r} has {len(mine)} alive (max_active = {spec.max_active})"
        )
    if spec.max_total and total >= spec.max_total:
        return Refusal(RefusalReason.MAX_TOTAL, f"watch {watch!r} has rented {total} (max_total = {spec.max_total})")
    return free[0]


def admit(
    new: Launch, alive: Sequence[Launch], ended: Sequence[Launch], budget: Budget, now: datetime
) -> Refusal | None:
    """Does the budget allow it? None: yes.

    Args:
        alive: every other launch that is not over, whatever its watch.
        ended: those that ended since the first of the month (UTC); older ones are ignored.
    """
    if budget.max_instances is not None and len(alive) >= budget.max_instances:
        return Refusal(
            RefusalReason.MAX_INSTANCES, f"{len(alive)} instances are alive (max_instances = {budget.max_instances})"
        )
    per_hour = new.price_microusd_hour + sum(launch.price_microusd_hour for launch in alive)
    if budget.max_usd_hour is not None and per_hour > microusd(budget.max_usd_hour):
        return _too_dear(RefusalReason.MAX_USD_HOUR, per_hour, budget.max_usd_hour, "an hour")
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    everything = [*alive, *ended]
    per_day = _spent(everything, midnight, now) + sum(_still(launch, now, DAY) for launch in (new, *alive))
    if budget.max_usd_day is not None and per_day > microusd(budget.max_usd_day):
        return _too_dear(RefusalReason.MAX_USD_DAY, per_day, budget.max_usd_day, "today")
    first = midnight.replace(day=1)
    per_month = _spent(everything, first, now) + sum(_still(launch, now, 31 * DAY) for launch in (new, *alive))
    if budget.max_usd_month is not None and per_month > microusd(budget.max_usd_month):
        return _too_dear(RefusalReason.MAX_USD_MONTH, per_month, budget.max_usd_month, "this month")
    return None


def cooling(failed: Sequence[Launch], watch: str, provider: str, now: datetime) -> Refusal | None:
    """Must a watch rest after failures? None: no.

    One failure is followed by the next offer at once; from the second within an hour on, the rest doubles from 30 s.

    Args:
        failed: launches of any watch that failed within the last hour.
    """
    recent = [launch for launch in failed if launch.ended_at is not None and launch.ended_at > now - _UNTIL_MENDED]
    for launch in recent:
        theirs = launch.provider == provider and launch.ended_because(*_NEEDS_A_PERSON)
        ours = launch.watch == watch and launch.ended_because(End.BAD_ORDER)
        if theirs or ours:
            return Refusal(
                RefusalReason.COOLING, f"launch {launch.launch_id} failed: {launch.end_reason}; tried hourly"
            )
    mine = [launch.ended_at for launch in recent if launch.watch == watch and launch.ended_at is not None]
    if len(mine) < 2:
        return None
    rest_s = min(_FIRST_REST_S * 2 ** (len(mine) - 2), _LONGEST_REST_S)
    again_at = max(mine) + timedelta(seconds=rest_s)
    if now >= again_at:
        return None
    return Refusal(
        RefusalReason.COOLING,
        f"{len(mine)} launches failed within an hour; the next is tried at {again_at:%H:%M:%S} UTC",
    )


def bad_machines(failed: Sequence[Launch], now: datetime) -> frozenset[tuple[str, str]]:
    """(provider, machine) on which a launch failed within a day, by the machine's fault."""
    return frozenset(
        (launch.provider, launch.machine_id)
        for launch in failed
        if launch.machine_id is not None
        and launch.ended_at is not None
        and launch.ended_at > now - AVOID_FOR
        and launch.ended_because(*_MACHINE_FAULTS)
    )


def _spent(launches: Sequence[Launch], since: datetime, now: datetime) -> int:
    return sum(cost_microusd(launch, now, since) for launch in launches)


def _still(launch: Launch, now: datetime, window: timedelta) -> int:
    """What it may still cost within a window of that length, at most."""
    left = DAY if launch.max_runtime_s is None else timedelta(seconds=launch.max_runtime_s)
    if launch.running_at is not None and launch.state in {LaunchState.RUNNING, LaunchState.STOPPING}:
        left = max(timedelta(0), left - (now - launch.running_at))
    hours = min(left, window) / timedelta(hours=1)
    return round(launch.price_microusd_hour * hours)


def _too_dear(reason: RefusalReason, bound: int, limit: object, span: str) -> Refusal:
    return Refusal(reason, f"it could come to ${usd(bound):.2f} {span}, what runs included ({reason.value} = {limit})")
