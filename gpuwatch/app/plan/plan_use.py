"""GPU utilisation and rental cost of the owner's launches, and the cost of an hour of useful work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.bootstrap import open_store_read_only, real_now
from gpuwatch.domain.launches.instances.instance_checks import wasted_microusd
from gpuwatch.domain.launches.money.launch_costs import predicted_cost, price_segments
from gpuwatch.domain.market.json_view import number, rfc3339
from gpuwatch.domain.market.money import MICRO
from gpuwatch.domain.market.offer import priced_units
from gpuwatch.domain.plan.buy import UTILISATION_METHOD_TEXT, UtilisedPrice, price_at_utilisation
from gpuwatch.domain.plan.ownership import LoadStep
from gpuwatch.storage.launches.invoice_rows import SqlUtilisationRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

if TYPE_CHECKING:
    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.settings import Settings


class LaunchUtilisation(msgspec.Struct, frozen=True, kw_only=True):
    """One launch: its cost, and its price at the utilisation of its GPUs."""

    launch: Launch
    cost_usd: Decimal
    usd_gpu_hour: Decimal
    price: UtilisedPrice | None  # None: the provider does not report the utilisation

    @property
    def wasted_usd(self) -> Decimal:
        """The part of the cost that bought no work."""
        percent = self.price.percent if self.price else 0.0
        return Decimal(wasted_microusd(int(self.cost_usd * MICRO), percent)) / MICRO


class RentedPeriod(msgspec.Struct, frozen=True, kw_only=True):
    """The rental in a period."""

    since: datetime
    until: datetime
    launches: int
    hours: Decimal  # billed hours of instances
    gpu_hours: Decimal
    usd: Decimal  # GPU, disk, commission and traffic

    @property
    def is_enough(self) -> bool:
        """Whether the period is long enough for a comparison: at least a day, with some rental."""
        return self.gpu_hours > 0 and self.days >= 1

    @property
    def days(self) -> Decimal:
        """The length of the period."""
        return Decimal(str((self.until - self.since) / timedelta(days=1)))


class OwnLoad(msgspec.Struct, frozen=True, kw_only=True):
    """How many GPUs the owner rented at once, in hours of an average day of the period."""

    days: Decimal
    launches: int
    steps: tuple[LoadStep, ...]

    @property
    def gpu_hours_a_day(self) -> Decimal:
        """The rented GPU-hours of an average day."""
        return sum((step.gpus * step.hours for step in self.steps), Decimal(0))


def own_load(settings: Settings, since: datetime, gpus: tuple[str, ...] | None) -> OwnLoad | None:
    """The load of the launches since then; None: less than a day of launches.

    Args:
        since, gpus: as for `own_rent`.

    Raises:
        StoreError: the launches cannot be read.
    """
    now = real_now()
    rented = own_rent(settings, since, gpus)
    if not rented.is_enough:
        return None
    with open_store_read_only(settings) as store:
        launches = [
            launch
            for launch in SqlLaunchRepository(store).all()
            if _counts(launch, since, now) and (gpus is None or launch.gpu in gpus)
        ]
    changes: Counter[datetime] = Counter()
    for launch in launches:
        for part in price_segments(launch, now):
            changes[max(part.start, rented.since)] += launch.gpu_count
            changes[max(part.end, rented.since)] -= launch.gpu_count
    seconds: Counter[int] = Counter()
    at_once, moments = 0, sorted(changes)
    for start, end in pairwise(moments):
        at_once += changes[start]
        seconds[at_once] += round((end - start).total_seconds())
    steps = (LoadStep(gpus, Decimal(s) / 3600 / rented.days) for gpus, s in sorted(seconds.items()) if gpus and s)
    return OwnLoad(days=rented.days, launches=rented.launches, steps=tuple(steps))


def own_uses(settings: Settings, since: datetime, low: float, good: float) -> list[LaunchUtilisation]:
    """Launches billed since then, newest first, rated by two thresholds in percent. Raises StoreError."""
    now = real_now()

    def use(launch: Launch, percent: float | None) -> LaunchUtilisation:
        price = Decimal(launch.price_microusd_hour) / MICRO / priced_units(launch.gpu_count)
        return LaunchUtilisation(
            launch=launch,
            cost_usd=Decimal(predicted_cost(launch, now).total) / MICRO,
            usd_gpu_hour=price,
            price=None if percent is None else price_at_utilisation(price, percent, low, good),
        )

    with open_store_read_only(settings) as store:
        samples = SqlUtilisationRepository(store)
        launches = [launch for launch in SqlLaunchRepository(store).all() if _counts(launch, since, now)]
        return [use(launch, samples.mean(launch.launch_id)) for launch in launches]


def own_rent(settings: Settings, since: datetime, gpus: tuple[str, ...] | None) -> RentedPeriod:
    """The rental since then, by gpuwatch's own calculation.

    Args:
        since: if the first launch is later, the period starts there.
        gpus: canonical names; None: all.

    Raises:
        StoreError: the launches cannot be read.
    """
    now = real_now()
    with open_store_read_only(settings) as store:
        launches = [
            launch
            for launch in SqlLaunchRepository(store).all()
            if _counts(launch, since, now) and (gpus is None or launch.gpu in gpus)
        ]
    costs = [(launch, predicted_cost(launch, now, since)) for launch in launches]
    first = min((launch.requested_at for launch in launches if launch.requested_at is not None), default=now)
    return RentedPeriod(
        since=max(since, first),
        until=now,
        launches=len(launches),
        hours=sum((_hours(cost.billed_ms) for _, cost in costs), Decimal(0)),
        gpu_hours=sum((_hours(cost.billed_ms) * launch.gpu_count for launch, cost in costs), Decimal(0)),
        usd=Decimal(sum(cost.total for _, cost in costs)) / MICRO,
    )


def _counts(launch: Launch, since: datetime, now: datetime) -> bool:
    return not launch.dry_run and predicted_cost(launch, now, since).billed_ms > 0


def _hours(milliseconds: int) -> Decimal:
    return Decimal(milliseconds) / 3_600_000


def plan_use_json(price: Decimal, prices: Sequence[UtilisedPrice]) -> dict[str, Any]:
    """JSON of `gpuwatch plan use`."""
    price_list = [price_json(price) for price in prices]
    return {
        "method": UTILISATION_METHOD_TEXT,
        "samples": len(prices),
        "price_usd_gpu_hour": number(price),
        "uses": price_list,
    }


def own_use_json(since: datetime, until: datetime, uses: Sequence[LaunchUtilisation]) -> dict[str, Any]:
    """JSON of `gpuwatch plan use --launches`."""
    return {
        "method": f"{UTILISATION_METHOD_TEXT}, mean of the looks at each launch",
        "samples": sum(use.price is not None for use in uses),
        "since": rfc3339(since),
        "until": rfc3339(until),
        "launches": [_own_json(use) for use in uses],
    }


def price_json(price: UtilisedPrice | None) -> dict[str, Any]:
    """A price at a utilisation; null: not measured, or without a price."""
    return {
        "use_percent": price and price.percent,
        "useful_usd_gpu_hour": price and number(price.useful_usd_hour),
        "idle_usd_gpu_hour": price and number(price.idle_usd_hour),
        "verdict": price and price.verdict.value,
    }


def _own_json(utilisation: LaunchUtilisation) -> dict[str, Any]:
    return {
        "launch_id": utilisation.launch.launch_id,
        "watch": utilisation.launch.watch,
        "gpu": utilisation.launch.gpu,
        "gpu_count": utilisation.launch.gpu_count,
        "price_usd_gpu_hour": number(utilisation.usd_gpu_hour),
        "cost_usd": number(utilisation.cost_usd),
        "wasted_usd": utilisation.price and number(utilisation.wasted_usd),
        **price_json(utilisation.price),
    }
