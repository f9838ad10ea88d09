"""Reserves a launch in the store, like the engine's transaction."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from gpuwatch.domain.launches.launch import Intent, Launch, LaunchRefusal
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.storage.launches.launch_admission import reserve


def launch_or_refusal(connection: Connection, intent: Intent, budget: Budget, now: datetime) -> Launch | LaunchRefusal:
    """Reserve a launch; return it without its match."""
    got = reserve(connection, intent, budget, now)
    return got if isinstance(got, LaunchRefusal) else got[0]
