"""GPU utilisation and rent of the owner's launches, for the planner."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.bootstrap import open_store_read_only, real_now
from gpuwatch.domain.launches.costs import predicted_cost
from gpuwatch.domain.launches.utilisation import wasted_microusd
from gpuwatch.domain.market.json_values import number, rfc3339
from gpuwatch.domain.market.pricing import MICRO
from gpuwatch.storage.launch_repository import SqlLaunchRepository
from gpuwatch.storage.utilisation import SqlUtilisationRepository

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.domain.planning.utilisation import UtilisedPrice
    from gpuwatch.settings import Settings


class OwnUse(msgspec.Struct, frozen=True, kw_only=True):
    """One launch: its cost and the utilisation of its GPUs."""

    launch: Launch
    cost_usd: Decimal
    usd_gpu_hour: Decimal
    percent: float | None  # None: the provider does not report it


class OwnRent(msgspec.Struct, frozen=True, kw_only=True):
    """What was rented in a period."""

    since: datetime
    until: datetime
    launches: int
    hours: Decimal  # of instances, billed
    gpu_hours: Decimal
    usd: Decimal  # GPU, disk, commission and traffic

    @property
    def is_enough(self) -> bool:
        """Whether it is enough to compute with: at least a day, with something rented."""
        return self.gpu_hours > 0 and self.days >= 1

    @property
    def days(self) -> Decimal:
        """The length of the period."""
        return Decimal(str((self.until - self.since) / timedelta(days=1)))


def own_uses(settings: Settings, since: datetime) -> list[OwnUse]:
    """Launches that were billed since then, newest first. Raises StoreError."""
    now = real_now()
    with open_store_read_only(settings) as store:
        uses = SqlUtilisationRepository(store)
        return [
            _use(one, now, uses.mean(one.launch_id))
            for one in SqlLaunchRepository(store).all()
            if _counts(one, since, now)
        ]


def own_rent(settings: Settings, since: datetime, gpus: tuple[str, ...] | None) -> OwnRent:
    """What was rented since then, as gpuwatch computes it.

    Args:
        since: if the first launch is later, the period starts there.
        gpus: canonical names; None: all.

    Raises:
        StoreError: the launches cannot be read.
    """
    now = real_now()
    with open_store_read_only(settings) as store:
        mine = [
            one
            for one in SqlLaunchRepository(store).all()
            if _counts(one, since, now) and (gpus is None or one.gpu in gpus)
        ]
    costs = [(one, predicted_cost(one, now, since)) for one in mine]
    first = min((one.requested_at for one in mine if one.requested_at is not None), default=now)
    return OwnRent(
        since=max(since, first),
        until=now,
        launches=len(mine),
        hours=sum((_hours(cost.billed_ms) for _, cost in costs), Decimal(0)),
        gpu_hours=sum((_hours(cost.billed_ms) * one.gpu_count for one, cost in costs), Decimal(0)),
        usd=Decimal(sum(cost.total for _, cost in costs)) / MICRO,
    )


def _counts(launch: Launch, since: datetime, now: datetime) -> bool:
    return not launch.dry_run and predicted_cost(launch, now, since).billed_ms > 0


def _use(launch: Launch, now: datetime, percent: float | None) -> OwnUse:
    return OwnUse(
        launch=launch,
        cost_usd=Decimal(predicted_cost(launch, now).total) / MICRO,
        usd_gpu_hour=Decimal(launch.price_microusd_hour) / MICRO / launch.gpu_count,
        percent=percent,
    )


def _hours(milliseconds: int) -> Decimal:
    return Decimal(milliseconds) / 3_600_000


METHOD = "price ÷ use"


def wasted_usd(one: OwnUse) -> Decimal:

    return Decimal(wasted_microusd(int(one.cost_usd * MICRO), one.percent or 0.0)) / MICRO


def plan_use_json(price: Decimal, found: Sequence[UtilisedPrice]) -> dict[str, Any]:
    """JSON of `gpuwatch plan use`."""
    shown = [_price_json(one) for one in found]
    return {"method": METHOD, "samples": len(found), "price_usd_gpu_hour": number(price), "uses": shown}


def own_use_json(
    since: datetime, until: datetime, judged: Sequence[tuple[OwnUse, UtilisedPrice | None]]
) -> dict[str, Any]:
    """JSON of `gpuwatch plan use --launches`."""
    return {
        "method": f"{METHOD}, mean of the looks at each launch",
        "samples": sum(found is not None for _, found in judged),
        "since": rfc3339(since),
        "until": rfc3339(until),
        "launches": [_own_json(*pair) for pair in judged],
    }


def _price_json(one: UtilisedPrice) -> dict[str, Any]:

    return {
        "use_percent": one.percent,
        "useful_usd_gpu_hour": number(one.useful_usd_hour),
        "idle_usd_gpu_hour": number(one.idle_usd_hour),
        "verdict": one.verdict.value,
    }


def _own_json(one: OwnUse, found: UtilisedPrice | None) -> dict[str, Any]:

    empty = {"use_percent": None, "useful_usd_gpu_hour": None, "idle_usd_gpu_hour": None, "verdict": None}
    return {
        "launch_id": one.launch.launch_id,
        "watch": one.launch.watch,
        "gpu": one.launch.gpu,
        "gpu_count": one.launch.gpu_count,
        "price_usd_gpu_hour": number(one.usd_gpu_hour),
        "cost_usd": number(one.cost_usd),
        "wasted_usd": None if found is None else number(wasted_usd(one)),
        **(empty if found is None else _price_json(found)),
    }
