"""The port to rented instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Protocol, runtime_checkable

import msgspec

from gpuwatch.domain.launches.instance import Instance, InstanceState

__all__ = [
    "AccountLookup",
    "Created",
    "Instance",
    "InstanceLookup",
    "InstanceState",
    "Launcher",
    "Order",
    "PriceIncrease",
    "ProviderCharge",
    "Registry",
    "Volume",
]


class Registry(msgspec.Struct, frozen=True, kw_only=True):
    """The login of a private image registry. `password` is a secret: never logged, shown or stored."""

    server: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"Registry({self.server!r}, {self.username!r})"


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume of the provider at `mount`: an existing one by its id, or a new one of `size_gb`."""

    mount: str
    volume_id: str | None = None
    size_gb: float | None = None


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One instance to rent. `bid_usd_hour` is set for spot, and only then: without it the rent is on demand."""

    offer_id: str
    label: str
    image: str
    disk_gb: float  # as it was priced; 0: what comes with the machine. A launcher knows its own least size
    bid_usd_hour: float | None = None
    onstart: str | None = None
    env: Mapping[str, str] = {}  # may hold secrets
    ports: tuple[str, ...] = ()  # "8000", "8080:8000", "53/udp": opened on the instance
    runtype: str = "ssh"
    template: str | None = None
    registry: Registry | None = None
    volume: Volume | None = None
    self_destruct_at: datetime | None = None  # the instance ends itself then, with its own key, where the provider can
    deadline: datetime | None = None  # gpuwatch ends it then; a limit of the provider's own is set behind it
    needs_ssh: bool = False  # a job logs in, by the key that `onstart` lets in: without an SSH server it is of no use

    def __repr__(self) -> str:
        return f"Order({self.offer_id!r}, {self.label!r}, {self.image!r})"


class PriceIncrease(msgspec.Struct, frozen=True, kw_only=True):
    """A higher price that a host proposes for a running contract. Prices are listed, USD per hour, GPUs alone."""

    increase_id: str
    instance_id: str
    new_usd_hour: float | None  # None: the GPU price stays, something else rises
    effective_at: datetime | None = None
    words: str = ""  # what else changes, for a person


class ProviderCharge(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider charged for one instance on one day (UTC). `kind`: gpu, disk, download, upload, other."""

    instance_id: str
    day: date
    kind: str
    usd: float
    final: bool = True  # False: the day is not over, or the provider says that it may still change


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

    def change_bid(self, instance_id: str, bid_usd_hour: float) -> None:
        """Bid another price for a spot instance, GPUs alone. Raises OrderError, ProviderError."""

    def price_increases(self) -> Sequence[PriceIncrease]:
        """What hosts propose for running contracts, open ones alone. Raises ProviderError."""

    def answer_increase(self, increase_id: str, accept: bool) -> None:
        """Accept or reject a proposal. Raises OrderError, ProviderError."""

    def charges(self, since: date, until: date) -> Sequence[ProviderCharge] | None:
        """What was charged on these days, both included; None: the provider does not tell. Raises ProviderError."""


@runtime_checkable
class InstanceLookup(Protocol):
    """A launcher whose API answers for one instance: evidence beside the list, which may omit what is alive."""

    def get(self, instance_id: str) -> Instance | None:
        """The instance; None: the provider says that it is gone. Raises ProviderError."""


@runtime_checkable
class AccountLookup(Protocol):
    """A launcher whose API names the account that its key belongs to. Of the others, a hash of the key is kept."""

    def account_id(self) -> str | None:
        """The provider's own id of the account; None: this key may not ask. Raises ProviderError."""
