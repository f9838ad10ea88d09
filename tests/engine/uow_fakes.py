"""Fakes of the engine's ports: a unit of work in memory, a market that answers from a script."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import msgspec

from gpuwatch.domain.launches.launch import Intent, Launch, LaunchRefusal, new_launch
from gpuwatch.domain.launches.life.owner_decisions import Approval, unticked
from gpuwatch.domain.launches.past_decision import PastDecision
from gpuwatch.domain.market.offer import Identity, Offer
from gpuwatch.domain.market.outbid_risk import RecordedBid
from gpuwatch.domain.watches.decide import Decision, Match, WatchMemory
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.watches.evaluator import Evaluator
from gpuwatch.errors import ProviderError, StoreError
from gpuwatch.ports import Alert, Answer, Completeness, OutboxAlert, ProviderHealth, Query
from gpuwatch.ports.market import Hold

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def an_answer(
    *offers: Offer,
    completeness: Completeness = Completeness.COMPLETE,
    at: datetime = NOON,
    complete_to: float | None = None,
    provider: str = "vastai",
    skipped: Mapping[str, int] | None = None,
    drift: Sequence[str] = (),
) -> Answer:
    return Answer(
        provider=provider,
        observed_at=at,
        offers=offers,
        completeness=completeness,
        rows=len(offers),
        complete_to_usd_hour=complete_to,
        skipped=skipped or {},
        drift=drift,
    )


class ScriptedMarket:
    """Returns one script entry per search; the last one repeatedly."""

    def __init__(self, *script: Answer | ProviderError, name: str = "vastai") -> None:
        self.name = name
        self.script = list(script)
        self.asked: list[Query] = []

    def search(self, query: Query) -> Answer:
        self.asked.append(query)
        entry = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(entry, ProviderError):
            raise entry
        return entry


class MemoryUnitOfWork:
    """Keeps writes in memory; a block that raises leaves nothing."""

    def __init__(self, refusal: LaunchRefusal | None = None) -> None:
        self.refusal = refusal
        self.left_open = False
        self.once_keys: set[str] = set()
        self.ticked: set[str] = set()
        self.remembered: dict[str, WatchMemory] = {}
        self.launches: list[Launch] = []
        self.intents: list[Intent] = []
        self.alerts: list[tuple[Alert, tuple[str, ...]]] = []
        self.kept_health: dict[tuple[str, str], ProviderHealth] = {}
        self.holds: dict[tuple[str, str], Hold] = {}
        self.words: set[tuple[str, str, str]] = set()
        self.asks: list[Approval] = []
        self.decisions: list[tuple[str, PastDecision]] = []
        self.recorded_bids: dict[Identity, Sequence[RecordedBid]] = {}
        self.transactions = 0
        self.full = False  # True: nothing can be written

    def memories(self) -> Mapping[str, WatchMemory]:
        return dict(self.remembered)

    def newest_decisions(self) -> Mapping[str, PastDecision]:
        return dict(self.decisions)

    def provider_health(self) -> Mapping[tuple[str, str], ProviderHealth]:
        return dict(self.kept_health)

    @contextmanager
    def open(self) -> Iterator[MemoryPage]:
        if self.full:
            raise StoreError("the disk is full")
        uow = MemoryPage(self)
        yield uow
        self.transactions += 1
        self.remembered.update(uow.remembered)
        self.launches += uow.launches
        self.asks += uow.asks
        self.decisions += uow.decisions
        self.alerts += uow.alerts


class MemoryPage:
    def __init__(self, uow_factory: MemoryUnitOfWork) -> None:
        self._unit_of_work = uow_factory
        self.remembered: dict[str, WatchMemory] = {}
        self.launches: list[Launch] = []
        self.alerts: list[tuple[Alert, tuple[str, ...]]] = []
        self.asks: list[Approval] = []
        self.decisions: list[tuple[str, PastDecision]] = []

    def record_decision(self, watch: str, decision: PastDecision) -> None:
        self.decisions.append((watch, decision))

    def memories(self, watches: Collection[str]) -> Mapping[str, WatchMemory]:
        return {name: memory for name, memory in self._unit_of_work.remembered.items() if name in watches}

    def health(self, provider: str, lane: str) -> ProviderHealth:
        return self._unit_of_work.kept_health.get((provider, lane), ProviderHealth())

    def hold(self, provider: str, kind: str) -> Hold | None:
        return self._unit_of_work.holds.get((provider, kind))

    def save_memory(self, watch: str, memory: WatchMemory) -> None:
        self.remembered[watch] = memory

    def reserve(self, intent: Intent, budget: Budget, now: datetime) -> tuple[Launch, Match] | LaunchRefusal:
        if self._unit_of_work.refusal is not None:
            return self._unit_of_work.refusal
        self._unit_of_work.intents.append(intent)
        launch = new_launch(intent, slot=0, now=now)
        self.launches.append(launch)
        return launch, intent.match

    def would_refuse(self, intent: Intent, budget: Budget, now: datetime) -> LaunchRefusal | None:
        return self._unit_of_work.refusal

    def would_refuse_instead(
        self, intent: Intent, leaving: Launch, budget: Budget, now: datetime
    ) -> LaunchRefusal | None:
        return self._unit_of_work.refusal

    def request_approval(
        self, intent: Intent, budget: Budget, deadline: datetime, now: datetime, ignores_denials: bool
    ) -> Approval | LaunchRefusal | None:
        if self._unit_of_work.refusal is not None:
            return self._unit_of_work.refusal
        self.asks.append(
            Approval(
                approval_id=intent.launch_id,
                watch=intent.watch.name,
                match=intent.match,
                created_at=now,
                deadline=deadline,
            )
        )
        return self.asks[-1]

    def unticked(self, watch: Watch) -> Sequence[str]:
        return unticked(watch, self._unit_of_work.ticked)

    def is_request_due(self, watch: str, fired_at: datetime, seen_at: datetime, now: datetime) -> bool:
        was_requested = any(ask.created_at >= fired_at for ask in self._unit_of_work.asks)
        return self._unit_of_work.left_open or not was_requested

    def recorded_bids(
        self, machines: Collection[Identity], since_s: int, until_s: int
    ) -> Mapping[Identity, Sequence[RecordedBid]]:
        bids = self._unit_of_work.recorded_bids
        return {machine: bids[machine] for machine in machines if machine in bids}

    def enqueue(self, outbox_alert: OutboxAlert) -> bool:
        if outbox_alert.once_key is not None:
            if outbox_alert.once_key in self._unit_of_work.once_keys:
                return False
            self._unit_of_work.once_keys.add(outbox_alert.once_key)
        self.alerts.append((outbox_alert.alert, outbox_alert.channels))
        return True

    def save_health(self, provider: str, lane: str, health: ProviderHealth) -> None:
        self._unit_of_work.kept_health[provider, lane] = health

    def save_hold(self, hold: Hold) -> None:
        self._unit_of_work.holds[hold.provider, hold.kind] = hold

    def record_new_value(self, provider: str, kind: str, word: str, now: datetime) -> bool:
        key = (provider, kind, word)
        new = key not in self._unit_of_work.words
        self._unit_of_work.words.add(key)
        return new


class Started(msgspec.Struct, frozen=True):
    """A launch that was handed to the executor."""

    launch: Launch
    watch: Watch
    candidates: tuple[Match, ...]


class FakeExecutor:
    """Records launches to rent, and states where nothing can be rented."""

    def __init__(self, why: Callable[[str, int], str | None] = lambda provider, price: None) -> None:
        self.why = why
        self.started: list[Started] = []

    def not_ready(self, provider: str, price_microusd_hour: int, watch: str) -> str | None:
        return self.why(provider, price_microusd_hour)

    def start(self, launch: Launch, watch: Watch, candidates: Sequence[Match]) -> None:
        self.started.append(Started(launch, watch, tuple(candidates)))


def evaluate(
    evaluator: Evaluator, watches: Sequence[Watch], answer: Answer, spot: bool, now: datetime
) -> list[Decision]:
    """Match and decide, like the hunt."""
    observed = evaluator.observe(watches, answer, now)
    return evaluator.evaluate(watches, answer.provider, spot, observed, now)
