"""The total cost of a job, on named hardware or on current offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.market.current_offers import CurrentOffers, current_offers
from gpuwatch.app.plan.plan_size import has_model, memory_needed, named_model, throughput_table, workload_of
from gpuwatch.domain.market.money import HOURS_A_MONTH, MICRO
from gpuwatch.domain.plan.figures import FigureRange, exactly
from gpuwatch.domain.plan.job_comparison import (
    ComparedHardware,
    Feasibility,
    HardwareExtras,
    JobRanking,
    PlannedHardware,
    compare_hardware,
    feasibility,
    parse_hardware,
    rank_offers,
)
from gpuwatch.domain.plan.job_hours import JobPrompts, JobSpec, data_of
from gpuwatch.domain.plan.job_total import JobCost, JobTraffic, load_usd
from gpuwatch.domain.plan.roofline import WorkMethod
from gpuwatch.domain.plan.throughput import JobSpeed, speed_of, speed_task_of
from gpuwatch.domain.setup.durations import parse_duration
from gpuwatch.domain.watches.watch_job_schema import WrongJob, job_from
from gpuwatch.engine.market.browse import offer_filter
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.plan.memory_need import WorkloadRequest
    from gpuwatch.settings import Settings

_POLL_S = 60.0
CPU_BOX_USD_HOUR = FigureRange(0.03, 0.10)  # the articles' boxes for preparing data
_OF_WORKLOAD = ("method", "precision", "optimizer", "batch", "context")  # keys that `[watch.job]` has as well
_OFFER_ONLY = ("gpu", "count", "provider", "verified", "data", "poll")


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A job and where it may run; the options of `gpuwatch plan job`."""

    job: Mapping[str, Any]  # keys of `[watch.job]`, in the same syntax
    workload: WorkloadRequest
    download_gb: float | None  # None: the size of the model and its data
    upload_gb: float
    disk_gb: float | None  # None: as for `download_gb`
    preloaded: bool  # image and model are already on the machine
    samples: float | None
    tokens_per_sample: float | None
    epochs: float | None
    prompt_tokens: float | None
    labour_hours: float
    labour_usd_hour: float
    prepare_hours: float
    prepare_usd_hour: FigureRange | None
    # for offers
    gpu: tuple[str, ...]
    count: str | None
    spot: str
    provider: tuple[str, ...]
    verified: bool
    listed: bool
    poll: bool
    data: Path | None
    timeout_s: float | None
    # for named hardware
    candidates: tuple[str, ...]
    commission: float
    disk_usd_gb_month: float
    download_usd_gb: float | None
    upload_usd_gb: float | None
    min_billing_s: float | None
    seed: bool  # price × hours only, as the sources compute it
    credit: float  # USD
    max_cost_usd: float | None = None  # limit for the cost of the job; None: no limit
    any_price: bool = False  # treat implausibly cheap offers like the others


class JobNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """The data that a job moves and stores. `derived`: the parts that follow from the model, as none were stated."""

    traffic: JobTraffic
    disk_gb: float | None
    load_s: FigureRange
    derived: tuple[str, ...] = ()


class HardwarePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The named hardware in the given order; the others are compared with the first one."""

    spec: JobSpec
    needs: JobNeeds
    compared: Sequence[ComparedHardware]


class OfferPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The offers, cheapest job first."""

    spec: JobSpec
    needs: JobNeeds
    market: CurrentOffers
    ranking: JobRanking

    @property
    def costs(self) -> list[JobCost]:
        """The offers that count for a verdict."""
        return [job_offer.cost for job_offer in (*self.ranking.placed, *self.ranking.late) if not job_offer.is_doubtful]


def plan_on_hardware(request: JobRequest) -> HardwarePlan:
    """Compare the cost of the job on the candidates. Raises UsageError."""
    spec = _spec(request)
    if offer_options := [name for name in _OFFER_ONLY if getattr(request, name)]:
        raise UsageError(f"--{offer_options[0]} requires real offers: omit the candidates")
    if request.spot == "no" and request.job.get("interruptions_per_day"):
        raise UsageError("--interruptions-per-day requires --spot only: on-demand instances are not interrupted")
    if request.spot == "only" and "interruptions_per_day" not in request.job:
        raise UsageError("--spot requires --interruptions-per-day (0: never)")
    if request.spot == "any":
        raise UsageError("--spot any requires real offers; candidates are either all interruptible or none")
    needs = _stated_needs(request, spec)
    extras = _extras(request, needs)
    if request.seed:
        spec, extras = _as_sources(spec), HardwareExtras(commission=extras.commission)
        needs = JobNeeds(traffic=JobTraffic(), disk_gb=None, load_s=spec.load_s)
    try:
        candidates = [parse_hardware(text) for text in request.candidates]
        _check_hours_are_given_once(request, candidates)
        compared = compare_hardware(spec, candidates, needs.traffic, extras)
    except ValueError as fault:
        raise UsageError(str(fault)) from fault
    return HardwarePlan(spec=spec, needs=needs, compared=compared)


def plan_on_offers(settings: Settings, request: JobRequest) -> OfferPlan:
    """Rank current offers by the cost of the job on them.

    Raises:
        UsageError: the request is incomplete, or a name or the file cannot be used.
        StoreError: the store cannot be read.
    """
    spec, needs = job_on_offers(request)
    filter_ = offer_filter(
        request.gpu,
        count=request.count,
        spot=request.spot,
        disk_gb=needs.disk_gb,
        verified=request.verified,
        kind="all" if request.listed else "live",
    )
    within_s = (request.timeout_s or _POLL_S) if request.poll else None
    market = current_offers(settings, filter_, request.provider, request.data, within_s)
    return rank_market(request, spec, needs, market)


def job_on_offers(request: JobRequest) -> tuple[JobSpec, JobNeeds]:
    """The job, and what it needs of an offer. Raises UsageError: the request is incomplete."""
    spec = _spec(request)
    _check_is_enough(request, spec)
    needs = _derived_needs(request, spec)
    return msgspec.structs.replace(spec, load_s=needs.load_s), needs


def rank_market(request: JobRequest, spec: JobSpec, needs: JobNeeds, market: CurrentOffers) -> OfferPlan:
    """Rank these offers by the cost of the job on them."""
    ranking = rank_offers(spec, market.offers, needs.traffic, needs.disk_gb, any_price=request.any_price)
    return OfferPlan(spec=spec, needs=needs, market=market, ranking=ranking)


def cheapest_at_any_length(request: JobRequest, plan: OfferPlan) -> JobCost | None:
    """The lowest cost of the job without a time limit; None: no offer can run it."""
    spec, needs = msgspec.structs.replace(plan.spec, within_s=None), plan.needs
    placed = rank_offers(spec, plan.market.offers, needs.traffic, needs.disk_gb, any_price=request.any_price).placed
    return next((job_offer.cost for job_offer in placed if not job_offer.is_doubtful), None)


def is_estimated(spec: JobSpec) -> bool:
    """Is the speed taken from published measurements, because nothing else states it?"""
    return spec.speed is not None


def job_verdict(request: JobRequest, spec: JobSpec, costs: Sequence[JobCost]) -> Feasibility | None:
    """Whether the job stays within the highest cost and the longest time on any offer; None: no limit was given."""
    if request.max_cost_usd is None and spec.within_s is None:
        return None
    max_cost_usd = None if request.max_cost_usd is None else request.max_cost_usd + request.credit
    verdicts = {feasibility(cost, max_cost_usd, spec.within_s) for cost in costs}
    return next((verdict for verdict in Feasibility if verdict in verdicts), Feasibility.NOT_FEASIBLE)


def _spec(request: JobRequest) -> JobSpec:
    """The job, with the memory that its model needs. Raises UsageError: one line per fault, with its option."""
    work = request.workload
    table = dict(request.job) | {key: value for key in _OF_WORKLOAD if (value := getattr(work, key)) is not None}
    if (model := named_model(work)) is not None:
        table["model"] = model
    if (tokens := _tokens(request)) is not None:
        table["tokens"] = tokens
    try:
        spec = job_from(table)
    except WrongJob as wrong:
        raise UsageError("\n".join(f"{_flag(key)}: {text}" for key, text in wrong.faults)) from None
    if has_model(work) and "memory_gb" not in request.job:
        spec = msgspec.structs.replace(spec, memory_gb=memory_needed(work).gb)
    spec = msgspec.structs.replace(
        spec, labour_usd=request.labour_hours * request.labour_usd_hour, **_preparation_figures(request)
    )
    if request.preloaded:
        spec = msgspec.structs.replace(spec, image_gb=0.0)
    if spec.tokens is None or spec.utilisation is not None or not has_model(work):
        return spec
    return msgspec.structs.replace(
        spec, speed=speed_of(workload_of(work), throughput_table()), prompts=_prompts(request)
    )


def _prompts(request: JobRequest) -> JobPrompts | None:
    """The prompts that inference reads before generation."""
    if request.prompt_tokens is None:
        return None
    work = workload_of(request.workload)
    if work.trains:
        raise UsageError("--prompt-tokens requires --method inference")
    task = speed_task_of(work, WorkMethod.PREFILL)
    return JobPrompts(tokens=request.prompt_tokens, speed=JobSpeed(table=throughput_table(), task=task))


def _tokens(request: JobRequest) -> float | None:
    """Samples × tokens of each × epochs; None: stated in another way. Raises UsageError."""
    is_set = [option is not None for option in (request.samples, request.tokens_per_sample)]
    if not any(is_set):
        if request.epochs is not None:
            raise UsageError("--epochs requires --samples and --tokens-per-sample; --tokens counts the whole job")
        return None
    if not all(is_set):
        raise UsageError("--samples and --tokens-per-sample require each other")
    if "tokens" in request.job:
        raise UsageError("use either --tokens, or --samples with --tokens-per-sample")
    return (request.samples or 0.0) * (request.tokens_per_sample or 0.0) * (request.epochs or 1.0)


def _preparation_figures(request: JobRequest) -> dict[str, FigureRange]:
    """The cost of preparing the data on a machine without GPUs, at 0.03 to 0.10 $ an hour as in the articles."""
    price = request.prepare_usd_hour or CPU_BOX_USD_HOUR
    return {"prepare_usd": FigureRange(request.prepare_hours * price.low, request.prepare_hours * price.high)}


def _stated_needs(request: JobRequest, spec: JobSpec) -> JobNeeds:
    """The disk size that the owner states; a disk with a price follows from the model."""
    stated = JobTraffic(request.download_gb or 0.0, request.upload_gb)
    if request.disk_usd_gb_month and request.disk_gb is None and has_model(request.workload):
        disk_gb = data_of(workload_of(request.workload), spec.tokens).disk_gb
        return JobNeeds(traffic=stated, disk_gb=disk_gb, load_s=spec.load_s, derived=("disk_gb",))
    return JobNeeds(traffic=stated, disk_gb=request.disk_gb, load_s=spec.load_s)


def _derived_needs(request: JobRequest, spec: JobSpec) -> JobNeeds:
    """The stated size; otherwise what the model and its data need, if the model is known."""
    if not has_model(request.workload):
        return _stated_needs(request, spec)
    work = workload_of(request.workload)
    tokens = None if spec.tokens is None or not work.trains else spec.tokens / (request.epochs or 1.0)
    data, derived = data_of(work, tokens), []
    download_gb, disk_gb, load_s = request.download_gb, request.disk_gb, spec.load_s
    if download_gb is None:
        download_gb = data.data_gb if request.preloaded else data.download_gb
        derived.append("download_gb")
    if disk_gb is None:
        disk_gb = data.disk_gb
        derived.append("disk_gb")
    if "load" not in request.job:
        load_s = data.load_s
        derived.append("load_s")
    traffic = JobTraffic(download_gb, request.upload_gb)
    return JobNeeds(traffic=traffic, disk_gb=disk_gb, load_s=load_s, derived=tuple(derived))


def _flag(key: str) -> str:
    return "--size-of" if key == "model" else f"--{(key or 'method').replace('_', '-')}"


def _extras(request: JobRequest, needs: JobNeeds) -> HardwareExtras:
    disk = Decimal(repr(request.disk_usd_gb_month)) * Decimal(repr(needs.disk_gb or 0.0)) / HOURS_A_MONTH
    return HardwareExtras(
        commission=Decimal(repr(request.commission)),
        spot=request.spot == "only",
        disk_usd_hour=disk,
        download_usd_gb=request.download_usd_gb,
        upload_usd_gb=request.upload_usd_gb,
        min_billing_s=request.min_billing_s or 0.0,
    )


def _as_sources(spec: JobSpec) -> JobSpec:
    """Price × hours only."""
    return msgspec.structs.replace(
        spec,
        setup_s=exactly(0.0),
        load_s=exactly(0.0),
        image_gb=0.0,
        interruptions_per_day=0.0,
        memory_gb=0.0,
        labour_usd=0.0,
        prepare_usd=exactly(0.0),
    )


def _check_hours_are_given_once(request: JobRequest, candidates: Sequence[PlannedHardware]) -> None:
    """Reject a duration that no candidate uses, because each has its own."""
    stated = [key for key in ("hours", "on", "speedup", "tokens", "tokens_per_s", "utilisation") if key in request.job]
    if stated and all(candidate.hours is not None for candidate in candidates):
        raise UsageError(f"each candidate has its own hours: omit --{stated[0].replace('_', '-')}, or their hours")


def _check_is_enough(request: JobRequest, spec: JobSpec) -> None:
    """Reject a job whose cost cannot be computed on any offer."""
    if request.seed:
        raise UsageError("--seed requires candidates: the sources name their cards and prices")
    if spec.hours is None and spec.tokens is None:
        raise UsageError(
            "the duration is missing: use --hours with --on, or --tokens with --tokens-per-s or --utilisation"
        )
    if spec.hours is not None and spec.tokens is not None:
        raise UsageError("use either --hours or --tokens")
    if spec.hours is not None and spec.on is None:
        raise UsageError('--hours requires the GPUs it refers to, such as --on "4x A100"')
    if spec.tokens is not None and not spec.tokens_per_s and spec.flop is None and spec.speed is None:
        raise UsageError("the speed is missing: use --tokens-per-s, or the model's size with --size-of")
    if request.spot == "no" and "interruptions_per_day" in request.job:
        raise UsageError("--interruptions-per-day requires --spot: on-demand offers are not interrupted")
    if request.spot != "no" and "interruptions_per_day" not in request.job:
        raise UsageError("--spot requires --interruptions-per-day (0: never)")


def load_range(hardware: ComparedHardware, spec: JobSpec, load: str) -> FigureRange:
    """The separate cost of loading the model once."""
    low, dash, high = load.partition("-")
    stated = FigureRange(parse_duration(low), parse_duration(high)) if dash else exactly(parse_duration(low))
    return load_usd(1, hardware.priced_gpus.microusd_hour / MICRO, spec.load_s if spec.load_s.high else stated)


def after_credit(cost: JobCost, request: JobRequest) -> float:
    """US dollars still to be paid."""
    return max(0.0, cost.microusd / MICRO - request.credit)
