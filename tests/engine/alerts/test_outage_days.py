"""Channels fail one by one and together: no alert about money is lost, late or doubled.

Telegram is unreachable, mail drips until its deadline, the webhook refuses. The outbox, the deliverer and its threads
are the daemon's own; the channels are doubles, and time is virtual: blocking calls block for virtual seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import func, select

from gpuwatch.domain.alerts.alert import outbox_alert
from gpuwatch.engine.alerts.alert_delivery import AlertDelivery
from gpuwatch.errors import DeliverLater, DeliveryRefused
from gpuwatch.ports import MONEY_KINDS, Alert, AlertKind
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.migrate import upgrade
from gpuwatch.storage.setup.side_tables import delivery

START = datetime(2026, 11, 21, tzinfo=UTC)
STEP_S = 30.0
EVENT_EVERY_S = 600.0
DRIPS_S = 25.0  # then the mail channel gives up
NAMES = ("telegram", "email", "webhook")
# outages of a channel, as shares of the whole time: each alone, then all; the webhook recovers first
OUTAGES = {
    "telegram": ((0.02, 0.25), (0.70, 0.95)),
    "email": ((0.25, 0.45), (0.70, 0.95)),
    "webhook": ((0.45, 0.65), (0.70, 0.90)),
}
_KINDS = (*sorted(MONEY_KINDS), AlertKind.MATCH, AlertKind.BLIND)
_ROUTES = (("telegram",), ("email",), ("webhook",), NAMES)


@pytest.mark.slow
def test_alerts_about_money_survive_every_outage(tmp_path: Path) -> None:
    found = simulate(5, tmp_path)
    assert found.money > 10
    assert found.arrived == found.money
    assert found.latest_s <= 20 * 60
    assert found.twice == 0
    assert found.most_threads <= 3


class Outcome(msgspec.Struct, kw_only=True):
    """The results of the days. Delays are in seconds since any channel worked."""

    money: int = 0  # alerts about money
    arrived: int = 0  # … that some channel accepted
    latest_s: float = 0.0
    twice: int = 0  # alerts that one channel accepted twice
    most_waiting: int = 0  # deliveries pending at once
    most_threads: int = 0
    sent: dict[str, int] = {}


class _Clock:
    passed_s = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.passed_s)


class _Double:
    """One channel and its outages."""

    def __init__(self, name: str, clock: _Clock, total_s: float, fails: Callable[[_Double], None]) -> None:
        self.name = name
        self.took: dict[str, list[float]] = {}  # alert id → times
        self.blocked_until_s: float | None = None
        self.free = threading.Event()
        self._clock = clock
        self._fails = fails
        self._outages = [(begins * total_s, ends * total_s) for begins, ends in OUTAGES[name]]

    def works_at(self, moment_s: float) -> bool:
        return not any(begins <= moment_s < ends for begins, ends in self._outages)

    def send(self, alert: Alert) -> None:
        if not self.works_at(self._clock.passed_s):
            self._fails(self)
        for part in alert.parts or (alert,):
            self.took.setdefault(part.alert_id, []).append(self._clock.passed_s)

    def block(self, seconds: float) -> None:
        """Block the thread until virtual time has passed."""
        self.free.clear()
        self.blocked_until_s = self._clock.passed_s + seconds
        self.free.wait(60)


def _unreachable(channel: _Double) -> None:
    raise DeliverLater(f"{channel.name}: no connection")


def _drips(channel: _Double) -> None:
    channel.block(DRIPS_S)
    raise DeliverLater(f"{channel.name}: took longer than {DRIPS_S:g} s")


def _refuses(channel: _Double) -> None:
    raise DeliveryRefused(f"{channel.name}: answered 410")


def simulate(hours: float, folder: Path) -> Outcome:
    """Run the days."""
    clock, total_s = _Clock(), hours * 3600
    doubles = [
        _Double(name, clock, total_s, fails)
        for name, fails in zip(NAMES, (_unreachable, _drips, _refuses), strict=True)
    ]
    database = open_database(f"sqlite:///{folder}/gpuwatch.db")
    try:
        upgrade(database)
        outbox = Outbox(database)
        deliverer = AlertDelivery(
            outbox, {double.name: double for double in doubles}, monotonic=lambda: clock.passed_s, patience_s=0.0
        )
        events, outcome = _events(total_s), Outcome()
        created: dict[str, float] = {}
        while clock.passed_s < total_s:
            for double in doubles:
                if double.blocked_until_s is not None and double.blocked_until_s <= clock.passed_s:
                    double.blocked_until_s = None
                    double.free.set()
            _settle(doubles)
            if clock.passed_s % EVENT_EVERY_S == 0:
                alert, channels = next(events)
                created[alert.alert_id] = clock.passed_s if alert.kind in MONEY_KINDS else -1.0
                outbox.enqueue(msgspec.structs.replace(outbox_alert(alert), channels=channels))
            deliverer.send_due(clock.now())
            _settle(doubles)
            with database.read() as connection:
                waiting = select(func.count()).select_from(delivery).where(delivery.c.state == "pending")
                outcome.most_waiting = max(outcome.most_waiting, connection.execute(waiting).scalar_one())
            outcome.most_threads = max(outcome.most_threads, len(_threads()))
            clock.passed_s += STEP_S
        deliverer.close()
        return _judge(outcome, doubles, created, total_s)
    finally:
        database.close()


def _events(total_s: float) -> Iterator[tuple[Alert, tuple[str, ...]]]:
    for number in range(int(total_s / EVENT_EVERY_S) + 1):
        kind = _KINDS[number % len(_KINDS)]
        at = START + timedelta(seconds=number * EVENT_EVERY_S)
        alert = Alert(alert_id=f"e{number:04}", kind=kind, created_at=at, headline=f"{kind.value} {number}")
        yield alert, _ROUTES[number % len(_ROUTES)]


def _threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("deliver-")]


def _settle(doubles: list[_Double]) -> None:
    """Wait until every thread of the deliverer has ended or waits for virtual time."""
    blocked = {f"deliver-{double.name}": double for double in doubles}
    while busy := [thread for thread in _threads() if blocked[thread.name].blocked_until_s is None]:
        busy[0].join(0.002)


def _judge(outcome: Outcome, doubles: list[_Double], created: dict[str, float], total_s: float) -> Outcome:
    outcome.sent = {double.name: sum(map(len, double.took.values())) for double in doubles}
    outcome.twice = sum(len(times) > 1 for double in doubles for times in double.took.values())
    for alert_id, at_s in created.items():
        works_s = at_s
        while works_s < total_s and not any(double.works_at(works_s) for double in doubles):
            works_s += STEP_S
        if at_s < 0 or works_s > total_s - 1200:  # not about money, or too late to judge
            continue
        outcome.money += 1
        arrived = [min(double.took[alert_id]) for double in doubles if alert_id in double.took]
        if arrived:
            outcome.arrived += 1
            outcome.latest_s = max(outcome.latest_s, min(arrived) - works_s)
    return outcome
