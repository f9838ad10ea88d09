"""The door to rented instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol

import msgspec


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
