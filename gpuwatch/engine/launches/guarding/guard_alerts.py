"""The guard's alerts, each sent once: the store keeps its key, and a cache saves the query.

`GuardAlerts` sends notices about launches, and alerts about budgets. The functions below it are the texts of the
notices, one for each event. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, tzinfo

import msgspec

from gpuwatch.domain.launches.instance import Instance
from gpuwatch.domain.launches.instances.end_rules import ends_by_itself_at
from gpuwatch.domain.launches.launch import InstanceCondition, Launch
from gpuwatch.domain.launches.money.bids_and_relocation import Relocation
from gpuwatch.domain.launches.money.budgets import BudgetStatus
from gpuwatch.domain.market.money import MAX_USD_HOUR, MICRO, dollars, price_text, usd
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.alerts.outbox_alerts import outbox_alert
from gpuwatch.errors import StoreError
from gpuwatch.ports import Alert, AlertKind, AlertQueue, OutboxAlert, Severity

log = logging.getLogger(__name__)

_KEYS_MAX = 10_000
_KEY_LENGTH = 200
_SAVING_STEP = 0.05  # smaller changes of the saving are not reported

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


class GuardNotice(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to report about a launch.

    `key` identifies it; `needs_owner`: it costs money until the owner decides.
    """

    key: str
    headline: str
    why: str
    did: str = "Nothing yet."
    can_do: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    needs_owner: bool = False


class GuardAlerts:
    """Sends alerts to the owner. If the store fails, the next poll tries again."""

    def __init__(
        self,
        alert_queue: AlertQueue,
        launch_alerts: LaunchAlerts,
        new_id: Callable[[], str],
    ) -> None:
        self._alert_queue = alert_queue
        self._launch_alerts = launch_alerts
        self._new_id = new_id
        self._reported: set[str] = set()

    def report(self, launch: Launch, notice: GuardNotice, now: datetime) -> None:
        """Report a notice about a launch."""
        key = f"{notice.key}:{launch.launch_id}"[:_KEY_LENGTH]
        if key in self._reported:
            return
        can_do = notice.can_do or ("Follow it: gpuwatch launches", f"End it: gpuwatch stop {launch.launch_id}")
        plain = self._launch_alerts.moved(launch, notice.headline, notice.why, now, can_do)
        alert = msgspec.structs.replace(plain.alert, did=notice.did, facts=(*plain.alert.facts, *notice.facts))
        if notice.needs_owner:
            alert = msgspec.structs.replace(alert, kind=AlertKind.HELD, severity=Severity.CRITICAL)
        self._enqueue(outbox_alert(alert, key))

    def report_budget(self, one: BudgetStatus, stops: bool, now: datetime) -> None:
        """Report a budget at 80 % and when it is used up, once in each window and for each limit."""
        share = "full" if one.is_full else "nearly"
        key = f"budget:{share}:{one.name}:{one.window}:{one.limit_microusd}:{one.watch or ''}"[:_KEY_LENGTH]
        if key in self._reported:
            return
        alert = Alert(
            alert_id=self._new_id(),
            kind=AlertKind.BUDGET,
            severity=Severity.CRITICAL if one.is_full and not stops else Severity.WARNING,
            subject=one.watch or one.name,
            created_at=now,
            headline=_budget_headline(one),
            watch=one.watch,
            facts=_budget_facts(one),
            why=f"Running launches count against it: {one.words}.",
            did=_budget_did(one, stops),
            can_do=("See what was spent: gpuwatch costs", "End a launch: gpuwatch stop ID"),
        )
        self._enqueue(outbox_alert(alert, key))

    def _enqueue(self, outbox_alert: OutboxAlert) -> None:
        assert outbox_alert.once_key is not None
        try:
            self._alert_queue.enqueue(outbox_alert)
        except StoreError as error:
            log.warning("cannot store an alert yet: %s: %s", outbox_alert.alert.headline, error)
            return
        if len(self._reported) >= _KEYS_MAX:
            self._reported.clear()  # the store still has them
        self._reported.add(outbox_alert.once_key)


def _budget_headline(one: BudgetStatus) -> str:
    whose = "budget" if one.watch is None else f"{one.watch}: budget"
    return f"{whose} {one.name} is {'reached' if one.is_full else 'used to 80 %'}"


def _budget_facts(one: BudgetStatus) -> tuple[tuple[str, str], ...]:
    if one.name == "max_usd_hour":
        return (
            ("Limit", f"{dollars(usd(one.limit_microusd))} per hour"),
            ("Billed", f"{dollars(usd(one.spent_microusd))} per hour"),
        )
    return (
        ("Limit", f"{dollars(usd(one.limit_microusd))} in {one.window}"),
        ("Spent", dollars(usd(one.spent_microusd))),
        ("If all launches continue", dollars(usd(one.by_end_microusd))),
    )


def _budget_did(one: BudgetStatus, stops: bool) -> str:
    if not stops:
        return 'No launch ends (on_reached = "warn"). gpuwatch rents nothing beyond the budget.'
    if not one.is_full:
        return 'Nothing yet: on_reached = "stop" ends running launches when the budget is reached.'
    which = (
        "the newest launches until the others fit" if one.name == "max_usd_hour" else "every launch under this budget"
    )
    return f'on_reached = "stop": ends {which}.'


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


def unmeasured(why: str) -> GuardNotice:
    """Report that it answers, but the login failed."""
    return GuardNotice(
        key="unmeasured",
        headline="its GPUs and its network could not be measured",
        why=f"Its SSH port answers, but the login failed: {why}.",
        did="gpuwatch keeps it: a failed login does not prove a faulty machine.",
        can_do=("Check launch.ssh_key, and that the provider has its public key",),
    )
