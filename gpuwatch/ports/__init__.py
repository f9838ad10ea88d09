"""All ports: every way gpuwatch touches the outside world.

The engine depends on these ports only; `bootstrap` chooses the implementations. No exception of a foreign library
passes a port: each method names the errors of `gpuwatch.errors` that it may raise.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from gpuwatch.domain.market.search_query import Query
from gpuwatch.ports.alerts import (
    MONEY_KINDS,
    Alert,
    AlertKind,
    BatchingChannel,
    Channel,
    DeliveryQueue,
    DueDelivery,
    ManyRecipients,
    MovableChannel,
    OfferLine,
    OneByOneChannel,
    OutboxAlert,
    Severity,
    SilentChannel,
    StalledChannel,
    UndeliveredAlerts,
    UnroutedAlert,
    WaitingAlert,
    severity_of,
)
from gpuwatch.ports.market import HUNT, LANES, SWEEP, Answer, Completeness, Market
from gpuwatch.ports.renting import (
    AccountLookup,
    Created,
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
    AccountRepository,
    AlertQueue,
    ApprovalRepository,
    InstanceRecords,
    LaunchReader,
    LaunchRepository,
    PollHistory,
    ProviderHealth,
    UnitOfWork,
    UnitOfWorkFactory,
)

__all__ = [
    "HUNT",
    "LANES",
    "MONEY_KINDS",
    "SWEEP",
    "AccountLookup",
    "AccountRepository",
    "Alert",
    "AlertKind",
    "AlertQueue",
    "Answer",
    "ApprovalRepository",
    "BatchingChannel",
    "Channel",
    "ChannelSection",
    "ChannelSettings",
    "Completeness",
    "Created",
    "DeliveryQueue",
    "DueDelivery",
    "Instance",
    "InstanceLookup",
    "InstanceRecords",
    "InstanceState",
    "LaunchReader",
    "LaunchRepository",
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
    "UndeliveredAlerts",
    "UnitOfWork",
    "UnitOfWorkFactory",
    "UnroutedAlert",
    "Volume",
    "WaitingAlert",
    "severity_of",
]


class Now(Protocol):
    """The clock: aware, UTC. Only `bootstrap` reads the real clock."""

    def __call__(self) -> datetime: ...
