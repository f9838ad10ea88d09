"""Every error gpuwatch raises, by what must happen next.

GpuwatchError
├── UsageError                 a person mends the command line                             exit code 2
├── SettingsError              a person mends the settings; every fault is one line         exit code 2
├── StoreError                 the database cannot be used as it is; the line says why      exit code 1
│   ├── StoreNotReady          run the command that the line names                      exit code 3
│   │   └── StoreMissing       there is no database yet
│   ├── StoreTooNew            run the newer gpuwatch that wrote it
│   └── StoreInUse             a daemon holds it
├── ProviderError              no usable answer to a question (a search, a list)
│   ├── ProviderDown           wait for the next poll
│   │   └── ProviderUnreachable  no connection: check the address and the network
│   ├── RateLimited            wait `retry_after_s`
│   ├── QuotaSpent             the day's rows are used up; wait until `resets_at`
│   ├── KeyRejected            a person renews the key
│   └── PayloadChanged         the answer was not understood; a developer mends the parser
│       └── NoRowUnderstood    it has rows, and none can be used: gpuwatch is blind at once
├── JobConflict                somebody else changed the job; read it again
├── ProviderStateUnknown       the provider does not say what exists, nothing was changed; try again   exit code 3
├── OrderError                 a create, change or destroy was not carried out
│   ├── OfferGone              nothing was made; take the next offer
│   ├── OrderRefused           nothing was made and repeating will not help (`kind` says why)
│   ├── OrderRateLimited       nothing was made; wait `retry_after_s`
│   └── OutcomeUnknown         it may have happened: look before doing anything again
└── DeliveryError              an alert was not taken by its channel
    ├── DeliverLater           try again after `retry_after_s` (None: back off)
    └── DeliveryRefused        this channel will never take it as things are; tell the others
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum


class GpuwatchError(Exception):
    """The root: its text is one line for a person, without secrets."""


class PartlyDone(Exception):
    """A defect of gpuwatch kept it from one of several things; the others are done. Its cause is the first defect."""


class UsageError(GpuwatchError):
    """The command line asks for something impossible."""


class SettingsError(GpuwatchError):
    """One or more settings are wrong; `faults` holds one finished line each."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


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


class JobConflict(GpuwatchError):
    """Somebody else changed the job since it was read; nothing was written."""


class ProviderStateUnknown(GpuwatchError):
    """The provider does not say which instances exist; nothing was changed."""


class ProviderError(GpuwatchError):
    """A provider gave no usable answer to a question; nothing was changed there."""

    was_sent = True  # False: no request was made, so this says nothing new about the provider


class ProviderDown(ProviderError):
    """No connection, a timeout, a 5xx, an answer cut short."""


class ProviderUnreachable(ProviderDown):
    """No connection: no such host, refused, no route. Nothing was sent."""


class RateLimited(ProviderError):
    """Asked too often.

    Args:
        retry_after_s: seconds to wait, as the provider says; None if it does not say.
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
    """The answer has a shape that the parser does not know."""


class NoRowUnderstood(PayloadChanged):
    """The answer is a list of rows, and not one of them can be used: the format has changed.

    Args:
        rows: how many there are, at least 1.
        drift: what differs, as far as the parser can say: "price field gone: x".
    """

    def __init__(self, message: str, rows: int, drift: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.rows = rows
        self.drift = tuple(drift)


class OrderError(GpuwatchError):
    """An order (create, destroy, label) was not carried out, or may not have been."""


class RefusalScope(StrEnum):
    """What a refused order is about: nothing else within it needs to be ordered until the refusal expires."""

    OFFER = "offer"
    MACHINE = "machine"
    ZONE = "zone"
    REGION_FAMILY = "region_family"  # a quota of the account: one region, one family of machines, one rental type
    ACCOUNT = "account"
    PROVIDER = "provider"


class OfferGone(OrderError):
    """The offer was taken meanwhile; nothing was made.

    Args:
        scope: what else is gone with it; None: that offer alone.
        lasts_s: how long, in seconds; None: as is usual for the scope.
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
    """The provider said no (or was never reached, `NOT_SENT`); nothing was made.

    Args:
        scope: what it is about; None: as is usual for the kind.
        lasts_s: how long, in seconds; None: as is usual for the scope.
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
    """Whether the provider itself said no, so that only a person can help."""
    if isinstance(error, OrderRefused):
        return error.kind is not RefusalKind.NOT_SENT
    return isinstance(error, KeyRejected)


class OrderRateLimited(OrderError):
    """Too many orders; nothing was made."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class OutcomeUnknown(OrderError):
    """The order was sent and its fate is not known. Never send it again before looking.

    Args:
        instance_id: what the provider may have made, if its answer named it.
    """

    def __init__(self, message: str, instance_id: str | None = None) -> None:
        super().__init__(message)
        self.instance_id = instance_id


class DeliveryError(GpuwatchError):
    """A channel did not take a message, or not for all of its recipients.

    Args:
        taken: keys of those of several recipients that need no further try: they have it, or said no for good.
        refused: one line about those among them that said no; empty: nobody did.
    """

    def __init__(self, message: str, *, taken: Sequence[str] = (), refused: str = "") -> None:
        super().__init__(message)
        self.taken = tuple(taken)
        self.refused = refused


class DeliverLater(DeliveryError):
    """Try again later.

    Args:
        retry_after_s: the channel's own word; None: it gave none.
        waits_s: what is customary there after the first, second, … try; the last repeats. Empty: back off.
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
    """The channel will not take it, now or later (bad address, bot blocked, wrong token)."""
