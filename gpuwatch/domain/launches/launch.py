"""A launch: one decision to rent, from the intent to the end of the instance, with its states and prices. Pure.

`ended` counts as rented: it ran, or somebody ended it. `failed` means that nothing of it is left and that it never
ran, so it does not count towards `max_total`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from gpuwatch.domain.launches.instance import LABEL_LENGTH, SshAddress, label_of
from gpuwatch.domain.launches.interruption import InterruptionNotice
from gpuwatch.domain.launches.kept_disk import KeptDisk
from gpuwatch.domain.launches.rent_terms import RentTerms
from gpuwatch.domain.market.money import HOURS_A_MONTH, MICRO, microusd, threshold_microusd
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.watches.computed_limits import most_bid_microusd, quoted_bid_usd_hour
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.owner_names import Purpose
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.errors import GpuwatchError

WATCH_ENDED = timedelta(days=7)  # an instance belongs to its launch for this long after the launch's end
COMMAND_PLACE = "command"  # the provider name of a launch that a command of the owner carries out


class LaunchState(StrEnum):
    """The state of a launch; other programs read these names."""

    INTENDED = "intended"
    REQUESTED = "requested"  # the order may have been sent
    STARTING = "starting"  # an instance exists
    RUNNING = "running"
    STOPPING = "stopping"  # being destroyed, until its absence is proven
    ENDED = "ended"
    FAILED = "failed"  # nothing of it is left, and it never ran
    UNKNOWN = "unknown"  # the provider's answer was lost; the instance is being looked for
    HELD = "held"  # neither found nor proven absent; the owner decides


FINAL_STATES = frozenset({LaunchState.ENDED, LaunchState.FAILED})
LOST_STATES = frozenset(map(LaunchState, ("requested", "unknown", "held")))  # an instance with an unknown id may exist
_ALLOWED = {
    "intended": "requested failed ended",
    "requested": "requested starting running stopping failed unknown held",
    "starting": "starting running stopping ended",
    "running": "running stopping ended",
    "stopping": "stopping ended failed held",
    "unknown": "unknown starting running stopping failed held",
    "held": "starting running stopping failed",
    "ended": "starting running stopping",  # its instance is listed again
    "failed": "starting running stopping",
}
ALLOWED_TRANSITIONS: Mapping[LaunchState, frozenset[LaunchState]] = {
    LaunchState(state): frozenset(map(LaunchState, following.split())) for state, following in _ALLOWED.items()
}


class EndReason(StrEnum):
    """Why a launch ended. `Launch.end_reason` starts with one of these; the provider's own text may follow."""

    DRY_RUN = "dry run"
    OFFERS_GONE = "every offer was gone"
    PRICE_ROSE = "no longer at or under the threshold"
    NOT_CHECKED = "the price could not be checked again"
    BUDGET = "the budget does not allow the price as it is now"
    NO_CREDIT = "no credit"
    KEY = "the key was refused"
    BAD_ORDER = "the order was refused as wrong"
    REFUSED = "refused"
    NOT_SENT = "the provider was not reached"
    RATE_LIMITED = "too many orders"
    ABSENT = "proven that nothing was made"
    NO_CAPACITY = "the provider had no machine for it"  # after it had accepted the order
    RESOLVED_ABSENT = "resolved by the owner: nothing was made"
    BID_LOST = "the bid was lost"
    WRONG_TYPE = "rented on demand instead of spot"
    DEARER = "dearer than the threshold once rented"
    NOT_READY = "not running in time"
    BROKEN = "would not come to life"
    MAX_RUNTIME = "max_runtime is over"
    KEPT = "keep_disk_for is over"
    NOT_STOPPED = "it does not stay stopped"
    IDLE = "idle"
    NOT_AS_PROMISED = "not what was promised"
    NO_SSH = "its SSH port does not answer"
    TOO_SLOW = "its network is slower than wanted"
    OUTBID = "outbid"
    TAKEN_BACK = "taken back by its provider"
    OFFLINE = "its host is offline"
    OUTSIDE = "its active windows are closed"
    BUDGET_REACHED = "a budget is reached"
    PRICE_RAISED = "the host raises the price"
    CONTRACT_ENDS = "the host ends the contract"
    PAUSED = "renting is paused"
    STOPPED = "stopped by the owner"
    GONE = "gone at the provider"
    FINISHED = "finished"  # it ended by itself after running
    CRASHED = "its command failed"  # … with an exit code other than 0
    RENTED_NOTHING = "the command rented nothing"  # action "command": reported by its exit code
    NOT_RUN = "the command could not be started"

    def text(self, words: str = "") -> str:
        """The text as stored and shown."""
        return f"{self.value}: {words}" if words else self.value


class InstanceCondition(StrEnum):
    """What happened to the instance of a launch that still counts as running."""

    OUTBID = "outbid"  # waiting for its bid to win again; its disk is billed
    STOPPED = "stopped"  # somebody stopped it at the provider; its disk is billed
    OFFLINE = "offline"  # its host is unreachable
    UNLISTED = "unlisted"  # missing from the list, but not proven gone


class PriceSpan(msgspec.Struct, frozen=True):
    """The hourly price from a moment on: with GPUs, or for the disk alone while the instance is stopped."""

    since: datetime
    listed_microusd_hour: int
    price_microusd_hour: int


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """What the offer promised, kept to check the instance and the bill. None: not stated in the offer."""

    gpu_memory_gib: float | None = None
    disk_gb: float | None = None
    cuda: float | None = None
    download_mbps: float | None = None
    download_usd_gb: float | None = None
    upload_usd_gb: float | None = None
    download_gb: float = 0.0  # traffic of one job, as set in the watch
    upload_gb: float = 0.0
    commission_rate: float = 0.0  # as computed, on top
    min_billing_s: float = 0.0  # the minimum that is billed
    billing_step_s: float = 0.0  # length of one billing step; 0: billed to the millisecond
    machines: int = 1  # number of machines, for budgets
    is_stock: bool = False  # any machine of a place, not a certain one
    region: str | None = None
    country: str | None = None
    reliability: float | None = None


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One stored launch. `version` is a fencing number that increases with every change."""

    launch_id: str
    watch: str
    slot: int
    provider: str
    offer_id: str
    machine_id: str | None
    gpu: str
    gpu_count: int
    spot: bool
    state: LaunchState
    dry_run: bool
    label: str
    listed_microusd_hour: int
    price_microusd_hour: int
    disk_microusd_hour: int = 0  # part of the listed price that is also billed before it runs
    max_runtime_s: float | None = None
    ready_within_s: float | None = None
    instance_id: str | None = None
    intended_at: datetime
    requested_at: datetime | None = None
    running_at: datetime | None = None
    ended_at: datetime | None = None
    end_reason: str | None = None
    most_microusd_hour: int = 0  # maximum price: with the maximum bid, disk and commission
    bid_microusd_hour: int | None = None  # current bid, listed, GPUs only; spot only
    spans: tuple[PriceSpan, ...] = ()  # from the start of running; before that only the disk is billed
    condition: InstanceCondition | None = None
    condition_since: datetime | None = None
    promised: Promise = Promise()
    tries: int = 1  # number of offers that were ordered
    relaunch_of: str | None = None  # the outbid launch that it replaces
    offer_slot: int = 0  # distinguishes launches of the same offer, if the offer is stock
    account_id: str | None = None  # at the provider; None: unknown, as for launches of older versions
    install_id: str | None = None  # the installation that rented or adopted it
    watch_id: str | None = None  # its watch, independent of the watch's current name
    ssh: SshAddress | None = None  # where to log in; None: not known
    started_by: str | None = None  # who approved it, and through which face; None: its watch or job
    kept: KeptDisk | None = None  # None: it is to run
    interruption: InterruptionNotice | None = None  # the provider's newest notice; None: it gave none
    terms: str | None = None  # JSON: the watch's terms at admission, as far as they are needed later; no secrets
    version: int = 0

    @property
    def purpose(self) -> Purpose:
        """What it was rented for."""
        return Purpose.of(self.watch)

    @property
    def was_created(self) -> bool:
        """Return whether it has, had or may have an instance: its order may have been carried out."""
        began = self.instance_id is not None or self.running_at is not None
        return not self.dry_run and (began or self.state in LOST_STATES)

    @property
    def is_by_command(self) -> bool:
        """Return whether a command of the owner rented it, so that gpuwatch neither sees nor ends the result."""
        return self.provider == COMMAND_PLACE

    @property
    def is_over(self) -> bool:
        """Return whether nothing of it can be billed any more."""
        return self.state in FINAL_STATES

    @property
    def is_halted(self) -> bool:
        """Return whether it is to be stopped, or is, with its disk kept."""
        return self.kept is not None and not self.kept.is_starting

    @property
    def is_kept(self) -> bool:
        """Return whether only its disk is left: it was stopped with its disk kept, and a list shows that."""
        return self.is_halted and self.condition is InstanceCondition.STOPPED

    @property
    def bound_microusd_hour(self) -> int:
        """The highest possible price per hour, on which budgets admit it."""
        return max(self.price_microusd_hour, self.most_microusd_hour)

    @property
    def deadline(self) -> datetime | None:
        """The latest end; None without `max_runtime`. The instance is created with it; an extension moves only ours."""
        if self.max_runtime_s is None:
            return None
        return self.intended_at + timedelta(seconds=self.max_runtime_s + (self.ready_within_s or 0.0))

    @property
    def counts(self) -> bool:
        """Return whether it counts towards `max_total`: the instance became usable, whatever its command did."""
        is_counted = self.state is not LaunchState.FAILED or self.ended_because(EndReason.CRASHED)
        return is_counted and not self.dry_run

    def with_commission(self, listed_microusd: int) -> int:
        """Return a listed price plus the commission of the launch's admission."""
        if not self.listed_microusd_hour:
            return listed_microusd
        return round(listed_microusd * self.price_microusd_hour / self.listed_microusd_hour)

    def ended_because(self, *ends: EndReason) -> bool:
        """Return whether its end reason is one of these."""
        return any((self.end_reason or "").startswith(end.value) for end in ends)


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """What to rent: the best match, and alternatives in case its machine failed recently."""

    watch: Watch
    match: Match
    launch_id: str
    dry_run: bool
    alternatives: tuple[Match, ...] = ()  # cheapest first
    accounts: Mapping[str, str] = {}  # provider → the account to rent with
    label_lengths: Mapping[str, int] = {}  # provider → maximum length of a label; default LABEL_LENGTH
    rent: RentTerms | None = None  # of what a person rents without a watch
    started_by: str | None = None  # who approved it, and through which face
    compared: str = ""  # the quotes that were compared, one line; empty: only one provider


class RefusalReason(StrEnum):
    """Why no launch was started."""

    MAX_ACTIVE = "max_active"
    MAX_TOTAL = "max_total"
    MAX_PER_DAY = "max_per_day"
    RENAMED = "renamed"  # possibly a renamed watch whose launch is alive
    MAX_INSTANCES = "max_instances"
    MAX_USD_HOUR = "max_usd_hour"
    MAX_USD_DAY = "max_usd_day"
    MAX_USD_MONTH = "max_usd_month"
    OFFER_TAKEN = "offer_taken"  # another launch has the offer
    COOLING = "cooling"  # it failed recently; wait
    MACHINE_FAILED = "machine_failed"  # a launch failed on it recently, or the owner blocked it
    PAUSED = "paused"  # by `gpuwatch watches pause`
    BREAKER = "breaker"  # too many launches of this watch failed
    CHECKLIST = "checklist"  # required items are not ticked
    NO_CREDIT = "no_credit"
    STRANGERS = "strangers"  # word-check: allow - a stored value; labelled instances of no launch


class LaunchRefusal(msgspec.Struct, frozen=True):
    """A launch that was not started: `text` for the terminal and programs, `words` for its owner (`refusal_words`)."""

    reason: RefusalReason
    text: str
    of_watch: bool = False  # PAUSED: by a pause of this watch alone
    words: str = ""

    @property
    def said(self) -> str:
        """Why, as the rest of a sentence of an alert, a mail or a chat."""
        return self.words or self.text


class LaunchConflict(GpuwatchError):
    """The launch was changed concurrently; read it again before doing anything."""


def disk_microusd_hour(match: Match, disk_gb: float | None) -> int:
    """Return the listed price of the disk per hour; 0 if it has no price of its own."""
    size_gb = match.offer.quoted_disk_gb if disk_gb is None else disk_gb
    return round((match.offer.disk_usd_gb_month or 0.0) * size_gb / HOURS_A_MONTH * MICRO)


def new_launch(
    intent: Intent, slot: int, now: datetime, install_id: str | None = None, watch_id: str | None = None
) -> Launch:
    """Return the first record of a launch, from its intent."""
    match, watch = intent.match, intent.watch
    spec = watch.launch or LaunchSpec()
    provider, offer_id = place_of(watch, match.offer)
    by_command = watch.action is Action.COMMAND
    first = Launch(
        launch_id=intent.launch_id,
        watch=watch.name,
        slot=slot,
        provider=provider,
        **offer_fields(match, watch) | ({"offer_id": offer_id, "machine_id": None} if by_command else {}),
        state=LaunchState.REQUESTED,
        dry_run=intent.dry_run,
        account_id=intent.accounts.get(match.offer.provider),
        label=label_of(
            intent.launch_id,
            spec.label_extra,
            install_id=install_id,
            watch_id=watch_id,
            length=intent.label_lengths.get(match.offer.provider, LABEL_LENGTH),
        ),
        max_runtime_s=spec.max_runtime_s,
        ready_within_s=watch.command_timeout_s if by_command else spec.ready_within_s,
        intended_at=now,
        requested_at=now,
        install_id=install_id,
        watch_id=watch_id,
        started_by=intent.started_by,
    )
    if not intent.dry_run:
        return first
    reason = EndReason.DRY_RUN.text("would have rented")
    return msgspec.structs.replace(first, state=LaunchState.ENDED, requested_at=None, ended_at=now, end_reason=reason)


def place_of(watch: Watch, offer: Offer) -> tuple[str, str]:
    """Return the provider and the offer id of a launch; a command rents outside of gpuwatch's accounts."""
    if watch.action is Action.COMMAND:
        return COMMAND_PLACE, f"{offer.provider}/{offer.offer_id}"[:64]
    return offer.provider, offer.offer_id


def offer_fields(match: Match, watch: Watch) -> dict[str, Any]:
    """Return the fields that change when a launch takes another offer of the same provider."""
    return {
        "offer_id": match.offer.offer_id,
        "machine_id": match.offer.machine_id,
        "gpu": match.offer.gpu,
        "gpu_count": match.offer.gpu_count,
        "spot": match.offer.spot,
        "listed_microusd_hour": match.price.listed_microusd_hour,
        "price_microusd_hour": match.price.rent_microusd_hour,
        "disk_microusd_hour": disk_microusd_hour(match, watch.disk_gb),
        "most_microusd_hour": most_microusd_hour(match, watch),
        "bid_microusd_hour": microusd(repr(quoted_bid_usd_hour(match.offer))) if match.offer.spot else None,
        "promised": Promise(
            gpu_memory_gib=match.offer.gpu_memory_gib,
            disk_gb=match.offer.quoted_disk_gb if watch.disk_gb is None else watch.disk_gb,
            cuda=match.offer.cuda_max,
            download_mbps=match.offer.download_mbps,
            download_usd_gb=match.offer.download_usd_gb,
            upload_usd_gb=match.offer.upload_usd_gb,
            download_gb=watch.download_gb,
            upload_gb=watch.upload_gb,
            commission_rate=match.price.commission_rate,
            min_billing_s=match.price.min_billing_s,
            billing_step_s=match.price.billing_step_s,
            machines=match.offer.terms.machines,
            is_stock=match.offer.terms.fungible,
            region=match.offer.region,
            country=match.offer.country,
            reliability=match.offer.reliability,
        ),
    }


def most_microusd_hour(match: Match, watch: Watch) -> int:
    """Return the highest rent per hour: a bid may rise to its maximum, a command may rent up to the watch's limit."""
    if watch.action is Action.COMMAND:
        return threshold_microusd(watch.max_price_usd_gpu_hour, match.offer.gpu_count)
    return max(match.price.rent_microusd_hour, most_bid_microusd(watch, match.offer, match.price))
