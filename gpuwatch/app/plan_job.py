"""What a job costs, all in: on hardware that is named, or on current offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.current_offers import CurrentOffers, current_offers
from gpuwatch.app.offers import offer_json
from gpuwatch.app.plan_size import is_named, memory_needed, workload_of
from gpuwatch.app.throughput_table import throughput_table
from gpuwatch.domain.market.json_values import rfc3339
from gpuwatch.domain.market.pricing import HOURS_A_MONTH, MICRO
from gpuwatch.domain.planning.figures import FigureRange, exactly
from gpuwatch.domain.planning.job import METHOD_TEXT, JobCost, JobTraffic, load_usd
from gpuwatch.domain.planning.job_comparison import (
    ComparedHardware,
    Feasibility,
    HardwareExtras,
    JobRanking,
    compare_hardware,
    feasibility,
    parse_hardware,
    rank_offers,
)
from gpuwatch.domain.planning.job_hours import JobSpec
from gpuwatch.domain.planning.job_speed import speed_of
from gpuwatch.domain.watches.durations import parse_duration
from gpuwatch.domain.watches.job_schema import WrongJob, job_from
from gpuwatch.engine.browse import offer_filter
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.planning.memory_need import WorkloadRequest
    from gpuwatch.settings import Settings

_POLL_S = 60.0
_OF_WORKLOAD = ("method", "precision", "optimizer", "batch", "context")  # that `[watch.job]` knows as well
_OFFER_ONLY = ("gpu", "count", "provider", "verified", "data", "poll")


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A job and where it may run; as the options of `gpuwatch plan job`."""

    job: Mapping[str, Any]  # keys of `[watch.job]`, as one writes them there
    workload: WorkloadRequest
    download_gb: float
    upload_gb: float
    disk_gb: float | None
    # of offers
    gpu: tuple[str, ...]
    count: str | None
    spot: str
    provider: tuple[str, ...]
    verified: bool
    listed: bool
    poll: bool
    data: Path | None
    timeout_s: float | None
    # of named hardware
    candidates: tuple[str, ...]
    commission: float
    disk_usd_gb_month: float
    download_usd_gb: float | None
    upload_usd_gb: float | None
    min_billing_s: float | None
    seed: bool  # price × hours only, as the sources compute
    credit: float  # USD
    max_cost_usd: float | None = None  # what the job may cost; None: any

    @property
    def traffic(self) -> JobTraffic:
        """What it transfers."""
        return JobTraffic(self.download_gb, self.upload_gb)


class HardwarePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The named hardware in the given order; the others are compared with the first."""

    spec: JobSpec
    found: Sequence[ComparedHardware]


class OfferPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The offers, cheapest job first."""

    spec: JobSpec
    market: CurrentOffers
    ranking: JobRanking


def plan_on_hardware(asked: JobRequest) -> HardwarePlan:
    """Compare what the job costs on the candidates. Raises UsageError."""
    spec = _spec(asked)
    if named := [name for name in _OFFER_ONLY if getattr(asked, name)]:
        raise UsageError(f"--{named[0]} goes with real offers: omit the candidates")
    if asked.spot == "no" and asked.job.get("interruptions_per_day"):
        raise UsageError("--interruptions-per-day goes with --spot only: cards on demand are not interrupted")
    if asked.spot == "any":
        raise UsageError("--spot any goes with real offers; of candidates, either all are interruptible or none")
    traffic, extras = asked.traffic, _extras(asked)
    if asked.seed:
        spec, traffic, extras = _as_sources(spec), JobTraffic(), HardwareExtras(commission=extras.commission)
    try:
        found = compare_hardware(spec, [parse_hardware(text) for text in asked.candidates], traffic, extras)
    except ValueError as fault:
        raise UsageError(str(fault)) from fault
    return HardwarePlan(spec=spec, found=found)


def plan_on_offers(settings: Settings, asked: JobRequest) -> OfferPlan:
    """Rank current offers by what the job costs there.

    Raises:
        UsageError: the request says too little, or a name or the file cannot be used.
        StoreError: the store cannot be read.
    """
    spec = _spec(asked)
    _check_is_enough(asked, spec)
    wanted = offer_filter(
        asked.gpu,
        count=asked.count,
        spot=asked.spot,
        disk_gb=asked.disk_gb,
        verified=asked.verified,
        kind="all" if asked.listed else "live",
    )
    within_s = (asked.timeout_s or _POLL_S) if asked.poll else None
    market = current_offers(settings, wanted, asked.provider, asked.data, within_s)
    return OfferPlan(spec=spec, market=market, ranking=rank_offers(spec, market.offers, asked.traffic, asked.disk_gb))


def is_estimated(spec: JobSpec) -> bool:
    """Is the speed taken from published measurements, because nothing says how fast the job is?"""
    return spec.speed is not None


def verdict_of(asked: JobRequest, costs: Sequence[JobCost]) -> Feasibility | None:
    """Whether any of these stays within the highest cost; None: none was given."""
    if asked.max_cost_usd is None:
        return None
    found = {feasibility(cost, asked.max_cost_usd + asked.credit) for cost in costs}
    return next((one for one in Feasibility if one in found), Feasibility.NOT_FEASIBLE)


def _spec(asked: JobRequest) -> JobSpec:
    """The job, with the memory that its model needs. Raises UsageError: one line for each fault, with its option."""
    work = asked.workload
    table = dict(asked.job) | {key: value for key in _OF_WORKLOAD if (value := getattr(work, key)) is not None}
    if work.params is not None:
        table["model"] = work.params
    try:
        spec = job_from(table)
    except WrongJob as wrong:
        raise UsageError("\n".join(f"{_flag(key)}: {text}" for key, text in wrong.faults)) from None
    if is_named(work) and "memory_gb" not in asked.job:
        spec = msgspec.structs.replace(spec, memory_gb=memory_needed(work).gb)
    if spec.tokens is None or spec.utilisation is not None or not is_named(work):
        return spec
    return msgspec.structs.replace(spec, speed=speed_of(workload_of(work), throughput_table()))


def _flag(key: str) -> str:
    return "--size-of" if key == "model" else f"--{(key or 'method').replace('_', '-')}"


def _extras(asked: JobRequest) -> HardwareExtras:
    disk = Decimal(repr(asked.disk_usd_gb_month)) * Decimal(repr(asked.disk_gb or 0.0)) / HOURS_A_MONTH
    return HardwareExtras(
        commission=Decimal(repr(asked.commission)),
        spot=asked.spot == "only",
        disk_usd_hour=disk,
        download_usd_gb=asked.download_usd_gb,
        upload_usd_gb=asked.upload_usd_gb,
        min_billing_s=asked.min_billing_s or 0.0,
    )


def _as_sources(spec: JobSpec) -> JobSpec:
    """Price × hours, nothing else."""
    return msgspec.structs.replace(
        spec, setup_s=exactly(0.0), load_s=exactly(0.0), image_gb=0.0, interruptions_per_day=0.0, memory_gb=0.0
    )


def _check_is_enough(asked: JobRequest, spec: JobSpec) -> None:
    """Reject a job whose cost cannot be computed on any offer."""
    if asked.seed:
        raise UsageError("--seed goes with candidates: the sources name their cards and prices")
    if spec.hours is None and spec.tokens is None:
        raise UsageError(
            "how long does it take? Use --hours with --on, or --tokens with --tokens-per-s or --utilisation"
        )
    if spec.hours is not None and spec.tokens is not None:
        raise UsageError("use either --hours or --tokens")
    if spec.hours is not None and spec.on is None:
        raise UsageError('on which GPUs does it take those hours? Use --on "4x A100"')
    if spec.tokens is not None and not spec.tokens_per_s and spec.flop is None and spec.speed is None:
        raise UsageError("how fast is it? Use --tokens-per-s, or the model's size: --size-of")
    if asked.spot != "no" and "interruptions_per_day" not in asked.job:
        raise UsageError("how often is it interrupted? Use --interruptions-per-day (0: never)")


def load_range(one: ComparedHardware, spec: JobSpec, load: str) -> FigureRange:
    """What one load of the model costs, by itself."""
    low, dash, high = load.partition("-")
    said = FigureRange(parse_duration(low), parse_duration(high)) if dash else exactly(parse_duration(low))
    return load_usd(1, one.priced_gpus.microusd_hour / MICRO, spec.load_s if spec.load_s.high else said)


def after_credit(cost: JobCost, asked: JobRequest) -> float:
    """US dollars that are left to pay."""
    return max(0.0, cost.microusd / MICRO - asked.credit)


# --- JSON -------------------------------------------------------------------------------------------------------------


def hardware_plan_json(asked: JobRequest, plan: HardwarePlan) -> dict[str, Any]:
    """JSON of `gpuwatch plan job` for named hardware."""
    return {
        # word-check: allow - a value of the JSON
        "method": "price × hours, as the sources reckon" if asked.seed else METHOD_TEXT,
        "seed": asked.seed,
        "feasible": verdict_of(asked, [one.cost for one in plan.found]),
        "candidates": [_compared_json(asked, plan, one) for one in plan.found],
    }


def _compared_json(asked: JobRequest, plan: HardwarePlan, one: ComparedHardware) -> dict[str, Any]:
    load = asked.job.get("load")
    return {
        "cards": one.candidate.on.text,
        "gpu": one.priced_gpus.gpu,
        "gpu_count": one.priced_gpus.count,
        "price_usd_hour": one.priced_gpus.microusd_hour / MICRO,
        "difference_usd": (one.cost.microusd - plan.found[0].cost.microusd) / MICRO,
        "break_even_speedup": round(one.break_even, 6),
        "speedup": list(one.speed),
        "load_usd": None if load is None else list(load_range(one, plan.spec, load)),
        "after_credit_usd": after_credit(one.cost, asked),
        **_cost_json(one.cost),
    }


def _cost_json(cost: JobCost) -> dict[str, Any]:
    """What a job costs, at worst by parts; more keys may follow."""
    high = cost.high
    return {
        "job_cost_usd": cost.microusd / MICRO,
        "job_cost_low_usd": cost.low.microusd / MICRO,
        "hours": high.hours,
        "hours_low": cost.low.hours,
        "hours_from": cost.how,
        "interruptions": high.interruptions,
        "work_usd": high.usd_for(high.work_h),
        "ready_usd": high.usd_for(high.ready_h),
        "restarts_usd": high.usd_for(high.restart_h + high.lost_h),
        "least_billing_usd": high.usd_for(high.minimum_h),
        "traffic_usd": high.traffic_usd,
        "disk_usd": high.disk_usd,
        "unknown": list(cost.unknown),
    }


def offer_plan_json(asked: JobRequest, plan: OfferPlan, limit: int) -> dict[str, Any]:
    """JSON of `gpuwatch plan job` for offers, cheapest job first."""
    as_of = rfc3339(plan.market.as_of)
    return {
        "method": METHOD_TEXT,
        "samples": plan.ranking.seen,
        "since": as_of,
        "until": as_of,
        "source": plan.market.source,
        "feasible": verdict_of(asked, [one.cost for one in plan.ranking.placed if not one.too_cheap]),
        "offers": [
            offer_json(one.offer, one.price)
            | _cost_json(one.cost)
            | {"after_credit_usd": after_credit(one.cost, asked), "too_cheap": one.too_cheap}
            for one in plan.ranking.placed[:limit]
        ],
        "refused": [{"reason": reason, "offers": count} for reason, count in plan.ranking.refused],
    }
