"""Every error gpuwatch raises, by what must happen next.

GpuwatchError
├── UsageError                 a person fixes the command line                             exit code 2
│   └── ResourceNotFound       nothing has that name or id
├── SettingsError              a person fixes the settings; one line per fault              exit code 2
├── StoreError                 the database cannot be used; the line says why               exit code 1
│   ├── StoreNotReady          run the command that the line names                      exit code 3
│   │   └── StoreMissing       there is no database yet
│   ├── StoreTooNew            run the newer gpuwatch that wrote it
│   ├── StoreInUse             a daemon is using it
│   └── StoreDiskFailed        the disk is full or reports an error; it may be over by itself
├── ProviderError              no usable answer to a request (a search, a list)
│   ├── ProviderDown           wait for the next poll
│   │   ├── ProviderUnreachable  no connection: check the address and the network
│   │   └── ProviderMoved      a redirect: check the address
│   ├── RateLimited            wait `retry_after_s`
│   ├── QuotaSpent             the day's rows are used up; wait until `resets_at`
│   ├── KeyRejected            a person renews the key
│   └── PayloadChanged         the answer cannot be parsed; a developer fixes the parser
│       └── NoRowUnderstood    it has rows, but none is usable: gpuwatch is blind at once
├── JobConflict                another process changed the job; read it again
├── ProviderStateUnknown       the provider does not report what exists; nothing changed; try again   exit code 3
├── OrderError                 a create, change or destroy was not carried out
│   ├── OfferGone              nothing was created; take the next offer
│   ├── OrderRefused           nothing was created, and repeating does not help (`kind` says why)
│   ├── OrderRateLimited       nothing was created; wait `retry_after_s`
│   └── OutcomeUnknown         it may have happened: check before you repeat anything
└── DeliveryError              a channel did not accept an alert
    ├── DeliverLater           try again after `retry_after_s` (None: back off)
    └── DeliveryRefused        this channel will never accept it as it is configured; use the others
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum


class GpuwatchError(Exception):
    """The root: its text is one line for a person, without secrets."""


class PartlyDone(Exception):
    """A defect of gpuwatch prevented one of several actions; the others are done. `__cause__` is the first defect."""


class UsageError(GpuwatchError):
    """The command line asks for something impossible."""


class ResourceNotFound(UsageError):
    """Nothing has the name or id that was given: no such watch, launch, job, approval, provider."""


class SettingsError(GpuwatchError):
    """One or more settings are wrong.

    Args:
        faults: one finished line each.
        has_unknown_names: a GPU or a region is not in the catalogue; the names that the store has may settle it.
    """

    def __init__(self, faults: Sequence[str], *, has_unknown_names: bool = False) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)
        self.has_unknown_names = has_unknown_names


class StoreError(GpuwatchError):
    """The database cannot be used."""


class StoreNotReady(StoreError):
    """The database has an older schema, and this command does not upgrade it."""


class StoreMissing(StoreNotReady):
    """There is no database yet, or it holds no tables."""


class StoreTooNew(StoreError):
    """A newer gpuwatch wrote this database."""


class StoreInUse(StoreError):
    """Another daemon runs on this database."""


class LeaseLost(StoreError):
    """This daemon does not lead, or no longer: another host does."""


class StoreDiskFailed(StoreError):
    """The disk of the database is full or reports an error: it may be over by itself."""


class JobConflict(GpuwatchError):
    """Another process changed the job after it was read; nothing was written."""


class ProviderStateUnknown(GpuwatchError):
    """The provider does not report which instances exist; nothing was changed."""


class ProviderError(GpuwatchError):
    """A provider gave no usable answer to a request that only reads; nothing was changed."""

    was_sent = True  # False: no request was sent, so the error says nothing about the provider's health


class ProviderDown(ProviderError):
    """No connection, a timeout, a 5xx, or an answer that is cut off."""


class ProviderUnreachable(ProviderDown):
    """No connection: no such host, refused, no route. Nothing was sent."""


class ProviderMoved(ProviderDown):
    """A redirect to another address, which is not followed; an immediate retry gets the same answer."""


class RateLimited(ProviderError):
    """Too many requests.

    Args:
        retry_after_s: seconds to wait, as the provider states; None if it does not.
    """

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QuotaSpent(ProviderError):
    """The day's row quota is used up: gpuwatch is blind at this provider until `resets_at` (UTC)."""

    def __init__(self, message: str, resets_at: datetime) -> None:
        super().__init__(message)
        self.resets_at = resets_at


class KeyRejected(ProviderError):
    """The key is wrong, missing or lacks a permission."""


class PayloadChanged(ProviderError):
    """The answer has a shape that the parser does not support."""


class NoRowUnderstood(PayloadChanged):
    """The answer has rows, but none is usable: the format has changed.

    Args:
        rows: how many rows there are, at least 1.
        drift: what differs, as far as the parser can tell: "price field gone: x".
    """

    def __init__(self, message: str, rows: int, drift: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.rows = rows
        self.drift = tuple(drift)


class OrderError(GpuwatchError):
    """An order (create, destroy, label) was not carried out, or may not have been."""


class RefusalScope(StrEnum):
    """What a refusal applies to: other orders within it are pointless until the refusal expires."""

    OFFER = "offer"
    MACHINE = "machine"
    ZONE = "zone"
    REGION_FAMILY = "region_family"  # a quota of the account: one region, one family of machines, one rental type
    ACCOUNT = "account"
    PROVIDER = "provider"


class OfferGone(OrderError):
    """The offer is no longer available; nothing was created.

    Args:
        scope: what else is gone with it; None: only that offer.
        lasts_s: how long, in seconds; None: the default of the scope.
    """

    def __init__(self, message: str, scope: RefusalScope | None = None, lasts_s: float | None = None) -> None:
        super().__init__(message)
        self.scope = scope
        self.lasts_s = lasts_s


class RefusalKind(StrEnum):
    """Why an order was refused for good."""

    NO_CREDIT = "no_credit"
    KEY = "key"
    BAD_ORDER = "bad_order"
    BID_TOO_LOW = "bid_too_low"
    NOT_SENT = "not_sent"
    OTHER = "other"


class OrderRefused(OrderError):
    """The provider refused (or was never reached, `NOT_SENT`); nothing was created.

    Args:
        scope: what it applies to; None: the default of the kind.
        lasts_s: how long, in seconds; None: the default of the scope.
    """

    def __init__(
        self,
        message: str,
        kind: RefusalKind = RefusalKind.OTHER,
        scope: RefusalScope | None = None,
        lasts_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.scope = scope
        self.lasts_s = lasts_s


def is_refusal(error: GpuwatchError) -> bool:
    """Whether the provider itself refused, so that only a person can help."""
    if isinstance(error, OrderRefused):
        return error.kind is not RefusalKind.NOT_SENT
    return isinstance(error, KeyRejected)


class OrderRateLimited(OrderError):
    """Too many orders; nothing was created."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class OutcomeUnknown(OrderError):
    """The order was sent, and its outcome is unknown. Never send it again before checking.

    Args:
        instance_id: what the provider may have created, if its answer names it.
    """

    def __init__(self, message: str, instance_id: str | None = None) -> None:
        super().__init__(message)
        self.instance_id = instance_id


class DeliveryError(GpuwatchError):
    """A channel did not accept a message, or not for all of its recipients.

    Args:
        taken: keys of the recipients that need no further attempt: they have it, or refused it for good.
        refused: one line about those among them that refused; empty: none did.
    """

    def __init__(self, message: str, *, taken: Sequence[str] = (), refused: str = "") -> None:
        super().__init__(message)
        self.taken = tuple(taken)
        self.refused = refused


class DeliverLater(DeliveryError):
    """Try again later.

    Args:
        retry_after_s: as the channel states; None: it states none.
        waits_s: the usual waits of the channel after the first, second, … attempt; the last repeats. Empty: back off.
    """

    def __init__(
        self,
        message: str,
        retry_after_s: float | None = None,
        *,
        waits_s: Sequence[float] = (),
        taken: Sequence[str] = (),
        refused: str = "",
    ) -> None:
        super().__init__(message, taken=taken, refused=refused)
        self.retry_after_s = retry_after_s
        self.waits_s = tuple(waits_s)


class DeliveryRefused(DeliveryError):
    """The channel will not accept it, now or later (bad address, bot blocked, wrong token)."""
