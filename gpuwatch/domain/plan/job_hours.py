"""What a job needs, and how long it takes on some GPUs. Pure.

- `hours_on`: the duration by measurements, a speed-up, or FLOP/s at a stated utilisation.
- `data_of`: the data that it moves and stores: model, data set, checkpoints; derived if the owner does not state it.
- `plan_pilot`: a short run on a hundredth of the data, extrapolated: the time of the whole job, and whether its loss
  falls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import ceil, log2
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpuwatch.domain.plan.figures import FigureRange, GpuAllocation, exactly
from gpuwatch.domain.plan.memory_need import GB, OPTIMIZER_BYTES, adapter_params, bytes_per_weight
from gpuwatch.domain.plan.roofline import TrainingMethod, card_specs_of, lacks_bf16, lacks_fp8, peak_flops
from gpuwatch.domain.setup.durations import HOUR_S

if TYPE_CHECKING:
    from gpuwatch.domain.plan.throughput import JobSpeed
    from gpuwatch.domain.plan.workload import Workload

PUBLISHED_BYTES: Final = 2.0  # per parameter: models are published in 16 bits
BYTES_PER_TOKEN: Final = 4.0  # of plain text; assumed: four letters a token, as in OpenAI's rule of thumb for English
SYSTEM_GB: Final = 20.0  # assumed: the image, its packages, and logs
LOAD_GB_S: Final = FigureRange(140 / 420, 140 / 300)  # the articles: a 70B model loads in 5 to 7 minutes
_ADAPTER_BYTES: Final = 4.0

# Share of the data sheet's bandwidth that decoding reaches: 55 to 60 % by tuned servers (MosaicML's MBU, 2023); half
# of that is assumed for plain libraries.
BANDWIDTH_REACHED = FigureRange(0.3, 0.6)
_NO_BF16 = "{gpu} does not support bf16 (it supports fp16)"
_NO_FP8 = "{gpu} cannot train in fp8: its data sheet lists no such arithmetic; set precision to bf16 or fp16"
_FP8_READ = "weights in fp8, arithmetic in 16 bits: the data sheet of {} lists no fp8"

VARIATION = 1.1  # the mean speed of the rest may differ from the mean so far, or a pilot's, by this factor (assumed)
PILOT_METHOD_TEXT = (
    "time: tokens ÷ the measured speed, ± 10 %; loss: a straight line over the logarithm of the tokens seen"
)


class JobData(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in GB, and the time to load the model, for a job with a known model."""

    model_gb: float  # as downloaded
    data_gb: float
    checkpoint_gb: float
    load_s: FigureRange

    @property
    def download_gb(self) -> float:
        """The data to fetch before the first start."""
        return self.model_gb + self.data_gb

    @property
    def disk_gb(self) -> float:
        """The disk size that the job needs, in tens of GB."""
        return ceil((self.download_gb + self.checkpoint_gb + SYSTEM_GB) / 10) * 10.0


class GpuRate(msgspec.Struct, frozen=True):
    """A figure for some GPUs: tokens per second, or speed relative to the job's own GPUs."""

    on: GpuAllocation
    value: FigureRange


class Decoding(msgspec.Struct, frozen=True, kw_only=True):
    """Generating text: each step reads the weights and the caches once, and writes one token of each sequence."""

    read_gb: float  # per step
    batch: int  # concurrent sequences
    flop_per_token: float


class JobPrompts(msgspec.Struct, frozen=True, kw_only=True):
    """Reading the prompts before generation starts."""

    tokens: float
    speed: JobSpeed


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One job. Its duration follows from `hours` on some GPUs, or from `tokens` and a speed."""

    hours: FigureRange | None = None
    on: GpuAllocation | None = None  # the GPUs that take those hours; None: any GPUs
    speedup: tuple[GpuRate, ...] = ()  # other GPUs relative to `on`
    tokens: float | None = None
    tokens_per_s: tuple[GpuRate, ...] = ()
    flop: float | None = None  # operations of the whole job
    decoding: Decoding | None = None  # for inference: limited by memory, not by arithmetic, until the batch is large
    speed: Any = None  # a `JobSpeed`, from published measurements; never in settings, whose cache is typed
    prompts: Any = None  # `JobPrompts`: what inference reads before generation; never in settings
    utilisation: FigureRange | None = None  # share of the data sheet's FLOP/s; also scales `hours` by FLOP/s
    fp8: bool = False  # use the data sheet's 8-bit figure
    fp32: bool = False  # use the 32-bit rate
    bf16: bool = False  # needs bf16, which cards before Ampere lack
    scaling: float = 1.0  # contribution of each further GPU, relative to the first one
    memory_gb: float = 0.0  # total over the GPUs, without the overhead of each card
    setup_s: FigureRange = exactly(0.0)  # only at the first start
    load_s: FigureRange = exactly(0.0)  # at every start: loading the model
    image_gb: float = 0.0  # pulled at every start
    download_mbps: float | None = None  # used if an offer does not state its speed
    checkpoint_s: float | None = None  # interval between checkpoints; None: unfinished work is lost
    labour_usd: float = 0.0  # work by people, once
    prepare_usd: FigureRange = exactly(0.0)  # machine without GPUs that prepares the data, once
    within_s: float | None = None  # limit for the whole job, in the worst case
    interruptions_per_day: float = 0.0  # of interruptible offers, while running
    restarts_per_day: float = 0.0  # of the job itself, on the same machine: crashes, changed code
    reload_s: FigureRange | None = None  # loading at such a restart; None: as at a start
    debug_h: float = 0.0  # on the GPUs, before the job


class JobHours(msgspec.Struct, frozen=True):
    """Hours of work on some GPUs, and the method of computation."""

    value: FigureRange
    how: str


class PilotPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The whole job, extrapolated from its pilot. `loss`: at its end, if the trend continues; None: not measured."""

    hours: FigureRange
    pilot_hours: float
    loss: float | None
    falls: bool | None  # whether the loss falls; None: not measured


def data_of(work: Workload, tokens: float | None) -> JobData:
    """The data that a workload moves and stores.

    Args:
        tokens: tokens of the data set, each once; None: unknown and left out.
    """
    params = work.model.params
    each = bytes_per_weight(work) if work.method is TrainingMethod.INFERENCE else PUBLISHED_BYTES
    model_gb = params * each / GB
    return JobData(
        model_gb=model_gb,
        data_gb=(tokens or 0.0) * BYTES_PER_TOKEN / GB,
        checkpoint_gb=_checkpoint_gb(work),
        load_s=FigureRange(model_gb / LOAD_GB_S.high, model_gb / LOAD_GB_S.low) if params else exactly(0.0),
    )


def _checkpoint_gb(work: Workload) -> float:
    """The size of one checkpoint: the trained weights and the optimizer's state."""
    if not work.trains:
        return 0.0
    states = OPTIMIZER_BYTES[work.optimizer]
    if work.method is TrainingMethod.FULL:
        return work.model.params * (PUBLISHED_BYTES + states + (4.0 if work.master else 0.0)) / GB
    return adapter_params(work) * (_ADAPTER_BYTES + states) / GB


@lru_cache(maxsize=8192)  # the same few GPUs for every offer of every poll
def hours_on(job: JobSpec, gpu: str, count: int, nvlink: bool | None = None) -> JobHours | str:
    """Hours of work on a number of GPUs, or one clause that states why they are unknown.

    Args:
        nvlink: whether NVLink joins them, according to the offer; None: according to the data sheet.
    """
    if job.hours is not None:
        return _by_reference(job, job.hours, gpu, count)
    if job.tokens is None:
        return "neither hours nor tokens are set"
    if (rate := _nearest(job.tokens_per_s, gpu, count)) is not None:
        factor = _factor(rate, gpu, count, job)
        per_s = FigureRange(rate.value.low * factor, rate.value.high * factor)
        hours = FigureRange(job.tokens / per_s.high / HOUR_S, job.tokens / per_s.low / HOUR_S)
        return JobHours(hours, f"{_span(per_s)} tok/s, scaled from {rate.on.text}")
    if job.speed is not None and job.utilisation is None:
        return _by_measurements(job, job.tokens, job.speed, gpu, count, nvlink)
    if job.decoding is not None and job.utilisation is not None:
        return _by_roofline(job, job.tokens, job.decoding, job.utilisation, gpu, count)
    if job.flop is not None and job.utilisation is not None:
        return _by_flops(job, job.flop, job.utilisation, gpu, count)
    return f"neither tokens_per_s of {gpu} nor a model size with a utilisation is set"


def scaling_gain(count: int, scaling: float) -> float:
    """The speed of several GPUs relative to one."""
    return 1 + (count - 1) * scaling


def _by_reference(job: JobSpec, hours: FigureRange, gpu: str, count: int) -> JobHours | str:
    if job.on is None:
        return JobHours(hours, "as said")
    own = job.on.count or 1
    if gpu in job.on.gpus:
        factor = scaling_gain(own, job.scaling) / scaling_gain(count, job.scaling)
        how = "as said" if count == own else f"scaled from {job.on.text}"
        return JobHours(FigureRange(hours.low * factor, hours.high * factor), how)
    if (rate := _nearest(job.speedup, gpu, count)) is not None:
        return _hours_by_speedup(job, hours, rate, count)
    if job.utilisation is None:
        return f"neither a speedup of {gpu} nor a utilisation is set"
    if (refusal := _refusal(job, gpu)) is not None:
        return refusal
    mine, theirs = _peak_of(job, gpu), _peak_of(job, job.on.gpus[0])
    if not mine or not theirs:
        return f"no data sheet lists the FLOP/s of {gpu if not mine else job.on.gpus[0]}"
    factor = theirs * scaling_gain(own, job.scaling) / (mine * scaling_gain(count, job.scaling))
    return JobHours(FigureRange(hours.low * factor, hours.high * factor), f"by FLOP/s, from {job.on.text}")


def _hours_by_speedup(job: JobSpec, hours: FigureRange, rate: GpuRate, count: int) -> JobHours:
    """A speed-up with a count compares those GPUs with `on`; without a count, GPU with GPU."""
    own = job.on.count if job.on and job.on.count else 1
    base = 1.0 if rate.on.count is not None else scaling_gain(own, job.scaling)
    factor = base * scaling_gain(rate.on.count or 1, job.scaling) / scaling_gain(count, job.scaling)
    found = FigureRange(hours.low * factor / rate.value.high, hours.high * factor / rate.value.low)
    return JobHours(found, f"{_span(rate.value)}× as fast as {job.on.text if job.on else 'said'}")


def _by_measurements(
    job: JobSpec, tokens: float, speed: JobSpeed, gpu: str, count: int, nvlink: bool | None
) -> JobHours | str:
    if (refusal := _refusal(job, gpu)) is not None:
        return refusal
    found = speed.on(gpu, count, nvlink)
    if found is None:
        return f"no data sheet lists the FLOP/s and the memory bandwidth of {gpu}"
    share = scaling_gain(count, job.scaling) / count
    hours = _hours_of(tokens, found.tokens_per_s, share)
    if job.prompts is not None:
        read = job.prompts.speed.on(gpu, count, nvlink)
        if read is None:
            return f"no data sheet lists the FLOP/s and the memory bandwidth of {gpu}"
        more = _hours_of(job.prompts.tokens, read.tokens_per_s, share)
        hours = FigureRange(hours.low + more.low, hours.high + more.high)
    return JobHours(hours, _joined(found.how, fp8_text(job, gpu)))


def _hours_of(tokens: float, per_s: FigureRange, share: float) -> FigureRange:
    return FigureRange(tokens / (per_s.high * share) / HOUR_S, tokens / (per_s.low * share) / HOUR_S)


def _by_flops(job: JobSpec, flop: float, utilisation: FigureRange, gpu: str, count: int) -> JobHours | str:
    if (refusal := _refusal(job, gpu)) is not None:
        return refusal
    peak = _peak_of(job, gpu)
    if not peak:
        return f"no data sheet lists the FLOP/s of {gpu}{' in 8 bits' if job.fp8 else ''}"
    seconds = flop / (peak * scaling_gain(count, job.scaling))
    hours = FigureRange(seconds / utilisation.high / HOUR_S, seconds / utilisation.low / HOUR_S)
    return JobHours(hours, f"{peak / 1e12:g} TFLOP/s × {_span(_percent(utilisation))} %")


def _by_roofline(
    job: JobSpec, tokens: float, decoding: Decoding, utilisation: FigureRange, gpu: str, count: int
) -> JobHours | str:
    """A step takes as long as reading or computing takes, whichever is longer (Williams et al., 2009)."""
    if (refusal := _refusal(job, gpu)) is not None:
        return refusal
    specs, peak = card_specs_of(gpu), _peak_of(job, gpu)
    bandwidth = None if specs is None else specs.bandwidth_gb_s
    if not peak or not bandwidth:
        return f"no data sheet lists the {'FLOP/s' if bandwidth else 'memory bandwidth'} of {gpu}"
    gain = scaling_gain(count, job.scaling)

    def per_s(reached: float, used: float) -> float:
        read_s = decoding.read_gb / (bandwidth * reached * gain)
        compute_s = decoding.batch * decoding.flop_per_token / (peak * used * gain)
        return decoding.batch / max(read_s, compute_s)

    rate = FigureRange(per_s(BANDWIDTH_REACHED.low, utilisation.low), per_s(BANDWIDTH_REACHED.high, utilisation.high))
    hours = FigureRange(tokens / rate.high / HOUR_S, tokens / rate.low / HOUR_S)
    reads = f"{decoding.read_gb:,.4g} GB per step of {decoding.batch} tokens"
    how = f"{_span(rate)} tok/s: {reads} at {bandwidth:,.4g} GB/s × {_span(_percent(BANDWIDTH_REACHED))} %"
    return JobHours(hours, _joined(how, fp8_text(job, gpu)))


def _peak_of(job: JobSpec, gpu: str) -> float | None:
    """The nominal FLOP/s in the job's number format; 16 bits to read weights in fp8 on a card without such units."""
    return peak_flops(gpu, fp8=job.fp8 and not lacks_fp8(gpu), fp32=job.fp32)


def _refusal(job: JobSpec, gpu: str) -> str | None:
    """Why the number format rules the GPU out. Inference only stores weights in fp8 (vLLM: Marlin); training computes.

    Transformer Engine refuses cards before Ada and Hopper (its issue 1159).
    """
    if job.bf16 and lacks_bf16(gpu):
        return _NO_BF16.format(gpu=gpu)
    return _NO_FP8.format(gpu=gpu) if job.fp8 and job.decoding is None and lacks_fp8(gpu) else None


def fp8_text(job: JobSpec, gpu: str) -> str:
    """What weights in fp8 mean on a card without such units; empty: nothing."""
    return _FP8_READ.format(gpu) if job.fp8 and job.decoding is not None and lacks_fp8(gpu) else ""


def _joined(how: str, more: str) -> str:
    return f"{how}; {more}" if more else how


def _percent(shares: FigureRange) -> FigureRange:
    return FigureRange(100 * shares.low, 100 * shares.high)


def _nearest(rates: Iterable[GpuRate], gpu: str, count: int) -> GpuRate | None:
    """The figure of a GPU with the nearest count; of equally near ones, the one that names fewer models."""
    mine = [rate for rate in rates if gpu in rate.on.gpus]
    return min(mine, key=lambda rate: (abs((rate.on.count or 1) - count), len(rate.on.gpus)), default=None)


def _factor(rate: GpuRate, gpu: str, count: int, job: JobSpec) -> float:
    return scaling_gain(count, job.scaling) / scaling_gain(rate.on.count or 1, job.scaling)


def _span(value: FigureRange) -> str:
    return f"{value.low:,.4g}–{value.high:,.4g}" if value.is_wide else f"{value.low:,.4g}"


def plan_pilot(tokens: float, per_s: FigureRange, share: float, losses: Sequence[float]) -> PilotPlan:
    """Extrapolate a pilot.

    Args:
        tokens: tokens of the whole job.
        per_s: measured speed; a single figure is widened by `VARIATION`.
        share: share of the tokens that the pilot processed, 0 to 1.
        losses: at equal intervals, the last one at the pilot's end; empty, or at least two.
    """
    around = 1.0 if per_s.is_wide else VARIATION
    hours = FigureRange(tokens / (per_s.high * around) / 3600, tokens / (per_s.low / around) / 3600)
    pilot_hours = tokens * share / (per_s.low * per_s.high) ** 0.5 / 3600
    if not losses:
        return PilotPlan(hours=hours, pilot_hours=pilot_hours, loss=None, falls=None)
    slope = _slope([log2(at) for at in range(1, len(losses) + 1)], losses)
    return PilotPlan(
        hours=hours,
        pilot_hours=pilot_hours,
        loss=max(0.0, losses[-1] + slope * log2(1 / share)),
        falls=slope < 0,
    )


def _slope(places: Sequence[float], values: Sequence[float]) -> float:
    """The slope of the least-squares line."""
    middle, mean = sum(places) / len(places), sum(values) / len(values)
    spread = sum((place - middle) ** 2 for place in places)
    return sum((at - middle) * (value - mean) for at, value in zip(places, values, strict=True)) / spread
