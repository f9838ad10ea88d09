"""The guard of running launches: decides why an instance must end beyond what the list shows, and reports events.

There is one guard per provider. It ends nothing itself: the reconciler calls it for each instance at each poll, through
the port `LaunchGuard` (`listed_event`, `due_cause`). Rules that save money come first, and an error in one rule never
disables the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, TypeVar

from gpuwatch.domain.alerts.guard_texts import UNMEASURED
from gpuwatch.domain.launches.instance import Instance, InstanceState
from gpuwatch.domain.launches.instances.end_rules import (
    EndCause,
    closes_at,
    contract_too_short,
    due_reminder,
    hook_must_begin,
    offline_too_long,
    outside_windows,
    runtime_nearly_over,
)
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.launches.life.launch_events import InstanceListed
from gpuwatch.domain.launches.life.launch_record import governing_watch
from gpuwatch.domain.launches.money.bids_and_relocation import is_underbid, relocation
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.alerts.alert_reporter import AlertReporter
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.followed_launch import FollowedLaunches
from gpuwatch.engine.launches.guarding.guard_alerts import GuardAlerts
from gpuwatch.engine.launches.guarding.guard_money import BudgetGuard, PriceGuard
from gpuwatch.engine.launches.guarding.guard_utilisation import UtilisationGuard
from gpuwatch.engine.launches.guarding.instance_verifier import BackgroundRunner, InstanceVerifier, in_background
from gpuwatch.errors import GpuwatchError
from gpuwatch.ports import Launcher
from gpuwatch.ports.remote import InstanceProbe

if TYPE_CHECKING:
    from gpuwatch.storage.launches.invoice_rows import SqlUtilisationRepository
    from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

log = logging.getLogger(__name__)

T = TypeVar("T")


def listed_event(guard: ProviderGuard | None, launch: Launch, instance: Instance, now: datetime) -> InstanceListed:
    """Let the guard check active launches, and verify an instance before it counts as running; None: trust it."""
    if guard is None or launch.state not in {LaunchState.STARTING, LaunchState.RUNNING}:
        return InstanceListed(instance)
    fault = _asked(launch, lambda: guard.fault(launch, instance, now))
    if fault is not None or launch.state is LaunchState.RUNNING or instance.state is not InstanceState.RUNNING:
        return InstanceListed(instance, fault)
    checked = _asked(launch, lambda: guard.verified(launch, instance, now))
    found = True if checked is None else checked
    return InstanceListed(instance, verified=found) if isinstance(found, bool) else InstanceListed(instance, found)


def due_cause(guard: ProviderGuard | None, launch: Launch, now: datetime) -> EndCause | None:
    """Return why it must end, listed or not, or None."""
    return None if guard is None else _asked(launch, lambda: guard.due(launch, now))


def _asked(launch: Launch, check: Callable[[], T]) -> T | None:
    """Contain errors: a guard that raises ends nothing, and does not stop what the launch's own time ends."""
    try:
        return check()
    except GpuwatchError as error:
        log.warning("launch %s: guard: %s", launch.launch_id, error)
    except Exception:
        log.exception("launch %s: its guard failed", launch.launch_id)
    return None


class ProviderGuard:
    """Guards the launches at one provider.

    Args:
        watches: by name, as in the current settings. A launch whose watch was removed keeps the terms of its rent.
        budget: the global budget.
        zone: time zone of the watches' windows and of reported times.
        latest_matches: returns the current matches of a watch, by its name.
        start: runs a probe of an instance in the background.
    """

    def __init__(  # noqa: PLR0913 each is a separate port
        self,
        repository: SqlLaunchRepository,
        uses: SqlUtilisationRepository,
        launcher: Launcher,
        probe: InstanceProbe,
        launch_alerts: LaunchAlerts,
        *,
        watches: Mapping[str, Watch],
        budget: Budget,
        zone: tzinfo,
        start: BackgroundRunner = in_background,
        latest_matches: Callable[[str], Sequence[Match]] = lambda watch: (),
    ) -> None:
        self._latest_matches = latest_matches
        self.followed = FollowedLaunches()  # shared with their reconciler
        self._watches = watches
        self._zone = zone
        self._provider = launcher.name
        self._alerts = GuardAlerts(AlertReporter(repository, launch_alerts.new_id), launch_alerts, zone)
        self._use = UtilisationGuard(uses, self._alerts, self.followed)
        self._budgets = BudgetGuard(repository, self._alerts, watches, budget)
        self._prices = PriceGuard(
            launcher,
            self._alerts,
            self.followed,
            watches=watches,
            budget=budget,
            counted_launches=self._budgets.counted_launches,
        )
        self._verifier = InstanceVerifier(probe, self._unmeasured, self.followed, start)

    def refresh(self, now: datetime) -> None:
        """Update budgets and proposed prices, and forget ended launches; runs every few seconds. Raises StoreError."""
        alive = [launch for launch in self._budgets.refresh(now) if launch.provider == self._provider]
        self.followed.keep_only({launch.launch_id for launch in alive})  # at once, while what was read is true
        self._prices.refresh([one for one in alive if one.state is LaunchState.RUNNING], now)

    def fault(self, launch: Launch, instance: Instance, now: datetime) -> EndCause | None:
        """Return why a listed instance must end, or None. Reports upcoming events to the owner."""
        watch = governing_watch(launch, self._watches)
        fault = self.due(launch, now)
        if launch.is_halted:
            if fault is None and launch.is_kept:
                self._alerts.kept(launch, now)
            return fault
        fault = fault or self._prices.beyond_budget(launch, instance, now)
        fault = fault or self._of_instance(launch, instance, watch, now)
        if fault is None and launch.state is LaunchState.RUNNING:
            self._report_events(launch, instance, watch, now)
        return fault

    def due(self, launch: Launch, now: datetime) -> EndCause | None:
        """Return why it must end, listed or not: a budget, a price, its windows, a long hook. None: it need not."""
        watch = governing_watch(launch, self._watches)
        fault = self._budgets.fault(launch) or self._prices.fault(launch, now)
        if watch is None or launch.kept is not None:
            return fault
        return fault or outside_windows(watch, now, self._zone) or hook_must_begin(launch, watch, now)

    def verified(self, launch: Launch, instance: Instance, now: datetime) -> bool | EndCause:
        """Return True if it matches its offer, False if that is not yet known, or the end cause if it does not."""
        return self._verifier.verified(launch, instance, governing_watch(launch, self._watches), now)

    def _of_instance(self, launch: Launch, instance: Instance, watch: Watch | None, now: datetime) -> EndCause | None:
        if launch.state is not LaunchState.RUNNING:
            return None
        spec = None if watch is None else watch.launch
        if instance.state is InstanceState.RUNNING and (fault := self._use.fault(launch, instance, spec, now)):
            return fault
        still_offline = instance.state is InstanceState.OFFLINE and spec is not None
        return offline_too_long(launch, spec.relaunch, now) if still_offline and spec is not None else None

    def _report_events(self, launch: Launch, instance: Instance, watch: Watch | None, now: datetime) -> None:
        """Report what the owner should know; each event is reported once, by its key."""
        alerts = self._alerts
        if runtime_nearly_over(launch, now):
            alerts.runtime_nearly_over(launch, now)
        if watch is not None and (closing_at := closes_at(watch, now, self._zone)) is not None:
            alerts.windows_close(launch, closing_at, now)
        if instance.ends_at is not None and (near := contract_too_short(launch, instance.ends_at, now)) is not None:
            alerts.contract_ends(launch, instance.ends_at, near, now)
        if instance.maintenance_at is not None:
            alerts.maintenance(launch, instance.maintenance_at, now)
        moves = None if watch is None else relocation(launch, watch, self._latest_matches(watch.name), now)
        if moves is not None:
            alerts.cheaper_elsewhere(launch, moves, now)
        if is_underbid(launch, instance):
            spec = None if watch is None else watch.launch
            alerts.underbid(launch, instance, spec or LaunchSpec(), now)
        if (nth := due_reminder(launch, now)) is not None:
            alerts.does_not_run(launch, instance, nth, now)

    def _unmeasured(self, launch: Launch, why: str, now: datetime) -> None:
        self._alerts.report(launch, UNMEASURED, now, error=why)
