"""All ports: the ways gpuwatch touches the outside world that have several implementations, or a fake in tests.

The engine depends on these, and on the store's own classes; `bootstrap` builds the implementations. No exception of a
foreign library passes a port: each method names the errors of `gpuwatch.errors` that it may raise.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from gpuwatch.domain.alerts.alert import MONEY_KINDS, Alert, AlertKind, OfferLine, OutboxAlert, Severity
from gpuwatch.domain.market.search_query import Query
from gpuwatch.ports.alerts import (
    BatchingChannel,
    Channel,
    DueDelivery,
    ManyRecipients,
    MovableChannel,
    OneByOneChannel,
    SilentChannel,
    StalledChannel,
    UnroutedAlert,
    WaitingAlert,
)
from gpuwatch.ports.market import HUNT, LANES, SWEEP, Answer, Completeness, Market, ProviderHealth
from gpuwatch.ports.renting import (
    AccountLookup,
    Created,
    DiskKeeper,
    EndMover,
    Instance,
    InstanceLookup,
    InstanceState,
    Launcher,
    Order,
    PriceIncrease,
    ProviderCharge,
    Registry,
    Volume,
)
from gpuwatch.ports.settings import ChannelSection, ChannelSettings, ProviderSection, ProviderSettings, ProviderTerms
from gpuwatch.ports.store import (
    AlertQueue,
    PollHistory,
    UnitOfWork,
    UnitOfWorkFactory,
)

__all__ = [
    "HUNT",
    "LANES",
    "MONEY_KINDS",
    "SWEEP",
    "AccountLookup",
    "Alert",
    "AlertKind",
    "AlertQueue",
    "Answer",
    "BatchingChannel",
    "Channel",
    "ChannelSection",
    "ChannelSettings",
    "Completeness",
    "Created",
    "DiskKeeper",
    "DueDelivery",
    "EndMover",
    "Instance",
    "InstanceLookup",
    "InstanceState",
    "Launcher",
    "ManyRecipients",
    "Market",
    "MovableChannel",
    "Now",
    "OfferLine",
    "OneByOneChannel",
    "Order",
    "OutboxAlert",
    "PollHistory",
    "PriceIncrease",
    "ProviderCharge",
    "ProviderHealth",
    "ProviderSection",
    "ProviderSettings",
    "ProviderTerms",
    "Query",
    "Registry",
    "Severity",
    "SilentChannel",
    "StalledChannel",
    "UnitOfWork",
    "UnitOfWorkFactory",
    "UnroutedAlert",
    "Volume",
    "WaitingAlert",
]


class Now(Protocol):
    """The clock: aware, UTC. Only `bootstrap` reads the real clock."""

    def __call__(self) -> datetime: ...
