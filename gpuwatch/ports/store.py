"""The ports to the store: decisions, launches, prices; and the port to the keeper's file.

The keeper's file names the launches to end, so that ending them needs no database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol

from gpuwatch.domain.alerts.alert import OutboxAlert
from gpuwatch.domain.launches.instances.obligation import Obligation
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.ports.market import Answer, Hold, ProviderHealth

if TYPE_CHECKING:
    from gpuwatch.domain.forecasts.price_forecasts import ForecastScore, PriceForecast
    from gpuwatch.domain.history.past_lows import HourlyLows
    from gpuwatch.domain.history.price_series import PriceSeries
    from gpuwatch.domain.launches.launch import Intent, LaunchRefusal
    from gpuwatch.domain.launches.life.owner_decisions import Approval
    from gpuwatch.domain.launches.past_decision import PastDecision
    from gpuwatch.domain.market.offer import Identity, OfferKind
    from gpuwatch.domain.market.outbid_risk import RecordedBid
    from gpuwatch.domain.watches.decide import Match, WatchMemory
    from gpuwatch.domain.watches.launch_spec import Budget
    from gpuwatch.domain.watches.watch import Watch


class ObligationLog(Protocol):
    """Where obligations are written, before and while instances exist."""

    def record_order(self, launch: Launch, hook_s: float) -> None:
        """Write it durably before its order is sent; does nothing if it is already there.

        Args:
            hook_s: time that `before_stop` may take; 0 without that hook.

        Raises:
            StoreError: it was not written, so the order must not be sent.
        """

    def record_extension(self, launch: Launch) -> None:
        """Write its later end durably before the row is updated. Raises StoreError: it must not be extended."""

    def record_changes(self, launches: Iterable[Launch]) -> None:
        """Write what changed. Never raises: the file is a copy, and the next call catches up."""

    def open_launch_ids(self) -> frozenset[str]:
        """Launches of the open obligations. Raises StoreError: the file cannot be read."""


class ObligationReader(Protocol):
    """How the keeper reads obligations; never waits for writers."""

    def open_obligations(self) -> Sequence[Obligation]:
        """Open obligations in the current file. Raises StoreError: it cannot be read."""

    def recently_closed(self, since: datetime) -> Sequence[Obligation]:
        """Obligations closed since the given time, as of the last call of `open_obligations`."""

    def close(self, obligation: Obligation) -> None:
        """Close it: the provider reports that its instance is gone. Raises StoreError."""

    def reopen(self, obligation: Obligation) -> None:
        """Reopen it: its instance exists. Raises StoreError."""

    def note_disk_kept(self, obligation: Obligation) -> None:
        """Move its end: it was stopped, and its disk is kept for `keep_s` from its end on. Raises StoreError."""

    def note_report(self, obligation: Obligation) -> None:
        """Record what its owner was alerted about, for the next keeper. Raises StoreError."""


class NoObligationLog:
    """Writes nothing: for commands that only read, and for simulations."""

    def record_order(self, launch: Launch, hook_s: float) -> None:
        """Does nothing."""

    def record_extension(self, launch: Launch) -> None:
        """Does nothing."""

    def record_changes(self, launches: Iterable[Launch]) -> None:
        """Does nothing."""

    def open_launch_ids(self) -> frozenset[str]:
        """None."""
        return frozenset()


NO_OBLIGATION_LOG = NoObligationLog()


class UnitOfWork(Protocol):
    """One open transaction: all results of a decision are stored completely or not at all.

    What another process may have changed since (`memories`, `health`, `hold`) is read in it: whoever reads first
    decides, and the others wait until its decision is stored.
    """

    def memories(self, watches: Collection[str]) -> Mapping[str, WatchMemory]:
        """The memories of these watches, as stored now."""

    def health(self, provider: str, lane: str) -> ProviderHealth:
        """The health of a provider's lane, as stored now."""

    def hold(self, provider: str, kind: str) -> Hold | None:
        """The last hold of a class of requests, as stored now."""

    def save_memory(self, watch: str, memory: WatchMemory) -> None:
        """Store the memory of a watch."""

    def record_decision(self, watch: str, decision: PastDecision) -> None:
        """Store what a watch decided, for its owner who asks later."""

    def reserve(self, intent: Intent, budget: Budget, now: datetime) -> tuple[Launch, Match] | LaunchRefusal:
        """Reserve a free slot of the watch and its budget; returns the launch and its match, or a refusal."""

    def would_refuse(self, intent: Intent, budget: Budget, now: datetime) -> LaunchRefusal | None:
        """Why `reserve` would refuse now, or None. Reserves nothing."""

    def would_refuse_instead(
        self, intent: Intent, leaving: Launch, budget: Budget, now: datetime
    ) -> LaunchRefusal | None:
        """Why `reserve` would refuse if an active launch had just ended, or None. Reserves nothing."""

    def request_approval(
        self, intent: Intent, budget: Budget, deadline: datetime, now: datetime, ignores_denials: bool
    ) -> Approval | LaunchRefusal | None:
        """Request approval for the first offer that could be rented now; the intent's id becomes the approval's id.

        An open approval for the same offer stays valid unless it now costs more. A refusal: none could be rented, and
        no approval is requested. None: the owner denied all of them recently; `ignores_denials` ignores that.
        """

    def unticked(self, watch: Watch) -> Sequence[str]:
        """Items that the watch requires before it rents, and that are not ticked."""

    def is_request_due(self, watch: str, fired_at: datetime, seen_at: datetime, now: datetime) -> bool:
        """Whether a watch that fired then still needs an approval of what was offered at `seen_at`.

        None could be requested when it fired, or the owner recently approved a quote that was no longer valid, it was
        offered after that, and none was requested since.
        """

    def recorded_bids(
        self, machines: Collection[Identity], since_s: int, until_s: int
    ) -> Mapping[Identity, Sequence[RecordedBid]]:
        """The recorded prices of spot machines in a span of seconds since 1970, by one query."""

    def enqueue(self, outbox_alert: OutboxAlert) -> bool:
        """Store an alert in the outbox; False: there is already an alert with this `once_key`."""

    def save_health(self, provider: str, lane: str, health: ProviderHealth) -> None:
        """Store the health of a provider's lane."""

    def save_hold(self, hold: Hold) -> None:
        """Store a hold in place of the last one of its class."""

    def record_new_value(self, provider: str, kind: str, new_value: str, now: datetime) -> bool:
        """Record a value (a GPU spelling, a field); True: it was never seen before."""


class UnitOfWorkFactory(Protocol):
    """Stores decisions."""

    def memories(self) -> Mapping[str, WatchMemory]:
        """The memory of each watch. Raises StoreError."""

    def newest_decisions(self) -> Mapping[str, PastDecision]:
        """The last recorded decision of each watch. Raises StoreError."""

    def provider_health(self) -> Mapping[tuple[str, str], ProviderHealth]:
        """The health by provider and lane. Raises StoreError."""

    def open(self) -> AbstractContextManager[UnitOfWork]:
        """A transaction, committed durably when the block ends. Raises StoreError."""


class PollHistory(Protocol):
    """Stores offers on sale, and polls."""

    def record(self, answer: Answer, *, lane: str, gpu: str, spot: bool) -> object:
        """Store an answer. `gpu` "": it covers all models; a hunt covers nothing. Raises StoreError."""

    def record_failure(self, provider: str, *, lane: str, gpu: str, spot: bool, at: datetime, error: str) -> None:
        """Store that a search was not answered: a gap, never "no offers". Raises StoreError."""

    def rows_used(self, provider: str, now: datetime) -> int:
        """Rows returned since 00:00 UTC. Raises StoreError."""


class AlertQueue(Protocol):
    """Stores alerts to be sent."""

    def enqueue(self, outbox_alert: OutboxAlert) -> bool:
        """Store an alert in the outbox; False: there is already an alert with this `once_key`. Raises StoreError."""

    def newest_key(self, prefix: str, now: datetime) -> str | None:
        """Return the newest key that begins so, of an alert that has not expired. Raises StoreError."""


class HourlyLowsReader(Protocol):
    """The cheapest price of each hour."""

    def hourly_lows(
        self, gpus: Collection[str] | None, since: datetime, until: datetime, *, verified: bool = False
    ) -> Mapping[tuple[str, OfferKind, str, bool], HourlyLows]:
        """By provider, kind of price, GPU and spot; `gpus` None: all. Raises StoreError.

        Args:
            verified: only of verified hosts, in hours that are over.
        """


class PastPriceReader(Protocol):
    """The prices that `new_low`, `drop_by` and `percentile` compare with."""

    def series(self, watch: Watch, since: datetime, now: datetime) -> PriceSeries:
        """The lowest hourly prices of offers that match a watch at any price, including imports. Raises StoreError."""


class AutoPriceRepository(Protocol):
    """The start of the wait of a watch with `max_price = "auto"`, and its history. All methods raise StoreError."""

    def wait_started_at(self, watch: Watch, now: datetime) -> datetime | None:
        """When it was first evaluated; None: never. After a launch that ran, its wait starts again."""

    def begin_wait(self, watch: Watch, now: datetime) -> datetime:
        """Store that its wait begins now, unless it has begun; returns when it began."""

    def save_limit(self, watch: Watch, limit_usd_gpu_hour: Decimal, now: datetime) -> None:
        """Store the current limit for other readers."""

    def delete_except(self, watches: Collection[str]) -> None:
        """Remove the wait of a watch that is no longer in the settings."""

    def series(self, watch: Watch, now: datetime) -> PriceSeries:
        """The lowest price of each hour of matching offers, as far back as useful."""

    def forget_except(self, watches: Collection[str]) -> None:
        """Forget what is kept in memory for all other watches."""


class ForecastRepository(Protocol):
    """Stores price forecasts and their outcomes. All methods raise StoreError."""

    def add(self, forecast: PriceForecast) -> None:
        """Store a forecast."""

    def all(self) -> Sequence[tuple[PriceForecast, ForecastScore | None]]:
        """Every forecast with its score, oldest first; None: not scored yet."""

    def scored(self) -> Iterable[tuple[PriceForecast, ForecastScore | None]]:
        """The same without the limits of the forecasts, one at a time."""

    def unscored(self, due_before: datetime) -> Sequence[PriceForecast]:
        """Forecasts whose deadline has passed, without a score."""

    def newest_of(self, watch: str) -> PriceForecast | None:
        """The newest forecast of a watch."""

    def save_score(self, forecast_id: str, score: ForecastScore) -> None:
        """Store the outcome; an existing score does not change."""

    def series(self, forecast: PriceForecast, now: datetime) -> PriceSeries:
        """The lowest price of each hour from the forecast until now."""
