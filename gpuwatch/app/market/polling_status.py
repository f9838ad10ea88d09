"""The polling of a provider: the plan, the searches of the last hour, and holds requested by the provider."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.bootstrap.polling import polling_plan
from gpuwatch.domain.market.money import rfc3339
from gpuwatch.domain.watches.query_plan import SharedQuery
from gpuwatch.engine.market.polling_plan import PollingPlan
from gpuwatch.ports import LANES
from gpuwatch.ports.market import Hold
from gpuwatch.providers.toolkit.rate_limiter import SEARCH
from gpuwatch.storage.history.queries.poll_queries import searches_since
from gpuwatch.storage.market.provider_holds import SqlHolds

if TYPE_CHECKING:
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database


class PollingStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One enabled provider's searches."""

    plan: PollingPlan
    last_hour: Mapping[str, int]  # number of searches by lane
    hold: Hold | None  # no search before its end


def polling_status(settings: Settings, store: Database, name: str, now: datetime) -> PollingStatus:
    """Plan and searches of one enabled provider. Raises StoreError."""
    searches = searches_since(store, name, now - timedelta(hours=1))
    holds = [hold for hold in SqlHolds(store).load(name) if hold.kind == SEARCH and hold.set_at <= now < hold.until]
    return PollingStatus(
        plan=polling_plan(settings, name, store),
        last_hour=dict.fromkeys(LANES, 0) | searches,
        hold=holds[0] if holds else None,
    )


def polling_json(status: PollingStatus | None) -> dict[str, object] | None:
    """JSON of `polling` in `gpuwatch providers`; None: the provider is off."""
    if status is None:
        return None
    plan, hold = status.plan, status.hold
    available = plan.available_a_minute
    return {
        "searches_a_minute": {
            "available": None if available is None else round(available, 2),
            "hunt": round(plan.hunts_a_minute, 2),
            "sweep": round(plan.sweeps_a_minute, 2),
        },
        "searches_last_hour": dict(status.last_hour),
        "queries": plan.queries,
        "questions": [_shared_query_json(query) for query in plan.shared_queries],
        "round_s": round(plan.round_s, 1),
        "watches": [
            {"watch": name, "seen_within_s": round(seconds, 1)} for name, seconds in plan.seen_within_s.items()
        ],
        "warning": plan.warning,
        "held_until": rfc3339(hold.until if hold else None),
        "held_because": hold.reason if hold else None,
        "quota_resets_at": rfc3339(hold.quota_resets_at if hold else None),
    }


def _shared_query_json(shared: SharedQuery) -> dict[str, object]:
    query = shared.query
    return {
        "gpu": list(query.gpus),
        "gpu_count": [query.count_min, query.count_max],
        "spot": query.spot,
        "max_listed_usd_hour": query.max_listed_usd_hour,
        "expected_rows": round(shared.rows),
        "every_s": round(shared.every_s, 1),
        "watches": list(shared.watches),
    }
