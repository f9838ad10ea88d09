"""The total cost of a job, on named hardware or on current offers."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.market.current_offers import CurrentOffers, current_offers
from gpuwatch.app.plan.plan_request import JOB_OPTIONS, label_of, refuse_ignored_workload, refuse_keys
from gpuwatch.app.plan.plan_size import memory_needed
from gpuwatch.app.plan.speed_table import throughput_table
from gpuwatch.domain.market.money import HOURS_A_MONTH, MICRO
from gpuwatch.domain.plan.figures import FigureRange
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
from gpuwatch.domain.plan.network_speed import NetworkSpeed, pass_flop
from gpuwatch.domain.plan.roofline import WorkMethod
from gpuwatch.domain.plan.throughput import JobSpeed, speed_of, speed_task_of
from gpuwatch.engine.market.browse import offer_filter
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.jobs.job_request import JobRequest
    from gpuwatch.domain.plan.networks.network_shape import NetworkShape
    from gpuwatch.domain.plan.workload import Workload
    from gpuwatch.settings import Settings

_OFFERS_ONLY = (
    *("gpu", "count", "provider", "verified", "when", "listed", "poll", "timeout", "data", "limit"), "any_price",
)  # fmt: skip
_CANDIDATES_ONLY = ("commission", "disk_usd_gb_month", "download_usd_gb", "upload_usd_gb", "min_billing")


def refuse_ignored(request: JobRequest) -> None:
    """Reject keys that would have no effect. Raises UsageError."""
    if request.candidates:
        refuse_keys(request, "requires real offers: omit the candidates", _OFFERS_ONLY)
    else:
        refuse_keys(request, "applies to candidates only: real offers state it", _CANDIDATES_ONLY)
    if not request.poll:
        refuse_keys(request, "requires --poll", ("timeout",))
    if request.data is not None:
        refuse_keys(request, "cannot be combined with data", ("poll",))
    if request.hours is None and not request.candidates:
        refuse_keys(request, "requires --hours", ("on", "speedup"))
    refuse_ignored_workload(request, JOB_OPTIONS)
    if request.engineer_hours and not request.engineer_usd_hour:
        raise UsageError("engineer_hours requires engineer_usd_hour")
    if not request.engineer_hours:
        refuse_keys(request, "requires engineer_hours", ("engineer_usd_hour",))
    if not request.prepare_hours:
        refuse_keys(request, "requires prepare_hours", ("prepare_usd_hour",))


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
    refuse_ignored(request)
    spec = _spec(request)
    if request.spot == "no" and request.interruptions_per_day:
        raise UsageError("interruptions_per_day requires --spot only: on-demand instances are not interrupted")
    if request.spot == "only" and request.interruptions_per_day is None:
        raise UsageError("--spot requires interruptions_per_day (0: never)")
    if request.spot == "any":
        raise UsageError("--spot any requires real offers; candidates are either all interruptible or none")
    needs = _stated_needs(request, spec)
    spec = msgspec.structs.replace(spec, load_s=_load_at_start(request, needs))
    try:
        candidates = [parse_hardware(text) for text in request.candidates]
        _check_hours_are_given_once(request, candidates)
        compared = compare_hardware(spec, candidates, needs.traffic, _extras(request, needs))
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
        when=request.when,
    )
    data = None if request.data is None else Path(request.data)
    market = current_offers(settings, filter_, request.provider, data, request.timeout if request.poll else None)
    return rank_market(request, spec, needs, market)


def job_on_offers(request: JobRequest) -> tuple[JobSpec, JobNeeds]:
    """The job, and what it needs of an offer. Raises UsageError: the request is incomplete."""
    refuse_ignored(request)
    spec = _spec(request)
    _check_is_enough(request, spec)
    needs = _derived_needs(request, spec)
    return msgspec.structs.replace(spec, load_s=_load_at_start(request, needs)), needs


def _load_at_start(request: JobRequest, needs: JobNeeds) -> FigureRange:
    """Loading at a start: of files that are on the machine, if they are preloaded."""
    return request.cached_load if request.preloaded and request.cached_load is not None else needs.load_s


def rank_market(request: JobRequest, spec: JobSpec, needs: JobNeeds, market: CurrentOffers) -> OfferPlan:
    """Rank these offers by the cost of the job on them."""
    ranking = rank_offers(spec, market.offers, needs.traffic, needs.disk_gb, any_price=request.any_price)
    return OfferPlan(spec=spec, needs=needs, market=market, ranking=ranking)


def cheapest_at_any_length(request: JobRequest, plan: OfferPlan) -> JobCost | None:
    """The lowest cost of the job without a time limit; None: no offer can run it."""
    spec, needs = msgspec.structs.replace(plan.spec, within_s=None), plan.needs
    placed = rank_offers(spec, plan.market.offers, needs.traffic, needs.disk_gb, any_price=request.any_price).placed
    return next((job_offer.cost for job_offer in placed if not job_offer.is_doubtful), None)


def job_verdict(request: JobRequest, spec: JobSpec, costs: Sequence[JobCost]) -> Feasibility | None:
    """Whether the job stays within the highest cost and the longest time on any offer; None: no limit was given."""
    if request.max_usd is None and spec.within_s is None:
        return None
    verdicts = {feasibility(cost, request.max_usd, spec.within_s) for cost in costs}
    return next((verdict for verdict in Feasibility if verdict in verdicts), Feasibility.NOT_FEASIBLE)


def _spec(request: JobRequest) -> JobSpec:
    """The job, with the memory that its model needs. Raises UsageError."""
    work = request.workload()
    network = None if work is None else work.model.network
    tokens = _tokens(request) if network is None else _passes(request, network)
    if tokens is not None:
        request = request.model_copy(update={"tokens": tokens})
    spec = request.value()
    memory_gb = spec.memory_gb if work is None or request.memory_gb is not None else memory_needed(work).gb
    price, hours = request.prepare_usd_hour, request.prepare_hours
    spec = msgspec.structs.replace(
        spec,
        memory_gb=memory_gb,
        labour_usd=request.engineer_hours * request.engineer_usd_hour,
        prepare_usd=FigureRange(hours * price.low, hours * price.high),
        image_gb=0.0 if request.preloaded else spec.image_gb,
        restarts_per_day=request.restarts_per_day,
        reload_s=request.cached_load,
        debug_h=request.debug_hours,
    )
    if spec.tokens is None or work is None:
        return spec
    if network is not None:
        return msgspec.structs.replace(spec, **_network_speed(request, work, network, spec.tokens))
    if spec.utilisation is not None:
        return spec
    return msgspec.structs.replace(spec, speed=speed_of(work, throughput_table()), prompts=_prompts(request, work))


def _passes(request: JobRequest, network: NetworkShape) -> float | None:
    """Samples × epochs: each is one pass; None: hours, or tokens at a stated speed. Raises UsageError."""
    if request.samples is None:
        if request.tokens_per_s is None and not request.hours:
            raise UsageError(f"{network.kind}: its work is not in tokens: set samples (a sample is {network.unit})")
        return _tokens(request)
    if request.tokens is not None or request.tokens_per_sample is not None:
        raise UsageError(f"{network.kind}: samples have no tokens: a sample is {network.unit}")
    return request.samples * (request.epochs or 1.0)


def _network_speed(request: JobRequest, work: Workload, network: NetworkShape, passes: float) -> dict[str, Any]:
    """The speed of a network's job, or its arithmetic if a share of it is stated."""
    if network.writes and not work.trains and request.tokens_per_s is None:
        raise UsageError(f"{network.kind} writes its words one after the other: state the hours with on, as measured")
    return {"speed": NetworkSpeed(work), "flop": passes * pass_flop(work), "decoding": None}


def _prompts(request: JobRequest, work: Workload) -> JobPrompts | None:
    """The prompts that inference reads before generation."""
    if request.prompt_tokens is None:
        return None
    if work.trains:
        raise UsageError("prompt_tokens requires --method inference")
    task = speed_task_of(work, WorkMethod.PREFILL)
    return JobPrompts(tokens=request.prompt_tokens, speed=JobSpeed(table=throughput_table(), task=task))


def _tokens(request: JobRequest) -> float | None:
    """Samples × tokens of each × epochs; None: stated in another way. Raises UsageError."""
    stated = [key for key in ("samples", "tokens_per_sample") if getattr(request, key) is not None]
    if not stated:
        if request.epochs is not None:
            raise UsageError("epochs requires samples and tokens_per_sample; --tokens counts the whole job")
        return None
    if len(stated) == 1:
        raise UsageError("samples and tokens_per_sample require each other")
    if request.tokens is not None:
        raise UsageError("use either --tokens, or samples with tokens_per_sample")
    return (request.samples or 0.0) * (request.tokens_per_sample or 0.0) * (request.epochs or 1.0)


def _stated_needs(request: JobRequest, spec: JobSpec) -> JobNeeds:
    """The disk size that the owner states; a disk with a price follows from the model."""
    stated = JobTraffic(request.download_gb or 0.0, request.upload_gb)
    disk_gb, work = request.disk_gb, request.workload()
    if request.disk_usd_gb_month and disk_gb is None and work is not None:
        disk_gb = data_of(work, spec.tokens).disk_gb
        return JobNeeds(traffic=stated, disk_gb=disk_gb, load_s=spec.load_s, derived=("disk_gb",))
    return JobNeeds(traffic=stated, disk_gb=disk_gb, load_s=spec.load_s)


def _derived_needs(request: JobRequest, spec: JobSpec) -> JobNeeds:
    """The stated size; otherwise what the model and its data need, if the model is known."""
    stated, work = _stated_needs(request, spec), request.workload()
    if work is None:
        return stated
    is_text = work.trains and work.model.network is None  # images and sounds have no common size
    tokens = spec.tokens / (request.epochs or 1.0) if spec.tokens is not None and is_text else None
    data, derived = data_of(work, tokens), []
    download_gb, disk_gb, load_s = stated.traffic.download_gb, stated.disk_gb, spec.load_s
    if request.download_gb is None:
        download_gb = data.data_gb if request.preloaded else data.download_gb
        derived.append("download_gb")
    if disk_gb is None:
        disk_gb = data.disk_gb
        derived.append("disk_gb")
    if request.load is None:
        load_s = data.load_s
        derived.append("load_s")
    traffic = JobTraffic(download_gb, stated.traffic.upload_gb)
    return JobNeeds(traffic=traffic, disk_gb=disk_gb, load_s=load_s, derived=tuple(derived))


def _extras(request: JobRequest, needs: JobNeeds) -> HardwareExtras:
    disk = Decimal(repr(request.disk_usd_gb_month)) * Decimal(repr(needs.disk_gb or 0.0)) / HOURS_A_MONTH
    return HardwareExtras(
        commission=Decimal(repr(request.commission)),
        spot=request.spot == "only",
        disk_usd_hour=disk,
        download_usd_gb=request.download_usd_gb,
        upload_usd_gb=request.upload_usd_gb,
        min_billing_s=request.min_billing,
    )


def _check_hours_are_given_once(request: JobRequest, candidates: Sequence[PlannedHardware]) -> None:
    """Reject a duration that no candidate uses, because each has its own."""
    for key in ("hours", "on", "speedup", "tokens", "tokens_per_s", "utilisation"):
        if key in request.model_fields_set and all(candidate.hours is not None for candidate in candidates):
            raise UsageError(f"each candidate has its own hours: omit {label_of(key, JOB_OPTIONS)}, or their hours")


def _check_is_enough(request: JobRequest, spec: JobSpec) -> None:
    """Reject a job whose cost cannot be computed on any offer."""
    if spec.hours is None and spec.tokens is None:
        raise UsageError("the duration is missing: use --hours with on, or --tokens with tokens_per_s or utilisation")
    if spec.hours is not None and spec.tokens is not None:
        raise UsageError("use either --hours or --tokens")
    if spec.hours is not None and spec.on is None and not _has_one_count(request):
        raise UsageError('--hours requires the GPUs it refers to, such as --set on="4x A100"')
    if spec.tokens is not None and not spec.tokens_per_s and spec.flop is None and spec.speed is None:
        raise UsageError("the speed is missing: use tokens_per_s, or the model's size with --size-of")
    if request.spot == "no" and request.interruptions_per_day is not None:
        raise UsageError("interruptions_per_day requires --spot: on-demand offers are not interrupted")
    if request.spot != "no" and request.interruptions_per_day is None:
        raise UsageError("--spot requires interruptions_per_day (0: never)")


def _has_one_count(request: JobRequest) -> bool:
    """Does one kind of offer count, which the hours then refer to, as in a job file?"""
    low, dash, high = (request.count or "").partition("-")
    return bool(request.gpu) and bool(low) and (not dash or low == high)


class LoadingCost(msgspec.Struct, frozen=True, kw_only=True):
    """Loading the model in USD, each once; work that is repeated is no part of it.

    Attributes:
        cached: with its files on the machine; None: no time is stated.
        per_day: restarts a day of the job itself.
    """

    once: FigureRange
    cached: FigureRange | None
    per_day: float


def loading_cost(request: JobRequest, needs: JobNeeds, microusd_hour: int) -> LoadingCost | None:
    """What loading costs at the price of some GPUs; None: the time is unknown."""
    if not needs.load_s.high:
        return None
    usd_hour, cached = microusd_hour / MICRO, request.cached_load
    return LoadingCost(
        once=load_usd(1, usd_hour, needs.load_s),
        cached=None if cached is None else load_usd(1, usd_hour, cached),
        per_day=request.restarts_per_day,
    )


def after_credit(cost: JobCost, request: JobRequest) -> float:
    """US dollars still to be paid."""
    return max(0.0, cost.microusd / MICRO - request.credit)
