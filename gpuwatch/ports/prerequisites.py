"""The port to what must be in place before the first rent at a provider, checked by requests that cost nothing."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from gpuwatch.ports.findings import Finding
from gpuwatch.ports.renting import Order


class PrerequisiteName(StrEnum):
    """The kind of a prerequisite. A value of the JSON."""

    CREDENTIALS = "credentials"  # they work, and have the permissions a launch needs
    BALANCE = "balance"
    QUOTA = "quota"
    KEY_PAIR = "key-pair"  # a way to log in
    IMAGE = "image"  # one that fits the machine
    NETWORK = "network"
    REGION = "region"  # enabled for the account
    TERMS = "terms"  # accepted terms, and roles that must be created once
    ORDER = "order"  # the provider's own validation of the whole order


class PrerequisiteSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One prerequisite that a provider declares."""

    name: PrerequisiteName
    about: str  # one line: what is needed
    docs: str  # page and heading: "providers/aws.md#before-the-first-rent"


def declared(docs: str, **about: str) -> tuple[PrerequisiteSpec, ...]:
    """Declarations by name (`key_pair` is "key-pair"), all documented in one place."""
    return tuple(
        PrerequisiteSpec(name=PrerequisiteName(name.replace("_", "-")), about=line, docs=docs)
        for name, line in about.items()
    )


class Prerequisite(Finding, frozen=True, kw_only=True):
    """The finding about one prerequisite.

    Attributes:
        met: None: unknown; `text` says why. It sets the state.
        area: the provider; `prerequisites_of` sets it, and `docs`.
        offer_ids: the orders it applies to; empty: all.
        is_blocking: False: a launch is useful without it; reported, and the daemon rents.
    """

    name: PrerequisiteName
    met: bool | None
    area: str = ""
    state: str = ""
    mend: str = ""
    offer_ids: tuple[str, ...] = ()
    is_blocking: bool = True

    def __post_init__(self) -> None:
        """Set the state."""
        msgspec.structs.force_setattr(self, "state", {True: "ok", False: "fault", None: "unknown"}[self.met])


@runtime_checkable
class PrerequisiteProbe(Protocol):
    """A launcher that can check what its provider requires before the first launch. Read only; rents nothing."""

    def prerequisites(self, orders: Sequence[Order]) -> Sequence[Prerequisite]:
        """Prerequisites of these orders, met or missing; without orders, of the account only.

        A request without a usable answer results in a prerequisite with `met` None, not in an error.
        """


@runtime_checkable
class OrderValidation(Protocol):
    """A launcher whose provider validates an order without placing it."""

    def validate(self, order: Order) -> Prerequisite:
        """The provider's verdict on the whole order. Never raises: without a usable answer, `met` is None."""


@runtime_checkable
class OrderCheck(Protocol):
    """A launcher that can tell whether an order can be put into a request, without sending anything."""

    def check_order(self, order: Order) -> None:
        """Build the request, as far as that asks nothing. Raises OrderRefused: it cannot be put into one."""


def is_blocked(prerequisites: Sequence[Prerequisite], offer_ids: Sequence[str]) -> bool:
    """Whether none of these offers can be rented: the account lacks something, or each offer does.

    Without offers, a missing prerequisite of one place does not block other places.
    """
    missing = [prerequisite for prerequisite in prerequisites if prerequisite.met is False and prerequisite.is_blocking]
    if any(not prerequisite.offer_ids and (offer_ids or not prerequisite.place) for prerequisite in missing):
        return True
    blocked_ids = {offer_id for prerequisite in missing for offer_id in prerequisite.offer_ids}
    return bool(offer_ids) and blocked_ids.issuperset(offer_ids)
