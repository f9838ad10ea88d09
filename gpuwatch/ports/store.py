"""The ports to the store: decisions, launches, prices."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from gpuwatch.ports.alerts import OutboxAlert
from gpuwatch.ports.market import Answer

if TYPE_CHECKING:
    from gpuwatch.domain.analysis.price_forecasts import ForecastScore, PriceForecast
    from gpuwatch.domain.analysis.price_rank import HourlyLows
    from gpuwatch.domain.analysis.price_series import PriceSeries
    from gpuwatch.domain.launches.approval import Approval
    from gpuwatch.domain.launches.invoices import InvoiceRow
    from gpuwatch.domain.launches.launch import Intent, Launch, LaunchEvent, LaunchRefusal, LaunchState
    from gpuwatch.domain.launches.unknown_instance import UnknownInstance
    from gpuwatch.domain.market.offer import OfferKind
    from gpuwatch.domain.watches.decide import Match, WatchMemory
    from gpuwatch.domain.watches.watch import Budget, Watch


class ProviderHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a provider answers on one lane; kept in the store."""

    complete_at: datetime | None = None  # the newest complete answer
    blind_since: datetime | None = None
    last_error: str | None = None
    not_understood: bool = False  # blind, because no row was understood: only rows that are understood end it
    reported: bool = True  # False: blind, too, with a lane whose alert covers both


class UnitOfWork(Protocol):
    """One open transaction: what follows from a decision is stored completely or not at all."""

    def remember(self, watch: str, remembered: WatchMemory) -> None:
        """Keep what a watch remembers."""

    def reserve(self, intent: Intent, budget: Budget, now: datetime) -> tuple[Launch, Match] | LaunchRefusal:
        """Take a free slot of the watch and the money for it: the launch and the match it is for, or why not."""

    def request_approval(
        self, intent: Intent, budget: Budget, deadline: datetime, now: datetime, rearmed: bool
    ) -> Approval | LaunchRefusal | None:
        """Ask the owner about the first offer that could be rented now; the intent's id becomes the ask's.

        An open approval for the same offer stands if that costs no more now. A refusal: nothing could be rented, and
        none is requested. None: the owner denied all of them lately; `rearmed` forgets that.
        """

    def unticked(self, watch: Watch) -> Sequence[str]:
        """What the watch requires before it rents, and its owner has not ticked."""

    def has_lapsed_approval(self, watch: str, now: datetime) -> bool:
        """Did the owner approve a quote lately that was no more, and was not asked again since?"""

    def enqueue(self, news: OutboxAlert) -> bool:
        """Put an alert into the outbox; False: an alert with this `once_key` is there already."""

    def save_health(self, provider: str, lane: str, health: ProviderHealth) -> None:
        """Keep what is known of a provider's answers on one lane."""

    def record_new_value(self, provider: str, kind: str, word: str, now: datetime) -> bool:
        """Note a word (a GPU spelling, a field); True: it was never met before."""

    def forget_values(self, provider: str, kind: str) -> None:
        """Forget all words of a kind: met again, they are new."""


class UnitOfWorkFactory(Protocol):
    """Where decisions are stored."""

    def memories(self) -> Mapping[str, WatchMemory]:
        """What each watch remembers. Raises StoreError."""

    def provider_health(self) -> Mapping[tuple[str, str], ProviderHealth]:
        """What is known of the answers, by provider and lane. Raises StoreError."""

    def open(self) -> AbstractContextManager[UnitOfWork]:
        """A transaction: committed, durably, when the block ends. Raises StoreError."""


class ApprovalRepository(Protocol):
    """Approvals, for whoever answers them. All methods raise StoreError."""

    def get(self, ask_id: str) -> Approval | None:
        """One approval."""

    def approve(self, ask_id: str, intent: Intent, budget: Budget, now: datetime) -> Launch | LaunchRefusal | None:
        """Approved, and its launch reserved, in one transaction.

        A refusal leaves it open. None: it is not open any more, or late.
        """

    def refuse(self, ask_id: str, words: str, now: datetime) -> bool:
        """What was quoted is no more; False: it was not open."""

    def deny(self, ask_id: str, why: str, now: datetime) -> bool:
        """The owner says no; False: it was answered already."""


class PollHistory(Protocol):
    """Keeps what was seen for sale, and that we looked."""

    def record(self, answer: Answer, *, lane: str, gpu: str, spot: bool) -> object:
        """Keep an answer. `gpu` "": it covers all models; a hunt covers nothing. Raises StoreError."""

    def record_failure(self, provider: str, *, lane: str, gpu: str, spot: bool, at: datetime, error: str) -> None:
        """Keep that a search was not answered: a gap, never "no offers". Raises StoreError."""

    def rows_used(self, provider: str, now: datetime) -> int:
        """Rows returned since 00:00 UTC. Raises StoreError."""


class LaunchRepository(Protocol):
    """The launches. Each transition is durable, with its alert, or did not happen."""

    def get(self, launch_id: str) -> Launch | None:
        """One launch. Raises StoreError."""

    def alive(self, provider: str | None = None) -> Sequence[Launch]:
        """Those that are not over, oldest first. Raises StoreError."""

    def transition(  # noqa: PLR0913 the row, its event and its alert are one step
        self,
        launch: Launch,
        to_state: LaunchState,
        cause: str,
        now: datetime,
        news: OutboxAlert | None = None,
        *,
        words: str | None = None,
        hook: str | None = None,
        **changes: Any,
    ) -> Launch:
        """One step, if nobody took another meanwhile. Raises LaunchConflict, StoreError.

        Args:
            hook: the owner's hook that it calls for; it is run afterwards.
        """

    def retarget(  # noqa: PLR0913 the two last are what the row says beside
        self,
        launch: Launch,
        match: Match,
        watch: Watch,
        budget: Budget,
        now: datetime,
        *,
        place: Mapping[str, Any] | None = None,
        words: str | None = None,
    ) -> Launch | LaunchRefusal:
        """Ask for another offer instead, if pause, machine and budget allow it. Raises LaunchConflict, StoreError.

        Args:
            place: fields that change because the offer is another provider's (`place_fields`).
            words: why the offer before was not rented.
        """

    def extend(
        self, launch: Launch, by_s: float, budget: Budget, of_watch: Budget, now: datetime
    ) -> Launch | LaunchRefusal:
        """Give it a later end, if the budgets allow it for that long. Raises LaunchConflict, StoreError."""

    def may_send(self, launch: Launch, now: datetime) -> LaunchRefusal | None:
        """The last look before an order is sent: None: it may be. Raises LaunchConflict, StoreError: it may not."""

    def known_foreign_instances(self, provider: str) -> frozenset[str]:
        """Ids of labelled instances that the owner said are not of this installation. Raises StoreError."""

    def foreign_installations(self) -> frozenset[str]:
        """Ids of installations whose instances the owner said are not of this one. Raises StoreError."""

    def unknown_instances(self, provider: str) -> Sequence[UnknownInstance]:
        """Instances that hold renting there until they are settled, oldest first. Raises StoreError."""

    def add_unknown_instance(self, unknown: UnknownInstance) -> None:
        """Keep one; of what is kept already nothing changes. Raises StoreError."""

    def remove_unknown_instance(self, unknown: UnknownInstance) -> None:
        """It is settled. Raises StoreError."""

    def over_with_instances(self, provider: str, instance_ids: Collection[str]) -> Sequence[Launch]:
        """Launches that are over and had one of these instances, the oldest first. Raises StoreError."""

    def accounted_instances(self, provider: str, instance_ids: Collection[str]) -> frozenset[str]:
        """Which of them a launch has or had, or the owner said are not of this installation. Raises StoreError."""

    def events(self, launch_id: str) -> Sequence[LaunchEvent]:
        """Its transitions, oldest first. Raises StoreError."""

    def reopened(self, provider: str | None = None) -> Sequence[Launch]:
        """Living launches that were over before. Raises StoreError."""

    def enqueue(self, news: OutboxAlert) -> bool:
        """Put an alert into the outbox; False: an alert with this `once_key` is there already. Raises StoreError."""


class AccountRepository(Protocol):
    """The accounts at providers, by the provider's own id or by the hash of a key. All methods raise StoreError."""

    def key_account(self, provider: str, key: str, now: datetime) -> str:
        """The id of a key's account where the provider names none: a salted hash."""

    def known(self, provider: str, account_id: str) -> str | None:
        """The account that this one turned out to be; None: it was never seen."""

    def record(self, provider: str, key_account: str | None, account_id: str | None, now: datetime) -> str:
        """Keep what a key's account is, and return its id.

        Args:
            key_account: None: there is no key of its own (a chain of credentials).
            account_id: as the provider names it; None: it does not.
        """

    def claim(self, launch_id: str, account_id: str) -> None:
        """Note the account of a launch that an older gpuwatch began."""


class HourlyLowsReader(Protocol):
    """The cheapest price of each hour."""

    def hourly_lows(
        self, gpus: Collection[str] | None, since: datetime, until: datetime
    ) -> Mapping[tuple[str, OfferKind, str, bool], HourlyLows]:
        """By provider, kind of price, GPU and spot; `gpus` None: all. Raises StoreError."""


class PastPriceReader(Protocol):
    """The prices that `new_low`, `drop_by` and `percentile` compare with."""

    def series(self, watch: Watch, since: datetime, now: datetime) -> PriceSeries:
        """The lowest price of each hour of what fits a watch at any price, imported ones too. Raises StoreError."""


class AutoPriceRepository(Protocol):
    """When the wait of a watch with `max_price = "auto"` began, and its history. All methods raise StoreError."""

    def began(self, watch: Watch, now: datetime) -> datetime:
        """When it was first looked at: now, if it never was. After a launch that ran, its wait begins anew."""

    def save_limit(self, watch: Watch, limit_usd_gpu_hour: Decimal, now: datetime) -> None:
        """Note the limit in force, for whoever asks."""

    def forget_except(self, watches: Collection[str]) -> None:
        """A watch that is not in the settings any more waits for nothing."""

    def series(self, watch: Watch, now: datetime) -> PriceSeries:
        """The lowest price of each hour of what fits the watch, as far back as is of use."""


class ForecastRepository(Protocol):
    """Keeps what was stated of future prices, and what came true. All methods raise StoreError."""

    def add(self, made: PriceForecast) -> None:
        """Keep a statement."""

    def all(self) -> Sequence[tuple[PriceForecast, ForecastScore | None]]:
        """Every statement with its score, oldest first; None: not kept yet."""

    def unscored(self, due_before: datetime) -> Sequence[PriceForecast]:
        """Statements whose deadline is past, without a score."""

    def newest_of(self, watch: str) -> PriceForecast | None:
        """The newest statement of a watch."""

    def settle(self, forecast_id: str, score: ForecastScore) -> None:
        """Keep what came true; a score that is kept already stays."""

    def series(self, made: PriceForecast, now: datetime) -> PriceSeries:
        """The lowest price of each hour from the statement on, up to now."""


class InvoiceRepository(Protocol):
    """Keeps charges by provider, instance, UTC day and kind."""

    def all(self, provider: str | None = None) -> Sequence[InvoiceRow]:
        """What is known, oldest day first. Raises StoreError."""

    def final(self, provider: str) -> Collection[tuple[str, date]]:
        """(instance, day) whose charges will not change any more. Raises StoreError."""

    def keep(self, rows: Sequence[InvoiceRow]) -> int:
        """Keep rows; each (provider, instance, day) among them is as these rows say, but what is final stays unless
        they are final, too. Answers how many rows were kept. Raises StoreError.
        """
