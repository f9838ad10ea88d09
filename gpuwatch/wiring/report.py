"""Where each provider stands, read from the store: for `gpuwatch providers` and `doctor`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.engine.lanes import Demand, Plan, plan_rows
from gpuwatch.ports import ProviderSettings, Sight
from gpuwatch.wiring import database, real_now

if TYPE_CHECKING:
    from gpuwatch.settings import Settings
    from gpuwatch.storage.database import Database


class ProviderStanding(msgspec.Struct, frozen=True, kw_only=True):
    """One provider as it stands."""

    provider: str
    base_url: str
    has_key: bool
    can_launch: bool
    poll_every_s: float
    plan: Plan
    sight: Sight
    swept_at: datetime | None
    next_sweep_at: datetime | None


def standings(settings: Settings) -> list[ProviderStanding]:
    """Every enabled provider. Raises StoreError."""
    with database(settings) as store:
        return [_standing(store, provider) for provider in settings.providers.values()]


def _standing(store: Database, provider: ProviderSettings) -> ProviderStanding:
    from gpuwatch import providers
    from gpuwatch.storage.desk import StoreDesk
    from gpuwatch.storage.history import History
    from gpuwatch.storage.polls import last_complete, last_sweep

    now = real_now()
    swept = last_sweep(store, provider.name)
    demand = Demand(
        rows_per_day=provider.rows_per_day,
        poll_every_s=provider.poll_every_s,
        sweep_rows=swept.rows if swept else None,
        sweep_every_s=provider.sweep_every_s,
    )
    plan = plan_rows(demand, History(store).rows_used(provider.name, now), now)
    next_at = None
    if swept and plan.sweep_every_s is not None:
        next_at = max(now, swept.at + timedelta(seconds=plan.sweep_every_s))
    info = providers.info(provider.name)
    sight = StoreDesk(store).sights().get(provider.name, Sight())
    return ProviderStanding(
        provider=provider.name,
        base_url=provider.base_url,
        has_key=provider.api_key is not None,
        can_launch=info.launches and provider.api_key is not None,
        poll_every_s=provider.poll_every_s,
        plan=plan,
        sight=msgspec.structs.replace(sight, complete_at=last_complete(store, provider.name)),
        swept_at=swept.at if swept else None,
        next_sweep_at=next_at,
    )
