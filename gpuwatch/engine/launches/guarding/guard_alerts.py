"""The guard's alerts, each sent once: the store keeps its key, and a cache saves the query."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

import msgspec

from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.launches.money.budgets import BudgetStatus
from gpuwatch.domain.market.money import dollars
from gpuwatch.domain.market.pricing import usd
from gpuwatch.engine.alerts.alerts import outbox_alert
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.errors import StoreError
from gpuwatch.ports import Alert, AlertKind, AlertQueue, OutboxAlert, Severity

log = logging.getLogger(__name__)

_KEYS_MAX = 10_000
_KEY_LENGTH = 200


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
