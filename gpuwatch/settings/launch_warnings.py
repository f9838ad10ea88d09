"""Warnings about valid launch settings: conflicting limits, and thresholds in the wrong order."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal

from gpuwatch import providers
from gpuwatch.domain.launches.labels import EXTRA_LENGTH
from gpuwatch.domain.launches.money.billing import END_PROVEN_S
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.domain.plan.job_hours import HOUR_S, JobHours, hours_on
from gpuwatch.domain.setup.durations import format_duration
from gpuwatch.domain.watches.watch import Action, Budget, LaunchSpec, SpotPolicy, Watch
from gpuwatch.settings.model import Settings

_BUDGET_HOURS = {"max_usd_hour": 1.0, "max_usd_day": 24.0, "max_usd_month": 31 * 24.0}  # longest period of each limit


def launch_warnings(settings: Settings) -> Iterator[str]:
    """One line per warning."""
    for watch in settings.watches:
        yield from (f'watch "{watch.name}": {text}' for text in _watch_warnings(settings, watch))


def _watch_warnings(settings: Settings, watch: Watch) -> Iterator[str]:
    rents = watch.action is not Action.ALERT
    if watch.launch is not None:
        yield from _threshold_warnings(watch, watch.launch)
        yield from _job_warnings(watch, watch.launch)
        yield from _label_warnings(watch.launch)
    yield from _spot_warnings(settings, watch)
    if watch.max_per_day is not None and not rents:
        yield 'max_per_day has no effect with action = "alert", which rents nothing'
    if rents:
        yield from _provider_warnings(settings, watch)
        yield from _host_warnings(settings, watch)
    if watch.launch is not None and rents:
        for section, budget in (("[budget]", settings.budget), ("[watch.budget]", watch.budget)):
            yield from _budget_warnings(watch, watch.launch, section, budget)


def _label_warnings(launch: LaunchSpec) -> Iterator[str]:
    if len(launch.label_extra or "") > EXTRA_LENGTH:
        yield f"launch.label_extra is longer than {EXTRA_LENGTH} characters: a label keeps only the first ones"


def _spot_warnings(settings: Settings, watch: Watch) -> Iterator[str]:
    """A provider without spot instances answers such a query with no offers, which looks like an empty market."""
    names = [name for name in watch.providers or settings.providers if name in settings.providers]
    without_spot = [name for name in names if True not in providers.info(name).spots]
    if watch.spot is SpotPolicy.ONLY and without_spot and (watch.providers is not None or without_spot == names):
        yield f'{" and ".join(without_spot)} offers no spot instances: with spot = "only" it finds nothing there'


def _provider_warnings(settings: Settings, watch: Watch) -> Iterator[str]:
    """Providers that cannot serve the watch, and those that ignore a part of its launch settings."""
    infos = [providers.info(name) for name in watch.providers or settings.providers if name in settings.providers]
    explicit = infos if watch.providers is not None else []
    only_listed = [info.name for info in explicit if OfferKind.LIVE not in info.kinds]
    not_rentable = [info.name for info in explicit if not info.launches and OfferKind.LIVE in info.kinds]
    runtype = watch.launch.runtype if watch.launch else ""
    machines = [info for info in infos if info.launches and not info.runs_image(runtype)]
    if only_listed:
        yield f"{' and '.join(only_listed)} offers list prices only: a watch that rents does not search there"
    if not_rentable:
        yield f"gpuwatch cannot rent at {' and '.join(not_rentable)}: it only reports matching offers there"
    onstart = {True: "and the machine itself runs launch.onstart", False: "and launch.onstart is refused"}
    for runs_onstart, consequence in onstart.items():
        if names := [info.name for info in machines if info.runs_onstart is runs_onstart]:
            yield f"{' and '.join(names)} rents out virtual machines: launch.image is ignored there, {consequence}"


def _host_warnings(settings: Settings, watch: Watch) -> Iterator[str]:
    """At some providers anybody can be a host; these conditions exclude the worst hosts."""
    missing = [] if watch.verified else ["verified = true"]
    missing += ["min_reliability = 0.95"] if watch.min_reliability is None else []
    names = [name for name in watch.providers or settings.providers if name in settings.providers]
    open_to_all = [name for name in names if providers.info(name).rates_hosts]
    if missing and open_to_all:
        yield f"it may rent from any host at {' and '.join(open_to_all)}; add {' and '.join(missing)}"


def _threshold_warnings(watch: Watch, launch: LaunchSpec) -> Iterator[str]:
    wasteful, idle = launch.wasteful_below, launch.idle_below
    if wasteful is not None and idle is not None and wasteful < idle:
        yield (
            f"launch.wasteful_below = {wasteful:g} is below idle_below = {idle:g}: "
            "an idle instance is stopped before the low-utilisation warning"
        )
    has_price_limit = watch.max_job_cost_usd is None
    if has_price_limit and launch.bid is not None and launch.bid.max_usd_gpu_hour > watch.max_price_usd_gpu_hour:
        yield (
            f"launch.bid.max = {launch.bid.max_usd_gpu_hour} is above max_price = {watch.max_price_usd_gpu_hour}: "
            "an instance may cost more than the offer that fired"
        )


def _job_warnings(watch: Watch, launch: LaunchSpec) -> Iterator[str]:
    """Warnings for watches that are limited by the cost of the whole job."""
    if watch.job is None:
        return
    counts = range(watch.gpu_count_min, watch.gpu_count_max + 1)
    estimates = [hours_on(watch.job, gpu, count) for gpu in watch.gpu_names for count in counts]
    durations = [hours.value for hours in estimates if isinstance(hours, JobHours)]
    if launch.max_runtime_s is None or not durations:
        return
    min_h, max_h = min(hours.low for hours in durations), max(hours.high for hours in durations)
    runtime = format_duration(launch.max_runtime_s)
    if launch.max_runtime_s < min_h * HOUR_S:
        yield (
            f"launch.max_runtime = {runtime} ends every instance before its job is done, "
            f"which takes at least {min_h:.1f} h"
        )
    elif launch.max_runtime_s < min(max_h * HOUR_S, watch.job.within_s or math.inf):
        yield (
            f"launch.max_runtime = {runtime} ends some instances before their job is done, which takes up to "
            f'{max_h:.1f} h; set job.within = "{runtime}" to exclude those'
        )


def _budget_warnings(watch: Watch, launch: LaunchSpec, section: str, budget: Budget) -> Iterator[str]:
    """A budget reserves the whole `max_runtime` of a launch, and until its end is proven, at its highest price."""
    is_bid = watch.spot is SpotPolicy.ONLY and launch.bid is not None
    per_gpu = launch.bid.max_usd_gpu_hour if is_bid and launch.bid else watch.max_price_usd_gpu_hour
    runtime_h = (24.0 if launch.max_runtime_s is None else launch.max_runtime_s / 3600) + END_PROVEN_S / 3600
    for key, window_h in _BUDGET_HOURS.items():
        limit: Decimal | None = getattr(budget, key)
        hours = 1.0 if key == "max_usd_hour" else min(runtime_h, window_h)
        cost = per_gpu * watch.gpu_count_min * Decimal(repr(hours))
        if limit is not None and cost > limit:
            yield (
                f"{section} {key} = {limit} blocks every launch at {'bid.max' if is_bid else _limit_key(watch)}: "
                f"{watch.gpu_count_min} GPU × {per_gpu} USD × {hours:.4g} h = {cost:.2f} USD"
            )


def _limit_key(watch: Watch) -> str:
    """The key that limits the price of an offer."""
    if watch.max_job_cost_usd is not None:
        return "max_job_cost"
    return "max_price" if watch.auto is None else "max_price_cap"
