"""The texts of the guard's notices about launches. Pure."""

from __future__ import annotations

from datetime import datetime, tzinfo

from gpuwatch.domain.launches.instance import Instance
from gpuwatch.domain.launches.instances.runtime_rules import ends_by_itself_at
from gpuwatch.domain.launches.launch import InstanceCondition, Launch
from gpuwatch.domain.launches.money.bids import Relocation
from gpuwatch.domain.market.money import dollars, price_text
from gpuwatch.domain.market.pricing import MAX_USD_HOUR, MICRO, usd
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.engine.launches.guarding.guard_alerts import GuardNotice

_SAVING_STEP = 0.05  # smaller changes of the saving are not reported


def runtime(launch: Launch, zone: tzinfo) -> GuardNotice:
    """Report that `max_runtime` is nearly over."""
    end = ends_by_itself_at(launch)
    assert end is not None
    return GuardNotice(
        key=f"runtime:{launch.max_runtime_s or 0:.0f}",  # a new key after an extension
        headline=f"max_runtime ends at {end.astimezone(zone):%H:%M %Z}",
        why=f"Most of its max_runtime has passed; it ends at {format_moment(end, zone)}.",
        can_do=("Save its results", f"End it now: gpuwatch stop {launch.launch_id}"),
    )


def closing(at: datetime, zone: tzinfo) -> GuardNotice:
    """Report that its windows close soon."""
    return GuardNotice(
        key=f"closing:{at:%Y%m%dT%H%M}",
        headline="its active windows close soon",
        why=f"They close at {format_moment(at, zone)}, and stop_outside = true ends it then.",
        can_do=("Save its results", "Keep it running: stop_outside = false"),
    )


def contract(launch: Launch, ends_at: datetime, near: str, zone: tzinfo) -> GuardNotice:
    """Report that the host ends the contract before `max_runtime` is over."""
    wanted = ends_by_itself_at(launch)
    until = "" if wanted is None else f"; its max_runtime extends to {format_moment(wanted, zone)}"
    soon = "in less than an hour" if near == "soon" else f"at {format_moment(ends_at, zone)}"
    return GuardNotice(
        key=f"contract:{near}:{ends_at:%Y%m%dT%H}",
        headline=f"its host ends the contract {soon}",
        why=f"The contract ends at {format_moment(ends_at, zone)}{until}. The data on its disk is lost then.",
        can_do=("Save its results", f"End it now: gpuwatch stop {launch.launch_id}"),
    )


def maintenance(at: datetime, zone: tzinfo) -> GuardNotice:
    """Report maintenance that the host announced."""
    return GuardNotice(
        key=f"maintenance:{at:%Y%m%dT%H}",
        headline=f"its host announces maintenance at {format_moment(at, zone)}",
        why="The machine may be down from then on.",
        can_do=("Save its results before then",),
    )


def cheaper_elsewhere(launch: Launch, found: Relocation) -> GuardNotice:
    """Report that moving would pay. The same offer with about the same saving is reported once."""
    offer, hours = found.match.offer, found.left.total_seconds() / 3600
    stay, move, saving = (
        usd(one) for one in (found.cost_here_microusd, found.cost_there_microusd, found.saving_microusd)
    )
    return GuardNotice(
        key=f"relocate:{offer.provider}:{offer.machine_id or offer.offer_id}:{int(found.share / _SAVING_STEP)}",
        headline=f"moving it to {offer.provider} would save {dollars(saving)} ({found.share:.0%})",
        why=f"The remaining {hours:,.1f} h cost {dollars(stay)} here and {dollars(move)} there, including "
        f"{found.setup.total_seconds() / 60:,.0f} min of set-up and minimum billing.",
        did="Nothing: gpuwatch does not move running launches, and does not rent a second one in the meantime.",
        can_do=(
            f"To move, end it, and its watch rents again: gpuwatch stop {launch.launch_id}",
            "Save its results first: the data on its disk is lost",
        ),
        facts=(
            ("Offer", f"{offer.offer_id} at {offer.provider}"),
            ("Price there", f"${price_text(usd(found.match.price.price_microusd_hour))} an hour"),
            ("Assumed", "; ".join(found.assumed)),
        ),
    )


def condition_changed(launch: Launch, instance: Instance, nth: int, zone: tzinfo) -> GuardNotice:
    """Report that it still does not run while its disk is billed."""
    condition, since = launch.condition, launch.condition_since
    assert condition is not None
    assert since is not None
    headline, why, help_ = _CONDITION_TEXTS[condition]
    return GuardNotice(
        key=f"{condition.value}:{since:%Y%m%dT%H%M%S}:{nth}",
        headline=headline,
        why=f"{why} Since {format_moment(since, zone)}.",
        can_do=(*help_, f"End it and stop its billing: gpuwatch stop {launch.launch_id}"),
        facts=(("Its disk", _disk(launch, instance)), *_bids(condition, instance)),
        needs_owner=condition is not InstanceCondition.OUTBID,
    )


def unmeasured(why: str) -> GuardNotice:
    """Report that it answers, but the login failed."""
    return GuardNotice(
        key="unmeasured",
        headline="its GPUs and its network could not be measured",
        why=f"Its SSH port answers, but the login failed: {why}.",
        did="gpuwatch keeps it: a failed login does not prove a faulty machine.",
        can_do=("Check launch.ssh_key, and that the provider has its public key",),
    )


_CONDITION_TEXTS = {
    InstanceCondition.STOPPED: (
        "still stopped at the provider, and billed",
        "A stopped instance is billed for its disk until it is destroyed.",
        ("Start it at the provider",),
    ),
    InstanceCondition.OUTBID: (
        "still outbid",
        "It waits until its bid wins again; its disk is billed in the meantime.",
        ("Allow a higher bid: launch.bid.max", "Rent elsewhere next time: launch.relaunch = true"),
    ),
    InstanceCondition.OFFLINE: (
        "its host is still offline",
        "Its GPUs are not billed in the meantime. Hosts often come back, but there is no guarantee.",
        ("Wait if you need the data on its disk", "Rent elsewhere next time: launch.relaunch = true"),
    ),
}


def _disk(launch: Launch, instance: Instance) -> str:
    """Return its cost per day, with commission."""
    usd_hour = instance.stopped_usd_hour
    listed = launch.disk_microusd_hour
    if usd_hour is not None and 0 <= usd_hour <= MAX_USD_HOUR:
        listed = round(usd_hour * MICRO)
    if not listed:
        return "its price is unknown"
    return f"{dollars(usd(launch.with_commission(listed) * 24))} a day"


def _bids(condition: InstanceCondition, instance: Instance) -> tuple[tuple[str, str], ...]:
    if condition is not InstanceCondition.OUTBID or instance.min_bid_usd_hour is None:
        return ()
    bid = "unknown" if instance.bid_usd_hour is None else f"${price_text(instance.bid_usd_hour)}"
    return (("Bid", f"{bid} an hour, listed; ${price_text(instance.min_bid_usd_hour)} would run"),)
