"""Limits of one watch: free slots, the cooldown after failures, and replacements of outbid launches. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchRefusal, LaunchState, RefusalReason, place_of
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.watches.watch import LaunchSpec, Watch

DAY = timedelta(days=1)
_UNTIL_FIXED = timedelta(hours=1)  # no credit, a rejected key or an invalid order: only a person can fix it
_FIRST_REST_S = 30.0
_LONGEST_REST_S = 3600.0
_NEEDS_A_PERSON = (EndReason.NO_CREDIT, EndReason.KEY)


def free_offer_slot(alive: Sequence[Launch], offer: Offer, watch: Watch) -> int | None:
    """Return the lowest free number for launches of this offer, or None if another launch has its only machine."""
    place = place_of(watch, offer)
    taken = {launch.offer_slot for launch in alive if (launch.provider, launch.offer_id) == place}
    if taken and not offer.terms.fungible:
        return None
    return next(number for number in range(len(taken) + 1) if number not in taken)


def free_slot(spec: LaunchSpec, watch: str, active: Sequence[Launch], total: int) -> int | LaunchRefusal:
    """Return the lowest free slot of a watch, or the refusal if there is none.

    Args:
        active: the launches of this watch that are alive.
        total: the number of launches it ever rented, including `active`. With `relaunch`, launches that ended because
            they were outbid do not count: each may have one replacement, which does.
    """
    taken = {launch.slot for launch in active}
    free = [slot for slot in range(spec.max_active) if slot not in taken]
    if not free or len(active) >= spec.max_active:
        return LaunchRefusal(
            RefusalReason.MAX_ACTIVE,
            f"active launches of watch {watch!r}: {len(active)} (max_active = {spec.max_active})",
        )
    if spec.max_total and total >= spec.max_total:
        return LaunchRefusal(
            RefusalReason.MAX_TOTAL, f"watch {watch!r} has rented {total} in total (max_total = {spec.max_total})"
        )
    return free[0]


def per_day_refusal(watch: Watch, known: Sequence[Launch], now: datetime) -> LaunchRefusal | None:
    """Return why a watch may not create another instance on this UTC day, or None. Failed launches count.

    Args:
        known: launches of any watch that are alive or ended on this day.
    """
    if watch.max_per_day is None:
        return None
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    made = sum(launch.watch == watch.name and launch.was_created and launch.intended_at >= day for launch in known)
    if made < watch.max_per_day:
        return None
    return LaunchRefusal(
        RefusalReason.MAX_PER_DAY,
        f"launches of watch {watch.name!r} today: {made}, including failed ones (max_per_day = {watch.max_per_day}); "
        "the next day begins at 00:00 UTC",
    )


def cooldown_refusal(failed: Sequence[Launch], watch: str, provider: str, now: datetime) -> LaunchRefusal | None:
    """Return why a watch must wait at a provider after failures there, or None.

    After one failure the next offer is tried at once. From the second failure within an hour on, the wait doubles from
    30 seconds.

    Args:
        failed: launches of any watch that failed within the last hour.
    """
    recent = [launch for launch in failed if launch.ended_at is not None and launch.ended_at > now - _UNTIL_FIXED]
    recent = [launch for launch in recent if launch.provider == provider]
    for launch in recent:
        theirs = launch.ended_because(*_NEEDS_A_PERSON)
        ours = launch.watch == watch and launch.ended_because(EndReason.BAD_ORDER)
        if theirs or ours:
            return LaunchRefusal(
                RefusalReason.COOLING, f"launch {launch.launch_id} failed: {launch.end_reason}; retrying hourly"
            )
    ended = [launch.ended_at for launch in recent if launch.watch == watch and launch.ended_at is not None]
    if len(ended) < 2:
        return None
    rest_s = min(_FIRST_REST_S * 2 ** (len(ended) - 2), _LONGEST_REST_S)
    again_at = max(ended) + timedelta(seconds=rest_s)
    if now >= again_at:
        return None
    return LaunchRefusal(
        RefusalReason.COOLING,
        f"{count_text(len(ended), 'launch', 'launches')} failed within an hour; the next attempt is at "
        f"{again_at:%H:%M:%S} UTC",
    )


def replaced_launch_id(spec: LaunchSpec, watch: str, known: Sequence[Launch], now: datetime) -> str | None:
    """Return the launch that a new one replaces: the newest one outbid within a day that has no replacement yet.

    Args:
        known: launches of any watch that are alive or ended within the last day.
    """
    if not spec.relaunch:
        return None
    replaced = {launch.relaunch_of for launch in known if launch.state is not LaunchState.FAILED}
    outbid = [
        launch
        for launch in known
        if launch.watch == watch
        and launch.state is LaunchState.ENDED
        and launch.ended_because(EndReason.OUTBID)
        and launch.ended_at is not None
        and launch.ended_at > now - DAY
        and launch.launch_id not in replaced
    ]
    return max(outbid, key=lambda launch: launch.ended_at or now).launch_id if outbid else None
