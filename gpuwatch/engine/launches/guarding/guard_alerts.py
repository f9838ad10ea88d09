"""The guard's alerts, each sent once."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Any

from gpuwatch.domain.alerts import guard_texts as texts
from gpuwatch.domain.alerts.alert import AlertSpec, Severity
from gpuwatch.domain.alerts.kept_texts import KEPT_ENDS_SOON, STILL_KEPT
from gpuwatch.domain.launches.instance import Instance
from gpuwatch.domain.launches.instances.end_rules import due_reminder, ends_by_itself_at
from gpuwatch.domain.launches.launch import InstanceCondition, Launch
from gpuwatch.domain.launches.life.kept_disks import kept_ends_soon
from gpuwatch.domain.launches.money.bids_and_relocation import Relocation, next_bid
from gpuwatch.domain.launches.money.budgets import BudgetStatus
from gpuwatch.domain.market.money import MAX_USD_HOUR, MICRO, dollars, price_text, usd
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.engine.alerts.alert_reporter import AlertReporter
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts

_SAVING_STEP = 0.05  # smaller changes of the saving are not reported
_CONDITIONS = {
    InstanceCondition.STOPPED: texts.STILL_STOPPED,
    InstanceCondition.OUTBID: texts.STILL_OUTBID,
    InstanceCondition.OFFLINE: texts.STILL_OFFLINE,
}


class GuardAlerts:
    """Sends alerts to the owner. If the store fails, the next poll tries again.

    Args:
        zone: time zone of reported times.
    """

    def __init__(self, reporter: AlertReporter, launch_alerts: LaunchAlerts, zone: tzinfo) -> None:
        self._reporter = reporter
        self._launch_alerts = launch_alerts
        self._zone = zone

    def report(self, launch: Launch, spec: AlertSpec, now: datetime, **fields: Any) -> None:
        """Report an event of a launch. `fields`: see `LaunchAlerts.of`."""
        self._reporter.report(self._launch_alerts.of(spec, launch, now, **fields))

    def runtime_nearly_over(self, launch: Launch, now: datetime) -> None:
        """Report that `max_runtime` is nearly over."""
        end = ends_by_itself_at(launch)
        assert end is not None
        self.report(
            launch,
            texts.RUNTIME,
            now,
            max_runtime_s=launch.max_runtime_s or 0,
            ends=end.astimezone(self._zone),
            end=format_moment(end, self._zone),
        )

    def windows_close(self, launch: Launch, at: datetime, now: datetime) -> None:
        """Report that its windows close soon."""
        self.report(launch, texts.CLOSING, now, closes=at, close=format_moment(at, self._zone))

    def contract_ends(self, launch: Launch, ends_at: datetime, near: str, now: datetime) -> None:
        """Report that the host ends the contract before `max_runtime` is over."""
        wanted, end = ends_by_itself_at(launch), format_moment(ends_at, self._zone)
        until = "" if wanted is None else texts.RUNTIME_IS_LONGER.format(end=format_moment(wanted, self._zone))
        soon = texts.IN_LESS_THAN_AN_HOUR if near == "soon" else texts.AT.format(end=end)
        self.report(launch, texts.CONTRACT, now, near=near, ends=ends_at, end=end, until=until, soon=soon)

    def maintenance(self, launch: Launch, at: datetime, now: datetime) -> None:
        """Report maintenance that the host announced."""
        self.report(launch, texts.MAINTENANCE, now, begins=at, begin=format_moment(at, self._zone))

    def cheaper_elsewhere(self, launch: Launch, found: Relocation, now: datetime) -> None:
        """Report that moving would pay."""
        offer = found.match.offer
        self.report(
            launch,
            texts.CHEAPER_ELSEWHERE,
            now,
            provider_there=offer.provider,
            machine=offer.machine_id or offer.offer_id,
            offer=offer.offer_id,
            price=price_text(usd(found.match.price.rent_microusd_hour)),
            step=int(found.share / _SAVING_STEP),
            share=found.share,
            saving=dollars(usd(found.saving_microusd)),
            stay=dollars(usd(found.cost_here_microusd)),
            move=dollars(usd(found.cost_there_microusd)),
            hours=found.work.left.total_seconds() / 3600,
            setup_min=found.work.setup.total_seconds() / 60,
            assumed="; ".join(found.work.assumed),
        )

    def does_not_run(self, launch: Launch, instance: Instance, nth: int, now: datetime) -> None:
        """Report that it still does not run while its disk is billed."""
        condition, since = launch.condition, launch.condition_since
        assert condition is not None
        assert since is not None
        self.report(
            launch,
            _CONDITIONS[condition],
            now,
            condition=condition.value,
            began=since,
            since=format_moment(since, self._zone),
            nth=nth,
            disk=_disk(launch, instance),
            bid=_bid(instance) if condition is InstanceCondition.OUTBID else "",
        )

    def underbid(self, launch: Launch, instance: Instance, spec: LaunchSpec, now: datetime) -> None:
        """Report that somebody bids more, while it still runs, and what happens when it is stopped."""
        if next_bid(launch, instance, spec.bid) is not None:
            what = texts.NEXT_BID
        elif launch.purpose.job is not None:
            what = texts.NEXT_JOB
        else:
            what = texts.NEXT_ELSEWHERE if spec.relaunch else texts.NEXT_WAITS
        bid = instance.bid_usd_hour or usd(launch.bid_microusd_hour or 0)
        least = price_text(instance.min_bid_usd_hour or 0.0)
        self.report(launch, texts.UNDERBID, now, bid=f"${price_text(bid)}", least=least, next=what)

    def kept(self, launch: Launch, now: datetime) -> None:
        """Remind once a day of a disk that is kept, and report that it is destroyed soon."""
        since = launch.kept.stopped_at if launch.kept is not None else None
        if kept_ends_soon(launch, now):
            self.report(launch, KEPT_ENDS_SOON, now)
        nth = due_reminder(launch, now)
        if nth and since is not None:
            self.report(launch, STILL_KEPT, now, nth=nth, since=format_moment(since, self._zone))

    def budget(self, one: BudgetStatus, stops: bool, now: datetime) -> None:
        """Report a budget at 80 % and when it is used up, once in each window and for each limit."""
        is_rate = one.name == "max_usd_hour"
        limit, spent = dollars(usd(one.limit_microusd)), dollars(usd(one.spent_microusd))
        budget = texts.BUDGET_NAMES[one.name]
        spec = texts.BUDGET_REACHED if one.is_full else texts.BUDGET_NEARLY
        self._reporter.report_spec(
            spec,
            now,
            severity=Severity.CRITICAL if one.is_full and not stops else Severity.WARNING,
            subject=one.watch or one.name,
            watch=one.watch,
            name=one.name,
            window=one.window,
            limit_microusd=one.limit_microusd,
            of=one.watch or "",
            budget=budget if one.watch is None else texts.OWN_BUDGET.format(watch=one.watch, budget=budget),
            limit=f"{limit}/h" if is_rate else f"{limit} in {one.window}",
            billed=f"{spent}/h" if is_rate else "",
            spent="" if is_rate else spent,
            by_end="" if is_rate else dollars(usd(one.by_end_microusd)),
            words=one.words,
            did=_budget_did(one, stops),
        )


def _budget_did(one: BudgetStatus, stops: bool) -> str:
    if not stops:
        return texts.BUDGET_WARNS
    if not one.is_full:
        return texts.BUDGET_WILL_STOP
    return texts.BUDGET_STOPS_NEWEST if one.name == "max_usd_hour" else texts.BUDGET_STOPS_ALL


def _disk(launch: Launch, instance: Instance) -> str:
    """Return its cost per day, with commission."""
    usd_hour = instance.stopped_usd_hour
    listed = launch.disk_microusd_hour
    if usd_hour is not None and 0 <= usd_hour <= MAX_USD_HOUR:
        listed = round(usd_hour * MICRO)
    if not listed:
        return texts.DISK_PRICE_UNKNOWN
    return texts.DISK_PRICE.format(usd_day=dollars(usd(launch.with_commission(listed) * 24)))


def _bid(instance: Instance) -> str:
    if instance.min_bid_usd_hour is None:
        return ""
    bid = texts.BID_UNKNOWN if instance.bid_usd_hour is None else f"${price_text(instance.bid_usd_hour)}"
    return texts.BID.format(bid=bid, least=price_text(instance.min_bid_usd_hour))
