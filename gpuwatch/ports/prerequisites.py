"""The port to what must be in place before the first rent at a provider, checked by requests that cost nothing."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from gpuwatch.ports.renting import Order


class PrerequisiteName(StrEnum):
    """What kind of thing must be in place. A value of the JSON."""

    CREDENTIALS = "credentials"  # they work, and may do what a rent needs
    BALANCE = "balance"
    QUOTA = "quota"
    KEY_PAIR = "key-pair"  # a way to log in
    IMAGE = "image"  # one that fits the machine
    NETWORK = "network"
    REGION = "region"  # enabled for the account
    TERMS = "terms"  # accepted, and roles that the provider wants to be made once
    ORDER = "order"  # the provider's own validation of the whole order


class PrerequisiteSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One prerequisite that a provider declares."""

    name: PrerequisiteName
    about: str  # one line: what is needed
    docs: str  # page and heading: "providers/aws.md#before-the-first-rent"


def declared(docs: str, **about: str) -> tuple[PrerequisiteSpec, ...]:
    """Declarations by name (`key_pair` is "key-pair"), all explained at one place of the documents."""
    return tuple(
        PrerequisiteSpec(name=PrerequisiteName(name.replace("_", "-")), about=line, docs=docs)
        for name, line in about.items()
    )


class Prerequisite(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe found out about one prerequisite.

    Attributes:
        met: None: it could not be found out; `text` says why.
        text: one line: what is there, or what is missing.
        mend: what to do about it; empty where it is met.
        place: region, zone or family that it is about; empty: the whole account.
        offer_ids: the orders that it concerns; empty: all.
        is_blocking: False: a rent is of use without it; reported, and the daemon rents.
    """

    name: PrerequisiteName
    met: bool | None
    text: str
    mend: str = ""
    place: str = ""
    offer_ids: tuple[str, ...] = ()
    is_blocking: bool = True


@runtime_checkable
class PrerequisiteProbe(Protocol):
    """A launcher that can find out what its provider wants before the first rent. It only reads, and rents nothing."""

    def prerequisites(self, orders: Sequence[Order]) -> Sequence[Prerequisite]:
        """What is met and what is missing for these orders; without orders, for the account alone.

        A question without a usable answer is a prerequisite with `met` None, no error.
        """


@runtime_checkable
class OrderValidation(Protocol):
    """A launcher whose provider validates an order without carrying it out."""

    def validate(self, order: Order) -> Prerequisite:
        """What the provider says of the whole order. Raises nothing: no usable answer is `met` None."""


@runtime_checkable
class OrderCheck(Protocol):
    """A launcher that can tell whether an order can be put into a request, without sending anything."""

    def check_order(self, order: Order) -> None:
        """Build the request, as far as that asks nothing. Raises OrderRefused: it cannot be put into one."""


def is_blocked(found: Sequence[Prerequisite], offer_ids: Sequence[str]) -> bool:
    """Whether nothing of these offers can be rented: the account lacks something, or each offer does.

    Without offers, what one place lacks does not decide about the others.
    """
    missing = [one for one in found if one.met is False and one.is_blocking]
    if any(not one.offer_ids and (offer_ids or not one.place) for one in missing):
        return True
    lacking = {offer_id for one in missing for offer_id in one.offer_ids}
    return bool(offer_ids) and lacking.issuperset(offer_ids)
