"""A guard over a real database; the test advances the time. Probes of instances run at once, unless held."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from gpuwatch.domain.launches.instances.end_rules import EndCause
from gpuwatch.domain.launches.instances.instance_checks import MeasuredInstance
from gpuwatch.domain.launches.launch import Intent, Launch, LaunchState
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.guarding.guard import ProviderGuard
from gpuwatch.ports import Alert, Instance, InstanceState, PriceIncrease
from gpuwatch.ports.remote import InstanceUnreachable, LoginRefused
from gpuwatch.storage.launches.invoice_rows import SqlUtilisationRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.database import Database
from tests.builders import NOON, a_match, a_watch, an_offer, changed
from tests.engine.lying_provider import LyingProvider
from tests.outbox import new_alerts
from tests.reserving import launch_or_refusal


class Host(LyingProvider):
    """A provider whose hosts raise prices."""

    def __init__(self) -> None:
        super().__init__()
        self.proposals: list[PriceIncrease] = []
        self.answers: list[tuple[str, bool]] = []
        self.asked = 0
        self.on_asked: Exception | None = None
        self.on_answer: Exception | None = None
        self.lags = False  # an answered proposal stays in the list for a while

    def price_increases(self) -> Sequence[PriceIncrease]:
        self.asked += 1
        if self.on_asked is not None:
            raise self.on_asked
        return list(self.proposals)

    def answer_increase(self, increase_id: str, accept: bool) -> None:
        if self.on_answer is not None:
            raise self.on_answer
        self.answers.append((increase_id, accept))
        self.proposals = [proposal for proposal in self.proposals if self.lags or proposal.increase_id != increase_id]


class Looker:
    """A probe with a result that the test sets."""

    def __init__(self) -> None:
        self.on_banner: list[InstanceUnreachable] = []
        self.on_inside: list[MeasuredInstance | InstanceUnreachable | LoginRefused | ValueError] = []
        self.downloads: list[bool] = []
        self.users: list[str | None] = []

    def banner(self, host: str, port: int) -> str:
        if self.on_banner:
            raise self.on_banner.pop(0)
        return "SSH-2.0-x"

    def measure(
        self, host: str, port: int, key_file: str, *, download: bool, user: str | None = None
    ) -> MeasuredInstance:
        self.downloads.append(download)
        self.users.append(user)
        found = self.on_inside.pop(0) if len(self.on_inside) > 1 else self.on_inside[0]
        if isinstance(found, MeasuredInstance):
            return found
        raise found


class GuardWorld:
    """One watch, its launches, and the alerts to their owner."""

    def __init__(self, store: Database, overall: Budget | None = None, **watch: Any) -> None:
        self.store = store
        self.watch: Watch = a_watch(
            **{"action": Action.LAUNCH, "launch": LaunchSpec(max_active=5, max_total=0)} | watch
        )
        self.budget = overall or Budget()
        self.uses = SqlUtilisationRepository(store)
        self.now = NOON
        self.repository = SqlLaunchRepository(store)
        self.host = Host()
        self.probe = Looker()
        self.ids = (f"{'a' * 9}{chr(97 + n // 26)}{chr(97 + n % 26)}b" for n in itertools.count())
        self.held: list[Callable[[], None]] | None = None
        self.shown: list[Match] = []  # the market's offers for the watch
        self._reported = 0
        self.start_process()

    def start_process(self) -> None:
        """Start a new process on the same database, with empty memory."""
        self.guard = ProviderGuard(
            self.repository,
            self.uses,
            self.host,
            self.probe,
            LaunchAlerts(lambda: next(self.ids)),
            watches={self.watch.name: self.watch},
            budget=self.budget,
            zone=UTC,
            latest_matches=lambda watch: self.shown,
            start=lambda work: work() if self.held is None else self.held.append(work),
        )

    def starting(self, **changes: Any) -> Launch:
        """Rent for 4.00 $/h in total, a minute per launch apart; its instance starts to run."""
        launch_id = next(self.ids)
        offer = an_offer(offer_id=launch_id, machine_id=launch_id, quoted_usd_hour=3.333333, disk_usd_gb_month=None)
        free = changed(self.watch, budget=Budget())  # as if rented before the limits were set
        intent = Intent(watch=free, match=a_match(offer), launch_id=launch_id, dry_run=False)
        with self.store.write() as connection:
            launch = launch_or_refusal(connection, intent, Budget(), self.now)
        assert isinstance(launch, Launch), launch
        return self.repository.transition(
            launch, LaunchState.STARTING, "made", self.now, instance_id=f"i-{launch_id}", **changes
        )

    def running(self, **changes: Any) -> Launch:
        launch = self.starting()
        return self.repository.transition(
            launch,
            LaunchState.RUNNING,
            "running",
            self.now,
            **{"running_at": self.now, "price_microusd_hour": 4_000_000} | changes,
        )

    def look(self, launch: Launch, **changes: Any) -> EndCause | None:
        """Check the current row once."""
        found = self.repository.get(launch.launch_id)
        assert found is not None
        return self.guard.fault(found, an_instance(launch, **changes), self.now)

    def verify(self, launch: Launch, **changes: Any) -> bool | EndCause:
        found = self.repository.get(launch.launch_id)
        assert found is not None
        return self.guard.verified(found, an_instance(launch, **changes), self.now)

    def refresh(self) -> None:
        self.guard.refresh(self.now)

    def pass_(self, **span: float) -> datetime:
        self.now += timedelta(**span)
        return self.now

    def alerts(self) -> list[Alert]:
        """Return the alerts since the last call."""
        return new_alerts(self.store)


def an_instance(launch: Launch, **changes: Any) -> Instance:
    """An instance as a list shows it, running."""
    plain: dict[str, Any] = {
        "instance_id": launch.instance_id,
        "label": launch.label,
        "state": InstanceState.RUNNING,
        "status": "running",
        "ssh_host": "ssh5.example",
        "ssh_port": 22,
    }
    return Instance(**(plain | changes))
