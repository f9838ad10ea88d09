"""Budgets while instances run: an alert at 80 %, another one at the limit, and the end if the policy says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from gpuwatch.domain.launches.instances.end_rules import EndCause
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.launches.life.launch_record import governing_watch
from gpuwatch.domain.launches.money.budgets import budget_statuses, launches_to_end
from gpuwatch.domain.watches.watch import Budget, BudgetPolicy, Watch
from gpuwatch.engine.launches.guarding.guard_alerts import GuardAlerts
from gpuwatch.ports import LaunchReader


class BudgetGuard:
    """Enforces the global budget and the budget of each watch."""

    def __init__(
        self, repository: LaunchReader, alerts: GuardAlerts, watches: Mapping[str, Watch], budget: Budget
    ) -> None:
        self._repository = repository
        self._alerts = alerts
        self._watches = watches
        self._budget = budget
        self._alive_ids: frozenset[str] | None = None
        self._ended: list[Launch] = []
        self._ending: dict[str, EndCause] = {}

    def fault(self, launch: Launch) -> EndCause | None:
        """Return why a budget ends it, or None."""
        return self._ending.get(launch.launch_id)

    def counted_launches(self, now: datetime) -> list[Launch]:
        """Return the launches that budgets count: active ones, and those that ended this month.

        Raises StoreError.
        """
        alive = self._repository.alive()
        return [*alive, *self._ended_this_month(alive, now)]

    def refresh(self, now: datetime) -> list[Launch]:
        """Compute the budgets again and return the active launches. Raises StoreError."""
        alive = self._repository.alive()
        ended = self._ended_this_month(alive, now)
        ending: dict[str, EndCause] = {}
        gone = [launch for launch in alive if launch.watch not in self._watches]
        stored = {launch.watch: watch for launch in gone if (watch := governing_watch(launch, {})) is not None}
        scopes = [(None, self._budget), *((name, one.budget) for name, one in (stored | dict(self._watches)).items())]
        for name, budget in scopes:
            found = budget_statuses(alive, ended, budget, now, name)
            for one in found:
                self._alerts.report_budget(one, budget.on_reached is BudgetPolicy.STOP, now)
            ending = launches_to_end(found, alive, budget, now) | ending
        self._ending = ending
        return list(alive)

    def _ended_this_month(self, alive: Sequence[Launch], now: datetime) -> list[Launch]:
        """Return ended launches. They never change, so they are read again only when another one ends."""
        ids = frozenset(launch.launch_id for launch in alive)
        if self._alive_ids is None or not self._alive_ids <= ids:
            self._ended = [one for one in self._repository.all() if one.is_over and not one.dry_run]
        self._alive_ids = ids
        first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        self._ended = [launch for launch in self._ended if launch.ended_at is None or launch.ended_at >= first]
        return [launch for launch in self._ended if launch.launch_id not in ids]
