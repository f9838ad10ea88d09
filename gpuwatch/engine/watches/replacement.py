"""Whether an offer could be rented in place of a launch that still runs: asked before the launch is ended for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from gpuwatch.domain.launches.launch import Intent, Launch
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.launches.renting.candidate_selection import StartsLaunches, select_candidates
from gpuwatch.engine.watches.evaluation_rules import EvaluationRules
from gpuwatch.ports import UnitOfWorkFactory

_TRIED = 5  # offers, cheapest first: each costs a query of the store


class ReplacementCheck:
    """The rules of a rental without the order: prerequisites, pauses, budgets, machines. Reserves nothing."""

    def __init__(
        self,
        uow_factory: UnitOfWorkFactory,
        rules: EvaluationRules,
        launcher: StartsLaunches,
        new_id: Callable[[], str],
    ) -> None:
        self._uow_factory, self._rules, self._launcher, self._new_id = uow_factory, rules, launcher, new_id

    def first_rentable(
        self, watch: Watch, leaving: Launch, found: Sequence[Match], now: datetime
    ) -> tuple[Match | None, str]:
        """Return the first offer that the watch could rent if `leaving` had just ended, or None and why not.

        Args:
            found: at least one, cheapest first.

        Raises:
            StoreError: the limits cannot be read.
        """
        rules = self._rules
        if rules.dry_run:
            return None, "dry_run = true"
        left, why = select_candidates(
            found, rules.unable_for(watch), self._launcher.not_ready, rules.dry_run, watch.name
        )
        for match in left[:_TRIED]:
            intent = Intent(
                watch=watch,
                match=match,
                launch_id=self._new_id(),
                dry_run=rules.dry_run,
                accounts=rules.accounts(),
                label_lengths=rules.label_lengths,
            )
            with self._uow_factory.open() as uow:
                refusal = uow.would_refuse_instead(intent, leaving, rules.budget, now)
            if refusal is None:
                return match, ""
            why = refusal.text
        return None, why
