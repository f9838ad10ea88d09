"""Listed instances that no active launch claims: unknown, adopted by the owner, or back after their end. Pure.

- An unknown instance has gpuwatch's label and belongs to no known launch. It blocks renting until it is resolved.
- An order whose answer was lost may have created an instance; its label may be missing, because it can be edited in the
  provider's console, or be set slightly late.
- The owner may adopt an instance: it becomes a launch.
- A launch that is over but whose instance is listed again: it runs, it is billed, and it is ours. Observed at
  marketplaces: a destroy is acknowledged or answered with 404, lists no longer show the instance, and later they show
  it again; a list omits an instance for a long time; an order takes effect after it was given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from gpuwatch.domain.alerts import launch_texts as texts
from gpuwatch.domain.launches.instance import Instance, InstanceState, label_of
from gpuwatch.domain.launches.launch import (
    WATCH_ENDED,
    Launch,
    LaunchRefusal,
    LaunchState,
    PriceSpan,
    Promise,
    RefusalReason,
)
from gpuwatch.domain.launches.life.launch_events import (
    ClockReading,
    Destroy,
    InstanceReturned,
    Notification,
    Transition,
    TransitionResult,
)
from gpuwatch.domain.launches.life.launch_record import terms_of
from gpuwatch.domain.market.money import MICRO, Commission, threshold_microusd
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Watch

ADOPTED_OFFER = "adopted:"  # the offer is unknown; the instance id follows and keeps it unique

_CLOCKS_DIFFER = timedelta(minutes=2)  # between the provider's clock and ours

_SAME_PRICE = 0.02  # relative difference from rounding or another disk size


class UnknownInstance(msgspec.Struct, frozen=True, kw_only=True):
    """The stored record of such an instance, so that the block survives incomplete lists, restarts and other keys.

    Attributes:
        account_id: the account of the key that listed it; only that account's lists and answers can prove that it is
            gone.
        label: its label when it was first listed.
    """

    provider: str
    instance_id: str
    account_id: str | None
    label: str
    first_listed_at: datetime


def unknown_refusal(provider: str, instance_ids: Sequence[str]) -> LaunchRefusal:
    """Return why nothing is rented at a provider that listed these instances."""
    return LaunchRefusal(
        RefusalReason.STRANGERS,  # word-check: allow - a stored value
        f"{provider} lists instances with a gpuwatch label that are not in this database "
        f"({', '.join(instance_ids[:3])}); run gpuwatch launches adopt INSTANCE,"
        " or gpuwatch launches adopt INSTANCE --not-mine",
    )


def why_unknown(launch: Launch | None, instance: Instance, provider: str) -> str | None:
    """Return why a labelled instance is no active launch's, as a sentence; None: it may be this launch's."""
    if launch is None:
        return (
            "No launch in this database has that label: another gpuwatch created it, or the database was lost or "
            "replaced by an older copy."
        )
    if launch.provider != provider:
        return f"{provider} refused the order of launch {launch.launch_id}, which continued at {launch.provider}."
    if launch.is_over:
        return f"Launch {launch.launch_id} has ended: {launch.end_reason}."
    if launch.instance_id is not None and launch.instance_id != instance.instance_id:
        return f"Launch {launch.launch_id} already has instance {launch.instance_id}; this is a second one."
    return None


def may_be_its_instance(launch: Launch, instance: Instance, first_listed_at: datetime) -> bool:
    """Whether the order of this launch may have created the instance.

    Args:
        instance: an instance that belongs to no launch.
        first_listed_at: when a list first showed it; after a restart, this is later than its creation.
    """
    ordered_at = launch.requested_at or launch.intended_at
    if instance.started_at is not None:
        is_older = instance.started_at < ordered_at - _CLOCKS_DIFFER
    else:
        is_older = first_listed_at < ordered_at
    if is_older:
        return False
    on_its_machine = launch.machine_id is not None and instance.machine_id == launch.machine_id
    return on_its_machine or _is_alike(launch, instance)


def _is_alike(launch: Launch, instance: Instance) -> bool:
    if (instance.gpu, instance.gpu_count) != (launch.gpu, launch.gpu_count):
        return False
    return instance.listed_usd_hour is None or _is_its_price(launch, instance.listed_usd_hour)


def _is_its_price(launch: Launch, listed_usd_hour: float) -> bool:
    return abs(listed_usd_hour * MICRO - launch.listed_microusd_hour) <= launch.listed_microusd_hour * _SAME_PRICE


def adopted_launch(  # noqa: PLR0913 - independent facts
    instance: Instance,
    *,
    launch_id: str,
    watch: Watch,
    alive: Sequence[Launch],
    provider: str,
    commission: Commission,
    now: datetime,
) -> Launch:
    """Return the launch of an instance as if it had been rented now: its `max_runtime` counts from now.

    Args:
        alive: the launches of the watch that are alive. The new one takes their lowest free slot, even beyond
            `max_active`, because it exists already.

    Raises:
        ValueError: the provider does not give a price, so no budget could count it.
    """
    if instance.listed_usd_hour is None:
        raise ValueError("the provider does not report its price per hour")
    spec = watch.launch or LaunchSpec()
    rate = commission.on_top_rate(None)
    taken = {launch.slot for launch in alive}
    found = Launch(
        launch_id=launch_id,
        watch=watch.name,
        slot=next(slot for slot in range(len(taken) + 1) if slot not in taken),
        provider=provider,
        offer_id=ADOPTED_OFFER + instance.instance_id[:50],
        machine_id=instance.machine_id,
        gpu=instance.gpu or instance.gpu_wire or "unknown",
        state=LaunchState.STARTING,
        dry_run=False,
        label=instance.label or label_of(launch_id),
        max_runtime_s=spec.max_runtime_s,
        ready_within_s=spec.ready_within_s,
        instance_id=instance.instance_id,
        intended_at=now,
        requested_at=now,
        promised=Promise(commission_rate=float(rate)),
        terms=terms_of(watch),
        **_priced(instance, instance.listed_usd_hour, spec, rate),
    )
    if not has_stopped_running(instance):
        return found
    disk = found.disk_microusd_hour
    spans = (PriceSpan(now, disk, round(disk * (1 + rate))),)
    return msgspec.structs.replace(found, state=LaunchState.RUNNING, running_at=now, spans=spans)


def has_stopped_running(instance: Instance) -> bool:
    """Return whether it ran before but does not run now. Waiting for it to start would end with its destruction."""
    return instance.state in {InstanceState.STOPPED, InstanceState.OFFLINE, InstanceState.UNKNOWN}


def _priced(instance: Instance, listed_usd_hour: float, spec: LaunchSpec, rate: Decimal) -> dict[str, Any]:
    """The type, size and prices of the instance; a bid may be raised to its maximum."""
    listed = round(listed_usd_hour * MICRO)
    price = round(listed * (1 + rate))
    count, spot = 1 if instance.gpu_count is None else instance.gpu_count, bool(instance.spot)
    most = threshold_microusd(spec.bid.max_usd_gpu_hour, count) if spot and spec.bid else 0
    bid = instance.bid_usd_hour if spot else None
    return {
        "gpu_count": count,
        "spot": spot,
        "listed_microusd_hour": listed,
        "price_microusd_hour": price,
        "disk_microusd_hour": min(round((instance.stopped_usd_hour or 0) * MICRO), listed),
        "most_microusd_hour": max(price, most),
        "bid_microusd_hour": None if bid is None else round(bid * MICRO),
    }


def may_reopen(launch: Launch, instance: Instance, now: datetime, within: timedelta = WATCH_ENDED) -> bool:
    """Whether the instance belongs to the launch named in its label, and the launch ended only a short time ago."""
    if not launch.is_over or launch.dry_run or launch.instance_id not in {None, instance.instance_id}:
        return False
    return launch.ended_at is not None and now - launch.ended_at <= within


def reopened(launch: Launch, event: InstanceReturned, clock: ClockReading) -> TransitionResult:
    """Return to its end if that was requested; otherwise resume it. From now on it counts in budgets and limits."""
    was = {"end": str(launch.end_reason)}
    changes: dict[str, Any] = {"ended_at": None, "instance_id": event.instance_id}
    if event.end_wanted:
        notify = Notification(texts.RETURNED_TO_END, was)
        step = Transition(
            to_state=LaunchState.STOPPING, cause="listed again after its end", changes=changes, notify=notify
        )
        return TransitionResult(step, (Destroy(event.instance_id),))
    changes |= {"end_reason": None, "condition": None, "condition_since": None}
    notify = Notification(texts.RETURNED, was)
    if launch.running_at is not None:
        return TransitionResult(
            Transition(to_state=LaunchState.RUNNING, cause="listed again", changes=changes, notify=notify)
        )
    changes["requested_at"] = clock.now  # `ready_within` counts from now; its deadline stays
    return TransitionResult(
        Transition(to_state=LaunchState.STARTING, cause="listed after all", changes=changes, notify=notify)
    )
