"""The total cost of a job: work, preparation, restarts, minimum billing, traffic. Pure.

Interruptions and the job's own restarts are Poisson processes during the run, and lose the work since the last
checkpoint. A stretch of t hours with rate r and a restart of R hours takes (eʳᵗ − 1) × (1/r + R) on average (Daly,
2006). One interruption loses 1/r − t/(eʳᵗ − 1) on average: less than half the time between checkpoints, and never more
than all of it.
"""

from __future__ import annotations

from math import ceil, exp, expm1, isfinite, log
from typing import NamedTuple

import msgspec

from gpuwatch.domain.market.gpu_cards import gpu_specs
from gpuwatch.domain.market.money import HOURS_A_MONTH, MICRO, OfferPrice
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.plan.job_hours import JobSpec, hours_on
from gpuwatch.domain.setup.durations import HOUR_S

_MOST_HOURS = 87_600.0  # ten years: longer jobs never finish
_MOST_TRIES = 100.0  # per finished stretch: with more, a mean of hours and dollars is no plan
_COUNTED_TRIES = 1e9  # above it their number says nothing
JOB_COST_METHOD_TEXT = (
    "price × time + traffic; restarts by Daly (2006): Poisson interruptions, work since a checkpoint is lost"
)


class PricedGpus(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs at a price, with their properties: an offer, or hypothetical hardware."""

    gpu: str
    count: int
    memory_gib: float | None  # of one GPU
    microusd_hour: int  # price of the whole offer, commission and disk included
    disk_microusd_hour: float = 0.0  # the disk's part of the price
    can_be_interrupted: bool = False
    nvlink: bool | None = None  # joins the GPUs, according to the offer; None: not stated
    download_mbps: float | None = None
    download_usd_gb: float | None = None
    upload_usd_gb: float | None = None
    min_billing_s: float = 0.0
    billing_step_s: float = 0.0


class JobTraffic(msgspec.Struct, frozen=True):
    """Traffic of a job in GB: download at every start, upload once."""

    download_gb: float = 0.0
    upload_gb: float = 0.0


class _Starts(NamedTuple):
    """Hours before the work: once, at each start of a machine, and at a restart on the same machine."""

    setup_h: float
    start_h: float
    reload_h: float


class JobBill(msgspec.Struct, frozen=True, kw_only=True):
    """Hours by purpose, and money. `minimum_h`: hours billed beyond the running time."""

    work_h: float
    ready_h: float  # setup, pulling, loading at the first start
    restart_h: float  # pulling and loading at each restart
    lost_h: float  # work that is repeated
    minimum_h: float
    interruptions: float
    microusd_hour: int
    disk_microusd_hour: float  # part of the price
    traffic_usd: float
    labour_usd: float = 0.0  # work by people
    prepare_usd: float = 0.0  # a cheap machine without GPUs, beforehand
    debug_h: float = 0.0  # on the same GPUs, beforehand

    @property
    def hours(self) -> float:
        """Hours from the first start to the end."""
        return self.work_h + self.ready_h + self.restart_h + self.lost_h

    @property
    def microusd(self) -> int:
        """The cost of the whole job, in whole micro-dollars."""
        billed = self.hours + self.minimum_h + self.debug_h
        return round(self.microusd_hour * billed + (self.traffic_usd + self.labour_usd + self.prepare_usd) * MICRO)

    @property
    def disk_usd(self) -> float:
        """The disk's part of the cost."""
        return (self.hours + self.minimum_h + self.debug_h) * self.disk_microusd_hour / MICRO

    @property
    def preparation_share(self) -> float | None:
        """The share of preparing the data and debugging in the cost; None: neither is stated, or nothing costs."""
        spent = self.prepare_usd + self.usd_for(self.debug_h)
        return spent * MICRO / self.microusd if spent and self.microusd else None

    def usd_for(self, hours: float) -> float:
        """The cost of some of the hours, in USD."""
        return hours * self.microusd_hour / MICRO


class JobCost(msgspec.Struct, frozen=True, kw_only=True):
    """Best and worst case. Thresholds apply to the worst case."""

    low: JobBill
    high: JobBill
    how: str  # how the hours were computed
    unknown: tuple[str, ...] = ()  # costs that are left out because their price or speed is unknown

    @property
    def microusd(self) -> int:
        """The worst case."""
        return self.high.microusd


def priced_gpus_of(offer: Offer, price: OfferPrice, disk_gb: float | None = None) -> PricedGpus:
    """An offer at its effective price, which includes this disk; None: the quoted disk."""
    held_gb = offer.quoted_disk_gb if disk_gb is None else max(disk_gb, offer.terms.least_disk_gb)
    disk_usd_hour = (offer.disk_usd_gb_month or 0.0) * held_gb / HOURS_A_MONTH * (1 + price.commission_rate)
    return PricedGpus(
        gpu=offer.gpu,
        count=offer.gpu_count,
        memory_gib=offer.gpu_memory_gib or _memory_of(offer.gpu),
        microusd_hour=price.price_microusd_hour,
        disk_microusd_hour=min(disk_usd_hour * MICRO, price.price_microusd_hour),
        can_be_interrupted=offer.spot,
        nvlink=offer.nvlink,
        download_mbps=offer.download_mbps,
        download_usd_gb=offer.download_usd_gb,
        upload_usd_gb=offer.upload_usd_gb,
        min_billing_s=price.min_billing_s,
        billing_step_s=price.billing_step_s,
    )


def _holds(gb: float, priced_gpus: PricedGpus) -> bool:
    from gpuwatch.domain.plan.memory_need import cards_hold  # noqa: PLC0415 - saves 2 ms in a check without a job

    return cards_hold(gb, priced_gpus.memory_gib or 0.0, priced_gpus.count)


def cost_on(job: JobSpec, priced_gpus: PricedGpus, traffic: JobTraffic) -> JobCost | str:
    """The cost of a job on these GPUs, or one clause that states why it is unknown or impossible."""
    if job.memory_gb and priced_gpus.memory_gib is None:
        return f"the memory of {priced_gpus.gpu} is unknown"
    if job.memory_gb and not _holds(job.memory_gb, priced_gpus):
        return f"{priced_gpus.count} × {priced_gpus.memory_gib:.4g} GiB do not hold {job.memory_gb:,.4g} GB"
    hours = hours_on(job, priced_gpus.gpu, priced_gpus.count, priced_gpus.nvlink)
    if isinstance(hours, str):
        return hours
    if not hours.value.high <= _MOST_HOURS:
        return "it takes longer than ten years"
    down_gb = job.image_gb + traffic.download_gb
    mbps = priced_gpus.download_mbps or job.download_mbps
    pull_h = down_gb * 8000 / mbps / HOUR_S if mbps else 0.0
    reload_s = job.reload_s or job.load_s
    starts = [
        _Starts(setup / HOUR_S, pull_h + load / HOUR_S, reload / HOUR_S)
        for setup, load, reload in zip(job.setup_s, job.load_s, reload_s, strict=True)
    ]
    if (why := _endless(job, priced_gpus, hours.value.high, starts[1])) is not None:
        return why
    low = high = _bill(job, priced_gpus, hours.value.low, starts[0], traffic)
    if hours.value.is_wide or starts[0] != starts[1] or job.prepare_usd.is_wide:
        high = _bill(job, priced_gpus, hours.value.high, starts[1], traffic)
    if high is None or low is None:
        return "it takes longer than ten years"
    if job.within_s is not None and high.hours * HOUR_S > job.within_s * (1 + 1e-9):
        return f"it takes longer than {job.within_s / HOUR_S:,.4g} h"
    before = {"labour_usd": job.labour_usd, "debug_h": job.debug_h}
    low = msgspec.structs.replace(low, prepare_usd=job.prepare_usd.low, **before)
    high = msgspec.structs.replace(high, prepare_usd=job.prepare_usd.high, **before)
    return JobCost(low=low, high=high, how=hours.how, unknown=tuple(_unknown(priced_gpus, down_gb, mbps, traffic)))


def _bill(job: JobSpec, priced_gpus: PricedGpus, work_h: float, starts: _Starts, traffic: JobTraffic) -> JobBill | None:
    """The bill; None: the job takes longer than ten years."""
    taken, per_hour, start_h = _restarts(job, priced_gpus, starts)
    stretches = _stretches(work_h, _stretch_h(job, work_h))
    interruptions = sum(number * expm1(per_hour * length) for length, number in stretches)
    lost = sum(number * _repeated_h(length, per_hour) for length, number in stretches) if per_hour else 0.0
    # an interruption during a restart costs another restart: a geometric series
    again = interruptions * (expm1(per_hour * start_h) / per_hour if per_hour * start_h > 1e-9 else start_h)
    ready_h = starts.setup_h + starts.start_h
    hours = ready_h + work_h + lost + again
    if not isfinite(hours) or hours > _MOST_HOURS:
        return None
    machines = 1 + (interruptions * taken / per_hour if per_hour else 0.0)
    down_gb = (job.image_gb + traffic.download_gb) * machines
    moved = down_gb * (priced_gpus.download_usd_gb or 0.0) + traffic.upload_gb * (priced_gpus.upload_usd_gb or 0.0)
    return JobBill(
        work_h=work_h,
        ready_h=ready_h,
        restart_h=again,
        lost_h=lost,
        minimum_h=_beyond(hours, machines, priced_gpus),
        interruptions=interruptions,
        microusd_hour=priced_gpus.microusd_hour,
        disk_microusd_hour=priced_gpus.disk_microusd_hour,
        traffic_usd=moved,
    )


def _restarts(job: JobSpec, priced_gpus: PricedGpus, starts: _Starts) -> tuple[float, float, float]:
    """Interruptions per hour, restarts of both kinds per hour, and the mean hours until the work goes on after one."""
    taken, own = job.interruptions_per_day / 24 if priced_gpus.can_be_interrupted else 0.0, job.restarts_per_day / 24
    per_hour = taken + own
    start_h = (taken * starts.start_h + own * starts.reload_h) / per_hour if own else starts.start_h
    return taken, per_hour, start_h


def _stretch_h(job: JobSpec, work_h: float) -> float:
    """Hours of work that are lost as a whole: between two checkpoints, or all of it."""
    return min(work_h, job.checkpoint_s / HOUR_S) if job.checkpoint_s else work_h


def _endless(job: JobSpec, priced_gpus: PricedGpus, work_h: float, starts: _Starts) -> str | None:
    """Why the job would practically never finish: of eʳᵗ tries one gets through t hours (Poisson)."""
    _, per_hour, start_h = _restarts(job, priced_gpus, starts)
    stretch_h = _stretch_h(job, work_h)
    tried_h = max(stretch_h, start_h)
    if per_hour * tried_h <= log(_MOST_TRIES):
        return None
    tries = min(exp(min(per_hour * tried_h, 99.0)), _COUNTED_TRIES)
    found = (
        f"it would practically never finish: {tried_h:,.3g} h without a restart come once in {tries:,.0f} tries or more"
    )
    if start_h > stretch_h:
        return f"{found}, and a start takes that long"
    if stretch_h < work_h:
        return f"{found}, and checkpoints are that far apart; lower checkpoint_every"
    return f"{found}, and each restart loses all work; set checkpoint_every"


def _stretches(work_h: float, stretch_h: float) -> list[tuple[float, float]]:
    """Split the work between checkpoints into the length and number of whole stretches, and the rest."""
    whole, rest = divmod(work_h, stretch_h)
    return [(stretch_h, whole), (rest, 1.0)]


def _repeated_h(stretch_h: float, per_hour: float) -> float:
    """Hours of repeated work until a stretch is finished: every interruption restarts it."""
    return max(0.0, expm1(per_hour * stretch_h) / per_hour - stretch_h)


def _beyond(hours: float, runs: float, priced_gpus: PricedGpus) -> float:
    """Hours that are billed but not used: each run is billed for a minimum time, and in whole steps."""
    run_s = hours * HOUR_S / runs
    billed_s = max(run_s, priced_gpus.min_billing_s)
    if priced_gpus.billing_step_s:
        billed_s = ceil(round(billed_s / priced_gpus.billing_step_s, 9)) * priced_gpus.billing_step_s
    return (billed_s - run_s) * runs / HOUR_S


def _unknown(priced_gpus: PricedGpus, down_gb: float, mbps: float | None, traffic: JobTraffic) -> list[str]:
    found = []
    if down_gb and not mbps:
        found.append("download time")
    if down_gb and priced_gpus.download_usd_gb is None:
        found.append("download cost")
    if traffic.upload_gb and priced_gpus.upload_usd_gb is None:
        found.append("upload cost")
    return found


def _memory_of(gpu: str) -> float | None:
    specs = gpu_specs().get(gpu)
    return None if specs is None else specs.memory_gib


def training_flop(params: float, tokens: float, *, full: bool) -> float:
    """6 FLOP per weight and token of training (Kaplan et al., 2020); 4 if the weights themselves stay fixed."""
    return (6.0 if full else 4.0) * params * tokens


def inference_flop(params: float, tokens: float) -> float:
    """2 FLOP per weight and token, without attention over long contexts."""
    return 2.0 * params * tokens


def load_usd(cards: int, usd_gpu_hour: float, load_s: FigureRange) -> FigureRange:
    """The cost of loading a model once: 4 cards at 4.00 for 5 to 7 minutes are 1.33 to 1.87."""
    each = cards * usd_gpu_hour / HOUR_S
    return FigureRange(each * load_s.low, each * load_s.high)
