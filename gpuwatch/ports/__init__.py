"""Every way gpuwatch touches the world. Open this folder, and you have seen all effects.

The engine is written against these; `wiring` chooses what stands behind them. No error of a foreign library passes a
port: each method names the errors of `gpuwatch.errors` that it may raise.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from gpuwatch.ports.alerts import (
    Alert,
    AlertKind,
    Channel,
    Due,
    InBatches,
    ManyRecipients,
    MovableChat,
    News,
    OfferLine,
    Outgoing,
)
from gpuwatch.ports.market import Answer, Completeness, Market, Query
from gpuwatch.ports.renting import (
    Charge,
    Created,
    Instance,
    InstanceState,
    Launcher,
    Order,
    PriceIncrease,
    Registry,
    Volume,
)
from gpuwatch.ports.settings import (
    AppriseSettings,
    ChannelSettings,
    EmailSettings,
    ProviderSettings,
    TelegramSettings,
)
from gpuwatch.ports.store import Asks, Books, Desk, Page, PriceHistory, Sight

__all__ = [
    "Alert",
    "AlertKind",
    "Answer",
    "AppriseSettings",
    "Asks",
    "Books",
    "Channel",
    "ChannelSettings",
    "Charge",
    "Completeness",
    "Created",
    "Desk",
    "Due",
    "EmailSettings",
    "InBatches",
    "Instance",
    "InstanceState",
    "Launcher",
    "ManyRecipients",
    "Market",
    "MovableChat",
    "News",
    "Now",
    "OfferLine",
    "Order",
    "Outgoing",
    "Page",
    "PriceHistory",
    "PriceIncrease",
    "ProviderSettings",
    "Query",
    "Registry",
    "Sight",
    "TelegramSettings",
    "Volume",
]


class Now(Protocol):
    """The clock: aware, UTC. Only `wiring` reads the real one."""

    def __call__(self) -> datetime: ...
