"""The ports to the store: decisions, launches, prices; and the port to the keeper's file.

The keeper's file names the launches to end, so that ending them needs no database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from gpuwatch.domain.launches.instances.obligation import Obligation
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.ports.alerts import OutboxAlert
from gpuwatch.ports.market import Answer, Hold

if TYPE_CHECKING:
    from gpuwatch.domain.forecasts.price_forecasts import ForecastScore, PriceForecast
    from gpuwatch.domain.history.past_lows import HourlyLows
    from gpuwatch.domain.history.price_series import PriceSeries
    from gpuwatch.domain.launches.launch import Intent, LaunchEvent, LaunchRefusal, LaunchState
    from gpuwatch.domain.launches.life.owner_decisions import Approval
    from gpuwatch.domain.launches.life.strays import UnknownInstance
    from gpuwatch.domain.launches.money.charge_comparison import InvoiceRow
    from gpuwatch.domain.market.offer import OfferKind
    from gpuwatch.domain.watches.decide import Match, WatchMemory
    from gpuwatch.domain.watches.watch import Budget, Watch


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


class ProviderHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a provider answers on one lane; stored."""

    complete_at: datetime | None = None  # the newest complete answer
    blind_since: datetime | None = None
    last_error: str | None = None
    not_understood: bool = False  # blind because no row was understood; ends only with an understood row
    reported: bool = True  # False: blind as well, but covered by another lane's alert


class UnitOfWork(Protocol):
    """One open transaction: all results of a decision are stored completely or not at all."""

    def save_memory(self, watch: str, memory: WatchMemory) -> None:
        """Store the memory of a watch."""

    def reserve(self, intent: Intent, budget: Budget, now: datetime) -> tuple[Launch, Match] | LaunchRefusal:
        """Reserve a free slot of the watch and its budget; returns the launch and its match, or a refusal."""

    def request_approval(
        self, intent: Intent, budget: Budget, deadline: datetime, now: datetime, ignores_denials: bool
    ) -> Approval | LaunchRefusal | None:
        """Request approval for the first offer that could be rented now; the intent's id becomes the approval's id.

        An open approval for the same offer stays valid unless it now costs more. A refusal: none could be rented, and
        no approval is requested. None: the owner denied all of them recently; `ignores_denials` ignores that.
        """

    def unticked(self, watch: Watch) -> Sequence[str]:
        """Items that the watch requires before it rents, and that are not ticked."""

    def is_request_due(self, watch: str, fired_at: datetime, now: datetime) -> bool:
        """Whether a watch that fired then still needs an approval.

        None could be requested when it fired, or the owner recently approved a quote that was no longer valid, and none
        was requested since.
        """

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

    def provider_health(self) -> Mapping[tuple[str, str], ProviderHealth]:
        """The health by provider and lane. Raises StoreError."""

    def open(self) -> AbstractContextManager[UnitOfWork]:
        """A transaction, committed durably when the block ends. Raises StoreError."""


class ApprovalRepository(Protocol):
    """Approvals, for the handlers of the owner's answers. All methods raise StoreError."""

    def get(self, approval_id: str) -> Approval | None:
        """One approval."""

    def approve(self, approval_id: str, intent: Intent, budget: Budget, now: datetime) -> Launch | LaunchRefusal | None:
        """Approve it and reserve its launch in one transaction.

        A refusal leaves it open. None: it is no longer open, or has expired.
        """

    def mark_refused(self, approval_id: str, reason: str, now: datetime) -> bool:
        """The quote is no longer valid; False: it was not open."""

    def deny(self, approval_id: str, reason: str, now: datetime) -> bool:
        """The owner denies it; False: it was already answered."""


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


class LaunchReader(Protocol):
    """Reads launches."""

    def get(self, launch_id: str) -> Launch | None:
        """One launch. Raises StoreError."""

    def alive(self, provider: str | None = None) -> Sequence[Launch]:
        """Active launches, oldest first. Raises StoreError."""

    def all(self) -> Sequence[Launch]:
        """Return every launch, ended ones included, newest first. Raises StoreError."""

    def reopened(self) -> Sequence[Launch]:
        """Active launches that had ended before. Raises StoreError."""

    def events(self, launch_id: str) -> Sequence[LaunchEvent]:
        """Its transitions, oldest first. Raises StoreError."""


class LaunchWriter(Protocol):
    """Changes launches. Each transition is stored durably with its alert, or not at all."""

    def transition(  # noqa: PLR0913 the row, its event and its alert are one transaction
        self,
        launch: Launch,
        to_state: LaunchState,
        cause: str,
        now: datetime,
        outbox_alert: OutboxAlert | None = None,
        *,
        message: str | None = None,
        hook: str | None = None,
        **changes: Any,
    ) -> Launch:
        """Apply one transition, unless the launch was changed concurrently. Raises LaunchConflict, StoreError.

        Args:
            hook: the owner's hook to run afterwards.
        """

    def retarget(  # noqa: PLR0913 the last two are further fields of the row
        self,
        launch: Launch,
        match: Match,
        watch: Watch,
        budget: Budget,
        now: datetime,
        *,
        provider_fields: Mapping[str, Any] | None = None,
        message: str | None = None,
        is_last_resort: bool = False,
    ) -> Launch | LaunchRefusal:
        """Switch to another offer, if pause, machine and budget allow it. Raises LaunchConflict, StoreError.

        Args:
            provider_fields: fields that change if the offer is from another provider (`place_fields`).
            is_last_resort: no other candidate is left, so stock of a place that failed lately may be ordered again.
            message: why the previous offer was not rented.
        """

    def extend(
        self, launch: Launch, by_s: float, budget: Budget, watch_budget: Budget, now: datetime
    ) -> Launch | LaunchRefusal:
        """Extend its end, if the budgets allow it. Raises LaunchConflict, StoreError."""

    def may_send(self, launch: Launch, now: datetime) -> LaunchRefusal | None:
        """The last check before an order is sent; None: it may be sent. Raises LaunchConflict, StoreError otherwise."""


class InstanceRecords(Protocol):
    """Tells which instances launches have or had, and which the owner assigned to other installations."""

    def accounted_instances(self, provider: str, instance_ids: Collection[str]) -> frozenset[str]:
        """Which of them a launch has or had, or the owner assigned to other installations. Raises StoreError."""

    def ended_with_instances(self, provider: str, instance_ids: Collection[str]) -> Sequence[Launch]:
        """Ended launches that had one of these instances, oldest first. Raises StoreError."""

    def known_foreign_instances(self, provider: str) -> frozenset[str]:
        """Ids of labelled instances that the owner assigned to other installations. Raises StoreError."""

    def foreign_installations(self) -> frozenset[str]:
        """Ids of installations whose instances the owner assigned to others. Raises StoreError."""


class UnknownInstanceRepository(Protocol):
    """Labelled instances that belong to no active launch."""

    def unknown_instances(self, provider: str) -> Sequence[UnknownInstance]:
        """Instances that block renting there until they are resolved, oldest first. Raises StoreError."""

    def add_unknown_instance(self, unknown: UnknownInstance) -> None:
        """Store one; an existing one does not change. Raises StoreError."""

    def remove_unknown_instance(self, unknown: UnknownInstance) -> None:
        """Mark as resolved. Raises StoreError."""


class LaunchRepository(LaunchReader, LaunchWriter, InstanceRecords, UnknownInstanceRepository, AlertQueue, Protocol):
    """Everything that is stored about launches, for those who follow them. Others name the part that they use."""


class AccountRepository(Protocol):
    """The accounts at providers, by the provider's id or by the hash of a key. All methods raise StoreError."""

    def ensure_key_account(self, provider: str, key: str, now: datetime) -> str:
        """The account id of a key if the provider reports none: a salted hash."""

    def canonical_account(self, provider: str, account_id: str) -> str | None:
        """The account that it is known to belong to; None: unknown."""

    def record(self, provider: str, key_account: str | None, account_id: str | None, now: datetime) -> str:
        """Store the account of a key, and return its id.

        Args:
            key_account: None: there is no key (a chain of credentials).
            account_id: as the provider reports it; None: not reported.
        """

    def set_launch_account(self, launch_id: str, account_id: str) -> None:
        """Store the account of a launch that an older gpuwatch started."""


class HourlyLowsReader(Protocol):
    """The cheapest price of each hour."""

    def hourly_lows(
        self, gpus: Collection[str] | None, since: datetime, until: datetime
    ) -> Mapping[tuple[str, OfferKind, str, bool], HourlyLows]:
        """By provider, kind of price, GPU and spot; `gpus` None: all. Raises StoreError."""


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


class ForecastRepository(Protocol):
    """Stores price forecasts and their outcomes. All methods raise StoreError."""

    def add(self, forecast: PriceForecast) -> None:
        """Store a forecast."""

    def all(self) -> Sequence[tuple[PriceForecast, ForecastScore | None]]:
        """Every forecast with its score, oldest first; None: not scored yet."""

    def unscored(self, due_before: datetime) -> Sequence[PriceForecast]:
        """Forecasts whose deadline has passed, without a score."""

    def newest_of(self, watch: str) -> PriceForecast | None:
        """The newest forecast of a watch."""

    def save_score(self, forecast_id: str, score: ForecastScore) -> None:
        """Store the outcome; an existing score does not change."""

    def series(self, forecast: PriceForecast, now: datetime) -> PriceSeries:
        """The lowest price of each hour from the forecast until now."""


class InvoiceRepository(Protocol):
    """Stores charges by provider, instance, UTC day and kind."""

    def all(self) -> Sequence[InvoiceRow]:
        """Known charges, oldest day first. Raises StoreError."""

    def final_days(self, provider: str) -> Collection[tuple[str, date]]:
        """(instance, day) pairs whose charges are final. Raises StoreError."""

    def save(self, rows: Sequence[InvoiceRow]) -> int:
        """Store rows. They replace those of the same (provider, instance, day), but final rows only by final rows.
        Returns the number of stored rows. Raises StoreError.
        """
