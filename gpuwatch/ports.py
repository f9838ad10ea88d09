"""Every way gpuwatch touches the world. Open this page, and you have seen all effects.

The engine is written against these; `wiring` chooses what stands behind them. No error of a foreign library passes a
port: each method names the errors of `gpuwatch.errors` that it may raise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from gpuwatch.market.offer import Offer
from gpuwatch.market.pricing import Commission

if TYPE_CHECKING:
    from gpuwatch.watches.decide import Match, WatchMemory
    from gpuwatch.watches.launches import Intent, Launch, LaunchState, Refusal
    from gpuwatch.watches.watch import Budget


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One `[providers.NAME]`, as the adapter gets it. `api_key` is a secret: never logged, shown or stored."""

    name: str
    base_url: str
    api_key: str | None = None
    commission: Commission = Commission()
    poll_every_s: float = 30.0
    sweep_every_s: float | None = None  # None: "auto", as the row quota allows
    search_interval_s: float = 6.0  # the least time between two searches
    rows_per_day: int = 20_000  # 0: no quota
    timeout_s: float = 30.0

    def __repr__(self) -> str:
        return f"ProviderSettings({self.name!r}, {self.base_url!r})"


class TelegramSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[notify.telegram]`. `bot_token` is a secret."""

    bot_token: str
    chat_id: str
    base_url: str = "https://api.telegram.org"

    def __repr__(self) -> str:
        return f"TelegramSettings({self.chat_id!r}, {self.base_url!r})"


class EmailSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[notify.email]`. `password` is a secret."""

    host: str
    port: int
    security: str  # "starttls" | "tls" | "none"
    sender: str
    recipients: tuple[str, ...]
    username: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"EmailSettings({self.host!r}, {self.port}, {self.security!r})"


class AppriseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[notify.apprise]`. Every URL is a secret: most hold a token."""

    urls: tuple[str, ...]

    def __repr__(self) -> str:
        return f"AppriseSettings({len(self.urls)} urls)"


class Completeness(StrEnum):
    """How much of what was asked for an answer holds."""

    COMPLETE = "complete"  # everything that fits the query
    TRUNCATED = "truncated"  # the provider cut it (rows == limit) and it could not be split further
    PARTIAL = "partial"  # some of the searches behind it failed


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask a market. Filters only narrow what is sent: every offer is checked again on our side.

    `gpus` are canonical names (an uncatalogued spelling stands for itself); empty: all models.
    """

    gpus: tuple[str, ...] = ()
    count_min: int = 1
    count_max: int | None = None
    spot: bool = False
    disk_gb: float | None = None  # None: the provider's default quote
    max_listed_usd_hour: float | None = None  # whole offer; None: no bound (a sweep)
    verified: bool | None = None
    min_reliability: float | None = None
    limit: int | None = None  # rows wanted, cheapest first; None: all there are (walked past the cap)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a market answered: cheapest first, no identity twice.

    `complete_to_usd_hour`: with TRUNCATED, offers are all known up to this listed price of the whole offer.
    """

    provider: str
    observed_at: datetime
    offers: Sequence[Offer]
    completeness: Completeness
    rows: int  # rows returned, counted against the quota
    searches: int = 1
    skipped: Mapping[str, int] = {}  # reason → rows that were not understood
    drift: Sequence[str] = ()  # "new field: x", "field gone: y"; each told once
    complete_to_usd_hour: float | None = None
    elapsed_s: float = 0.0


class Market(Protocol):
    """A provider's search side."""

    name: str

    def search(self, query: Query) -> Answer:
        """Offers that fit. May wait for the provider's search interval.

        Raises:
            ProviderError: no usable answer at all.
        """


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One instance to rent. `bid_usd_hour` is set for spot, and only then: without it the rent is on demand."""

    offer_id: str
    label: str
    image: str
    disk_gb: float
    bid_usd_hour: float | None = None
    onstart: str | None = None
    env: Mapping[str, str] = {}
    runtype: str = "ssh"
    template: str | None = None


class InstanceState(StrEnum):
    """A rented instance, in gpuwatch's words; `Instance.status` keeps the provider's own."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"  # not running, its disk is billed
    FAILED = "failed"  # will not come to life by itself
    UNKNOWN = "unknown"  # a word we do not know, or no heartbeat


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One instance at a provider, as its list shows it. Text is cleaned."""

    instance_id: str
    label: str | None
    state: InstanceState
    status: str  # the provider's own words
    machine_id: str | None = None
    gpu_wire: str | None = None
    gpu_count: int | None = None
    spot: bool | None = None
    listed_usd_hour: float | None = None
    gpu_utilisation: float | None = None  # percent; None: not measured, never 0
    ssh_host: str | None = None
    ssh_port: int | None = None
    started_at: datetime | None = None


class Created(msgspec.Struct, frozen=True, kw_only=True):
    """The provider's receipt. `starting` False: a contract exists but does not run (a lost bid); it is billed."""

    instance_id: str
    starting: bool = True


class Launcher(Protocol):
    """A provider's renting side. No method repeats a request that changes something."""

    name: str

    def create(self, order: Order) -> Created:
        """Rent, once.

        Raises:
            OfferGone, OrderRefused, OrderRateLimited: nothing was made.
            OutcomeUnknown: anything else; look the label up before doing anything again.
        """

    def list_instances(self) -> Sequence[Instance]:
        """Every instance of the account, all pages.

        Raises:
            ProviderError: also when a page is missing or odd: a short list is never returned as a whole one.
        """

    def destroy(self, instance_id: str) -> None:
        """End it for good; an instance that is gone already is no error. A return is not yet proof: list.

        Raises:
            OrderError, ProviderError: not done, or not known.
        """

    def credit_usd(self) -> float | None:
        """What the account can still spend; None: the provider does not say. Raises ProviderError."""


class Channel(Protocol):
    """Takes alerts to a person."""

    name: str

    def send(self, alert: Alert) -> None:
        """Deliver once.

        Raises:
            DeliverLater: try again later.
            DeliveryRefused: this channel will not take it.
        """


@runtime_checkable
class ManyRecipients(Protocol):
    """A channel that mails several people, and remembers who needs no further try."""

    def send_rest(self, alert: Alert, taken: Sequence[str]) -> None:
        """`send`, without those whose keys an earlier try raised as `taken`."""


@runtime_checkable
class InBatches(Protocol):
    """A channel that keeps its connection from one alert to the next."""

    def batch(self) -> AbstractContextManager[object]:
        """Keeps it open inside the block."""


@runtime_checkable
class MovableChat(Protocol):
    """A channel whose address may move while it is used."""

    home: str  # as the settings have it
    moved_to: str | None


class AlertKind(StrEnum):
    """What an alert is about."""

    OFFER = "offer"  # a watch fired
    LAUNCH = "launch"  # a launch moved on: requested, running, ended, failed
    HELD = "held"  # a launch needs the owner
    ORPHAN = "orphan"  # a labelled instance that the table does not know
    BLIND = "blind"  # a provider stopped answering
    SEEING = "seeing"  # … and is back
    DRIFT = "drift"  # a provider's format changed
    REFUSED = "refused"  # a launch was refused: budget, credit, limits
    CHANNEL = "channel"  # another channel is broken
    TEST = "test"


class OfferLine(msgspec.Struct, frozen=True, kw_only=True):
    """One offer as an alert shows it. Money is decimal text in US dollars, finished for showing."""

    gpu: str
    gpu_count: int
    price_usd_gpu_hour: str
    listed_usd_gpu_hour: str
    price_usd_hour: str
    place: str
    reliability: str
    provider: str
    offer_id: str
    machine_id: str | None = None
    spot: bool = False
    verified: bool | None = None
    url: str | None = None


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One message to the owner, in parts; each channel lays it out and escapes it in its own way.

    All text may hold what a marketplace's host wrote: cleaned of control characters, not escaped.
    """

    alert_id: str
    kind: AlertKind
    created_at: datetime
    headline: str  # one line; also the mail's subject
    watch: str | None = None
    facts: tuple[tuple[str, str], ...] = ()  # label → value, in order
    offers: tuple[OfferLine, ...] = ()  # the cheapest, at most three
    why: str = ""  # why now
    did: str = ""  # what gpuwatch did
    can_do: tuple[str, ...] = ()  # what the owner can do
    parts: tuple[Alert, ...] = ()  # several watches fired in one poll: one alert each, told in one message


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """One alert that one channel is to send now; it is leased, so nobody else sends it meanwhile."""

    alert: Alert
    channel: str
    attempts: int  # earlier ones, without this
    taken: tuple[str, ...] = ()  # of several recipients, those that need no further try
    missed: tuple[tuple[str, str], ...] = ()  # (alert_id, headline) of earlier ones that this channel never took


class Outgoing(Protocol):
    """The outbox as its sender sees it. `now` is given; all methods raise StoreError."""

    def start(self, channels: Sequence[str]) -> int:
        """A sender begins, with these channels; how many deliveries it takes over from channels that are gone."""

    def lease(self, now: datetime, limit: int, lease_s: float, channels: Sequence[str] | None = None) -> Sequence[Due]:
        """Claim what is due, in order; None: of any channel."""

    def release(self, due: Due) -> None:
        """Give a lease back untouched: there was no time for it."""

    def settle_sent(self, due: Due, now: datetime, note: str | None = None) -> None:
        """The channel took it; `note`: what went wrong on the way, redacted."""

    def settle_later(self, due: Due, next_try_at: datetime, error: str, taken: Sequence[str] = ()) -> None:
        """Not before `next_try_at`, for this and all that wait behind it."""

    def settle_refused(self, due: Due, error: str, probe_at: datetime) -> None:
        """The channel will not take it; nothing else is tried there before `probe_at`."""

    def expire(self, now: datetime) -> int:
        """Give up what is past its time; how many deliveries."""

    def unsaid(self) -> Mapping[str, int]:
        """Channel → deliveries given up there that no message has mentioned and none waiting will mention."""

    def also(self, alert_id: str, channels: Sequence[str]) -> int:
        """Send it on these channels too, where it is not already; how many were added."""

    def moved_chat(self, chat_id: str) -> str | None:
        """Where a chat has moved to; None: nowhere."""

    def note_moved_chat(self, chat_id: str, new_chat_id: str, now: datetime) -> None:
        """Keep it for the next start."""

    def tell(self, alert: Alert, channels: Sequence[str], expires_at: datetime, once_key: str | None = None) -> bool:
        """Put an alert in; False: `once_key` was told already."""


class Now(Protocol):
    """The clock: aware, UTC. Only `wiring` reads the real one."""

    def __call__(self) -> datetime: ...


class News(msgspec.Struct, frozen=True, kw_only=True):
    """An alert on its way into the outbox."""

    alert: Alert
    channels: tuple[str, ...]
    expires_at: datetime
    once_key: str | None = None  # at most one alert ever bears it


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a provider's answers; kept in the store."""

    complete_at: datetime | None = None  # the newest complete answer
    blind_since: datetime | None = None  # set once the owner was told
    last_error: str | None = None


class Page(Protocol):
    """One open transaction of the desk: what follows from a decision is kept whole, or not at all."""

    def remember(self, watch: str, remembered: WatchMemory) -> None:
        """Keep what a watch remembers."""

    def reserve(self, intent: Intent, budget: Budget, now: datetime) -> Launch | Refusal:
        """Take a free slot of the watch and the money for it, or say why not."""

    def tell(self, alert: Alert, channels: Sequence[str], expires_at: datetime, once_key: str | None = None) -> bool:
        """Put an alert into the outbox; False: `once_key` was told already."""

    def keep_sight(self, provider: str, sight: Sight) -> None:
        """Keep what is known of a provider's answers."""

    def new_word(self, provider: str, kind: str, word: str, now: datetime) -> bool:
        """Note a word (a GPU spelling, a field); True: it was never met before."""


class Desk(Protocol):
    """Where decisions are written down."""

    def memories(self) -> Mapping[str, WatchMemory]:
        """What each watch remembers. Raises StoreError."""

    def sights(self) -> Mapping[str, Sight]:
        """What is known of each provider's answers. Raises StoreError."""

    def open(self) -> AbstractContextManager[Page]:
        """A transaction: committed, durably, when the block ends. Raises StoreError."""


class PriceHistory(Protocol):
    """Keeps what was seen for sale, and that we looked."""

    def record(self, answer: Answer, *, lane: str, gpu: str, spot: bool) -> object:
        """Keep an answer. `gpu` "": it covers all models; a hunt covers nothing. Raises StoreError."""

    def record_failure(self, provider: str, *, lane: str, gpu: str, spot: bool, at: datetime, error: str) -> None:
        """Keep that a question was not answered: a gap, never "no offers". Raises StoreError."""

    def rows_used(self, provider: str, now: datetime) -> int:
        """Rows returned since 00:00 UTC. Raises StoreError."""


class Books(Protocol):
    """The launches, as the beats see them. Each step is durable, with its alert, or did not happen."""

    def get(self, launch_id: str) -> Launch | None:
        """One launch. Raises StoreError."""

    def alive(self, provider: str | None = None) -> Sequence[Launch]:
        """Those that are not over, oldest first. Raises StoreError."""

    def move(
        self, launch: Launch, to_state: LaunchState, cause: str, now: datetime, news: News | None = None, **changes: Any
    ) -> Launch:
        """One step, if nobody took another meanwhile. Raises LaunchMoved, StoreError."""

    def point_at(
        self, launch: Launch, match: Match, disk_gb: float | None, budget: Budget, now: datetime
    ) -> Launch | Refusal:
        """Ask for another offer instead, if budget and machine allow it. Raises LaunchMoved, StoreError."""

    def tell(self, news: News) -> bool:
        """Put an alert into the outbox; False: `once_key` was told already. Raises StoreError."""
