"""GPU utilisation of running launches: stores one sample per poll, ends idle launches, reports waste."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from gpuwatch.domain.alerts.guard_texts import WASTE
from gpuwatch.domain.launches.instance import Instance
from gpuwatch.domain.launches.instances.end_rules import EndCause
from gpuwatch.domain.launches.instances.instance_checks import (
    LOOK_BACK,
    UtilisationSample,
    idle_cause,
    mean_utilisation,
    useful_usd_gpu_hour,
    wasted_microusd,
)
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.launches.money.launch_costs import cost_microusd
from gpuwatch.domain.market.figure_text import number_text
from gpuwatch.domain.market.money import dollars, price_text, usd
from gpuwatch.domain.setup.durations import is_recent
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.engine.launches.followed_launch import FollowedLaunches
from gpuwatch.engine.launches.guarding.guard_alerts import GuardAlerts
from gpuwatch.errors import StoreError

if TYPE_CHECKING:
    from gpuwatch.storage.launches.invoice_rows import SqlUtilisationRepository

log = logging.getLogger(__name__)

_DAY = timedelta(days=1)


class UtilisationGuard:
    """Takes samples and acts on them."""

    def __init__(self, uses: SqlUtilisationRepository, alerts: GuardAlerts, followed: FollowedLaunches) -> None:
        self._utilisation = uses
        self._alerts = alerts
        self._followed = followed

    def fault(self, launch: Launch, instance: Instance, spec: LaunchSpec | None, now: datetime) -> EndCause | None:
        """Store a sample and report waste; return an end cause if it is idle. A failing store disables nothing else."""
        percent = utilisation_percent(instance) if launch.gpu_count else None
        sample = UtilisationSample(now, percent)
        try:
            self._utilisation.add(launch.launch_id, sample)
            if spec is None or sample.percent is None:
                return None
            fault = self._idle(launch, spec, now)
            if fault is None:
                self._waste(launch, spec, now)
            return fault
        except StoreError as error:
            log.warning("launch %s: its GPU utilisation is unknown: %s", launch.launch_id, error)
            return None

    def _idle(self, launch: Launch, spec: LaunchSpec, now: datetime) -> EndCause | None:
        if spec.idle_below is None or spec.idle_for_s is None:
            return None
        samples = self._utilisation.samples_since(
            launch.launch_id, now - LOOK_BACK * timedelta(seconds=spec.idle_for_s)
        )
        return idle_cause(samples, spec.idle_below, spec.idle_for_s, now)

    def _waste(self, launch: Launch, spec: LaunchSpec, now: datetime) -> None:
        if spec.wasteful_below is None:
            return
        samples = self._utilisation.samples_since(
            launch.launch_id, now - LOOK_BACK * timedelta(seconds=spec.wasteful_for_s)
        )
        mean = mean_utilisation(samples, spec.wasteful_for_s, now)
        if mean is None:
            return
        one = self._followed.of(launch)
        if mean >= spec.wasteful_below:
            if one.waste_reported_at is not None:
                one.waste_recovered_at, one.waste_reported_at = now, None
        elif one.waste_reported_at is None or not is_recent(one.waste_reported_at, now, _DAY):
            one.waste_reported_at = now
            self._report(launch, spec, mean, now)

    def _report(self, launch: Launch, spec: LaunchSpec, mean: float, now: datetime) -> None:
        whole = self._utilisation.mean(launch.launch_id)
        wasted = wasted_microusd(cost_microusd(launch, now), mean if whole is None else whole)
        gpu_price = usd(launch.price_microusd_hour) / max(launch.gpu_count, 1)
        recovered_at = self._followed.of(launch).waste_recovered_at
        self._alerts.report(
            launch,
            WASTE,
            now,
            day=max(0, (now - (launch.running_at or launch.intended_at)) // _DAY),
            recovered="" if recovered_at is None else f"{recovered_at:%Y%m%dT%H%M%S}",
            mean=mean,
            minutes=number_text(spec.wasteful_for_s / 60),
            below=spec.wasteful_below,
            useful=_useful(gpu_price, mean),
            wasted=dollars(usd(wasted)),
        )


def utilisation_percent(instance: Instance) -> float | None:
    """Return GPU utilisation; impossible values count as unknown."""
    percent = instance.gpu_utilisation
    return percent if percent is not None and 0 <= percent <= 100 else None


def _useful(gpu_price_usd_hour: Decimal, percent: float) -> str:
    paid = f"${price_text(gpu_price_usd_hour)} per GPU-hour"
    useful = useful_usd_gpu_hour(gpu_price_usd_hour, percent)
    return f"no useful hour at {paid}" if useful is None else f"${price_text(useful)} per useful GPU-hour, at {paid}"
