"""What running instances may cost: budgets, and higher prices that hosts propose.

- `BudgetGuard`: an alert at 80 %, another one at the limit, and the end if the policy says so.
- `PriceGuard`: a higher price for a running contract is reported at once, and answered by the owner's policy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.domain.alerts import guard_texts as texts
from gpuwatch.domain.launches.instance import Instance
from gpuwatch.domain.launches.instances.end_rules import (
    EndCause,
    IncreaseAnswer,
    billed_rates,
    extra_microusd,
    increase_answer,
    must_end_before_increase,
    raised_microusd_hour,
)
from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchRefusal, LaunchState
from gpuwatch.domain.launches.life.launch_events import rent_ceiling_microusd
from gpuwatch.domain.launches.life.launch_record import governing_watch
from gpuwatch.domain.launches.money.budgets import EndedCosts, all_budgets_refusal, budget_statuses, launches_to_end
from gpuwatch.domain.market.money import dollars, price_text, usd
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.domain.watches.launch_spec import Budget, BudgetPolicy, PriceIncreasePolicy
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.launches.followed_launch import FollowedLaunches, RefusedIncrease
from gpuwatch.engine.launches.guarding.guard_alerts import GuardAlerts
from gpuwatch.errors import OrderError, ProviderError
from gpuwatch.ports import Launcher, PriceIncrease

if TYPE_CHECKING:
    from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

log = logging.getLogger(__name__)

POLL_EVERY = timedelta(seconds=60)
_NOTHING_ENDED = EndedCosts()


class BudgetGuard:
    """Enforces the global budget and the budget of each watch."""

    def __init__(
        self, repository: SqlLaunchRepository, alerts: GuardAlerts, watches: Mapping[str, Watch], budget: Budget
    ) -> None:
        self._repository = repository
        self._alerts = alerts
        self._watches = watches
        self._budget = budget
        self._alive_ids: frozenset[str] | None = None
        self._ended: list[Launch] = []
        self._counted: list[Launch] = []
        self._costs: Mapping[str | None, EndedCosts] | None = None  # of `_counted`, by watch; None: of all watches
        self._ending: dict[str, EndCause] = {}

    def fault(self, launch: Launch) -> EndCause | None:
        """Return why a budget ends it, or None."""
        return self._ending.get(launch.launch_id)

    def counted_launches(self, now: datetime) -> list[Launch]:
        """Return the launches that budgets count: active ones, and those that ended this month.

        Raises StoreError.
        """
        alive = self._repository.own_alive()
        return [*alive, *self._ended_this_month(alive, now)]

    def refresh(self, now: datetime) -> list[Launch]:
        """Compute the budgets again and return the active launches. Raises StoreError."""
        alive = self._repository.own_alive()
        ended = self._ended_this_month(alive, now)
        if self._costs is None or ended != self._counted:
            self._counted, self._costs = ended, _by_watch(ended)
        ending: dict[str, EndCause] = {}
        gone = [launch for launch in alive if launch.watch not in self._watches]
        stored = {launch.watch: watch for launch in gone if (watch := governing_watch(launch, {})) is not None}
        budgets = [(name, one.budget) for name, one in (stored | dict(self._watches)).items()]
        for name, budget in ((None, self._budget), *budgets):
            if not budget.limits_money:
                continue
            ours = [launch for launch in alive if name in {None, launch.watch}]
            found = budget_statuses(ours, self._costs.get(name, _NOTHING_ENDED), budget, now, name)
            for one in found:
                self._alerts.budget(one, budget.on_reached is BudgetPolicy.STOP, now)
            ending = launches_to_end(found, alive, budget, now) | ending
        self._ending = ending
        return list(alive)

    def _ended_this_month(self, alive: Sequence[Launch], now: datetime) -> list[Launch]:
        """Return ended launches. They never change, so they are read again only when another one ends."""
        ids = frozenset(launch.launch_id for launch in alive)
        if self._alive_ids is None or not self._alive_ids <= ids:
            self._ended = [one for one in self._repository.own() if one.is_over and not one.dry_run]
        self._alive_ids = ids
        first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        self._ended = [launch for launch in self._ended if launch.ended_at is None or launch.ended_at >= first]
        return [launch for launch in self._ended if launch.launch_id not in ids]


def _by_watch(ended: Sequence[Launch]) -> dict[str | None, EndedCosts]:
    by_watch: dict[str, list[Launch]] = {}
    for launch in ended:
        by_watch.setdefault(launch.watch, []).append(launch)
    return {None: EndedCosts(ended), **{watch: EndedCosts(own) for watch, own in by_watch.items()}}


class PriceGuard:
    """Handles the proposals at one provider.

    Args:
        counted_launches: returns every launch that the budgets count.
    """

    def __init__(
        self,
        launcher: Launcher,
        alerts: GuardAlerts,
        followed: FollowedLaunches,
        *,
        watches: Mapping[str, Watch],
        budget: Budget,
        counted_launches: Callable[[datetime], Sequence[Launch]],
    ) -> None:
        self._launcher = launcher
        self._followed = followed
        self._alerts = alerts
        self._watches = watches
        self._budget = budget
        self._counted_launches = counted_launches
        self._polled_at: datetime | None = None
        self._answered: set[str] = set()

    def refresh(self, running: Sequence[Launch], now: datetime) -> None:
        """Fetch proposals if it is time and any launch runs here."""
        polled_at = self._polled_at
        if not running or (polled_at is not None and timedelta(0) <= now - polled_at < POLL_EVERY):
            return
        self._polled_at = now
        try:
            proposals = self._launcher.price_increases()
        except ProviderError as error:
            log.warning("price increases are unknown: %s", error, extra={"provider": self._launcher.name})
            return
        self._answered &= {proposal.increase_id for proposal in proposals}
        mine = {launch.instance_id: launch for launch in running}
        for proposal in proposals:
            if (launch := mine.get(proposal.instance_id)) is not None:
                self._met(launch, proposal, now)

    def fault(self, launch: Launch, now: datetime) -> EndCause | None:
        """Return an end cause if the launch must end now so that a rejected price never applies."""
        rise = self._followed.of(launch).refused_increase
        if (
            rise is None
            or launch.state is not LaunchState.RUNNING
            or not must_end_before_increase(rise.effective_at, now)
        ):
            return None
        return EndReason.PRICE_RAISED, rise.words

    def beyond_budget(self, launch: Launch, instance: Instance, now: datetime) -> EndCause | None:
        """Return an end cause if the list bills more than the launch was admitted with and a budget forbids it.

        A new instance is ended then, and so is a running one if the policy accepts prices under the threshold.
        Otherwise the owner decides, after the alert about the budget.
        """
        price = billed_rates(launch, instance)[1]
        if price <= launch.bound_microusd_hour:
            return None
        watch = governing_watch(launch, self._watches)
        policy = (
            watch.launch.on_price_increase
            if watch is not None and watch.launch is not None
            else PriceIncreasePolicy.ALERT
        )
        if launch.state is LaunchState.RUNNING and policy is not PriceIncreasePolicy.ACCEPT_UNDER:
            return None
        refusal = self._refusal(launch, price, Budget() if watch is None else watch.budget, now)
        if refusal is None:
            return None
        end = EndReason.PRICE_RAISED if launch.state is LaunchState.RUNNING else EndReason.BUDGET
        return end, refusal.said

    def _met(self, launch: Launch, proposal: PriceIncrease, now: datetime) -> None:
        raised = raised_microusd_hour(launch, proposal.new_usd_hour)
        words = _price_change(launch, proposal, raised)
        # if another rate rises too, the total price is unknown, and nothing is accepted automatically
        answer = self._answer(launch, None if proposal.words else raised, now)
        did = self._given(answer, proposal)
        if answer is IncreaseAnswer.ACCEPT:
            self._followed.of(launch).refused_increase = None
        elif answer is IncreaseAnswer.REJECT:
            refused = RefusedIncrease(effective_at=proposal.effective_at, words=words)
            self._followed.of(launch).refused_increase = refused
        extra = ""
        if raised is not None:
            text = texts.EXTRA_PER_DAY if launch.max_runtime_s is None else texts.EXTRA_IN_ALL
            more = extra_microusd(launch, raised, proposal.effective_at, now)
            extra = text.format(extra=dollars(usd(more)))
        self._alerts.report(
            launch,
            texts.PRICE_RAISED_UNANSWERED if answer is IncreaseAnswer.NONE else texts.PRICE_RAISED,
            now,
            increase=proposal.increase_id,
            answer=did.split(maxsplit=1)[0],
            words=words,
            did=did,
            at=texts.UNKNOWN_TIME if proposal.effective_at is None else format_moment(proposal.effective_at),
            extra=extra,
        )

    def _answer(self, launch: Launch, raised: int | None, now: datetime) -> IncreaseAnswer:
        watch = governing_watch(launch, self._watches)
        spec = None if watch is None else watch.launch
        if watch is None or spec is None:
            return IncreaseAnswer.NONE
        ceiling = rent_ceiling_microusd(watch, launch)
        fits = (
            spec.on_price_increase is PriceIncreasePolicy.ACCEPT_UNDER
            and raised is not None
            and self._refusal(launch, raised, watch.budget, now) is None
        )
        return increase_answer(spec.on_price_increase, raised, ceiling, fits)

    def _refusal(self, launch: Launch, raised: int, watch_budget: Budget, now: datetime) -> LaunchRefusal | None:
        """Return why a budget forbids the launch at this price, which is higher than it was admitted with, or None."""
        dearer = msgspec.structs.replace(launch, price_microusd_hour=raised)
        others = [
            counted_launch
            for counted_launch in self._counted_launches(now)
            if counted_launch.launch_id != launch.launch_id
        ]
        return all_budgets_refusal(dearer, others, self._budget, watch_budget, now)

    def _given(self, answer: IncreaseAnswer, proposal: PriceIncrease) -> str:
        """Send the answer once; return what was done, as text for the owner."""
        if answer is IncreaseAnswer.NONE:
            return texts.NOT_ANSWERED
        done = texts.ACCEPTED if answer is IncreaseAnswer.ACCEPT else texts.REJECTED
        if proposal.increase_id in self._answered:
            return done
        try:
            self._launcher.answer_increase(proposal.increase_id, accept=answer is IncreaseAnswer.ACCEPT)
        except (OrderError, ProviderError) as error:
            log.warning("price increase %s: cannot reply: %s", proposal.increase_id, error)
            if answer is IncreaseAnswer.ACCEPT:
                return texts.ACCEPTING
            return texts.NOT_CONFIRMED
        self._answered.add(proposal.increase_id)
        return done


def _price_change(launch: Launch, proposal: PriceIncrease, raised: int | None) -> str:
    prices = (
        "" if raised is None else f"${price_text(usd(launch.price_microusd_hour))} → ${price_text(usd(raised))} an hour"
    )
    return "; ".join(part for part in (prices, proposal.words) if part) or texts.UNKNOWN_AMOUNT
