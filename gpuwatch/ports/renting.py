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
    "DiskKeeper",
    "EndMover",
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
    """The login for a private image registry. `password` is a secret: never logged, shown or stored."""

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
    """One instance to rent. `bid_usd_hour` is set only for spot; without it, the rental is on demand."""

    offer_id: str
    label: str
    image: str
    disk_gb: float  # as priced; 0: the disk included with the machine. A launcher enforces its own minimum
    bid_usd_hour: float | None = None
    onstart: str | None = None
    env: Mapping[str, str] = {}  # may contain secrets
    ports: tuple[str, ...] = ()  # "8000", "8080:8000", "53/udp": opened on the instance
    runtype: str = "ssh"
    template: str | None = None
    registry: Registry | None = None
    volume: Volume | None = None
    self_destruct_at: datetime | None = (
        None  # the instance ends itself then with its own key, if the provider supports it
    )
    places: tuple[str, ...] = ()  # only in one of these; empty: where the offer is, or anywhere if it names no place
    deadline: datetime | None = None  # gpuwatch ends it then; a limit at the provider is set later than this
    needs_ssh: bool = False  # a job logs in with the key that `onstart` installs: it requires an SSH server

    def __repr__(self) -> str:
        return f"Order({self.offer_id!r}, {self.label!r}, {self.image!r})"


class PriceIncrease(msgspec.Struct, frozen=True, kw_only=True):
    """A higher price proposed by a host for a running contract. Prices are listed, USD per hour, GPUs only."""

    increase_id: str
    instance_id: str
    new_usd_hour: float | None  # None: the GPU price stays the same, something else increases
    effective_at: datetime | None = None
    words: str = ""  # other changes, as text


class ProviderCharge(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider charged for one instance on one day (UTC). `kind`: gpu, disk, download, upload, other."""

    instance_id: str
    day: date
    kind: str
    usd: float
    final: bool = True  # False: the day has not ended, or the provider may still change it


class Created(msgspec.Struct, frozen=True, kw_only=True):
    """The provider's confirmation. `starting` False: a contract exists but does not run (a lost bid); it is billed."""

    instance_id: str
    starting: bool = True


class Launcher(Protocol):
    """A provider's renting side. No method retries a request that changes something."""

    name: str

    def create(self, order: Order) -> Created:
        """Rent once.

        Raises:
            OfferGone, OrderRefused, OrderRateLimited: nothing was created.
            OutcomeUnknown: anything else; look up the label before doing anything again.
        """

    def list_instances(self) -> Sequence[Instance]:
        """Every instance of the account, all pages.

        Raises:
            ProviderError: also if a page is missing or malformed: an incomplete list is never returned as complete.
        """

    def destroy(self, instance_id: str) -> None:
        """Destroy it; not an error if it is already gone. Success is not proof yet: check the list.

        Raises:
            OrderError, ProviderError: not destroyed, or unknown.
        """

    def credit_usd(self) -> float | None:
        """The remaining credit of the account; None: the provider does not report it. Raises ProviderError."""

    def change_bid(self, instance_id: str, bid_usd_hour: float) -> None:
        """Change the bid of a spot instance, GPUs only. Raises OrderError, ProviderError."""

    def price_increases(self) -> Sequence[PriceIncrease]:
        """Open price increases proposed by hosts. Raises ProviderError."""

    def answer_increase(self, increase_id: str, accept: bool) -> None:
        """Accept or reject a proposal. Raises OrderError, ProviderError."""

    def charges(self, since: date, until: date) -> Sequence[ProviderCharge] | None:
        """Charges of these days, inclusive; None: the provider does not report them. Raises ProviderError."""


@runtime_checkable
class InstanceLookup(Protocol):
    """A launcher that can look up one instance: evidence in addition to the list, which may omit a running instance."""

    def get(self, instance_id: str) -> Instance | None:
        """The instance; None, or one that is `ended`: the provider reports that it is gone. Raises ProviderError.

        An ended instance states how it ended: a launch that waits for its start ends at once.
        """


@runtime_checkable
class DiskKeeper(Protocol):
    """A launcher that can stop an instance with its disk kept, and start it again. Both may be sent again."""

    def stop_instance(self, instance_id: str) -> None:
        """Stop it and keep its disk, or take back a start that waits. Success is not proof yet: check the list.

        Raises:
            OrderError, ProviderError: not stopped, or unknown.
        """

    def start_instance(self, instance_id: str) -> bool:
        """Start it again; False: its GPUs are taken, and the start waits until it is taken back by `stop_instance`.

        Raises:
            OrderError, ProviderError: not started, or unknown.
        """


@runtime_checkable
class EndMover(Protocol):
    """A launcher whose provider ends an instance at a time that its API can move: `SelfDestruct.is_movable`."""

    def move_end(self, instance_id: str, at: datetime) -> None:
        """Move that time, and any limit of money with it, so that the instance can live until `at`. May be sent again.

        Raises:
            OrderError, ProviderError: not moved, or unknown.
        """


@runtime_checkable
class AccountLookup(Protocol):
    """A launcher that can report the account of its key. For others, a hash of the key is stored."""

    def account_id(self) -> str | None:
        """The provider's id of the account; None: this key lacks the permission. Raises ProviderError."""
