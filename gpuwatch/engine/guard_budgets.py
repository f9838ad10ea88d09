"""Budgets while instances run: told at 80 %, told and, if its policy says so, enforced at the limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from gpuwatch.engine.guard_alerts import Warner
from gpuwatch.launches.faults import Fault
from gpuwatch.launches.launch import Launch
from gpuwatch.launches.spending import reached, to_end
from gpuwatch.ports import Books
from gpuwatch.watches.watch import Budget, OnBudget, Watch


class Records(Books, Protocol):
    """The launches, those that are over included."""

    def all(self, watch: str | None = None) -> Sequence[Launch]:
        """Every launch, newest first. Raises StoreError."""


class BudgetGuard:
    """The budgets, over everything and of each watch."""

    def __init__(self, books: Records, warner: Warner, watches: Mapping[str, Watch], budget: Budget) -> None:
        self._books = books
        self._warner = warner
        self._watches = watches
        self._budget = budget
        self._alive_ids: frozenset[str] | None = None
        self._ended: list[Launch] = []
        self._ending: dict[str, Fault] = {}

    def fault(self, launch: Launch) -> Fault | None:
        """Does a budget end it?"""
        return self._ending.get(launch.launch_id)

    def everything(self, now: datetime) -> list[Launch]:
        """What the budgets count: all that is alive, and what ended this month. Raises StoreError."""
        alive = self._books.alive()
        return [*alive, *self._ended_this_month(alive, now)]

    def beat(self, now: datetime) -> list[Launch]:
        """Reckon anew; what is alive. Raises StoreError."""
        alive = self._books.alive()
        ended = self._ended_this_month(alive, now)
        ending: dict[str, Fault] = {}
        scopes = [(None, self._budget), *((watch.name, watch.budget) for watch in self._watches.values())]
        for name, budget in scopes:
            found = reached(alive, ended, budget, now, name)
            for one in found:
                self._warner.budget(one, budget.on_reached is OnBudget.STOP, now)
            ending = to_end(found, alive, budget, now) | ending
        self._ending = ending
        return list(alive)

    def _ended_this_month(self, alive: Sequence[Launch], now: datetime) -> list[Launch]:
        """What ended never changes: it is read again only when something ends."""
        ids = frozenset(launch.launch_id for launch in alive)
        if self._alive_ids is None or not self._alive_ids <= ids:
            self._ended = [one for one in self._books.all() if one.is_over and not one.dry_run]
        self._alive_ids = ids
        first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        self._ended = [one for one in self._ended if one.ended_at is None or one.ended_at >= first]
        return [one for one in self._ended if one.launch_id not in ids]
