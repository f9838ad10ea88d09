"""The speed of a job on any GPUs, from published measurements: the same result for `plan job` and `plan fit`. Pure.

The nearest published speeds are transferred by the roofline. Each measurement divided by its own roofline is a share of
it. The estimate is the mean share of the nearest measurements, weighted by their similarity to the job, times the job's
own roofline. If exactly the job was measured, the range is that of the measurement; otherwise it is as wide as the
errors for rows that were left out of the estimate. If no row is similar to the job, the range is that of the shares of
all rows with the same method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import exp, log, log2
from statistics import quantiles
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.domain.market.gpu_cards import GpuSpecs, gpu_specs
from gpuwatch.domain.plan.figures import FigureRange, exactly
from gpuwatch.domain.plan.memory_need import bytes_per_weight
from gpuwatch.domain.plan.roofline import (
    Precision,
    SpeedTask,
    TrainingMethod,
    WorkMethod,
    card_specs_of,
    has_fast_link,
    roofline_tokens_s,
)

if TYPE_CHECKING:
    from gpuwatch.domain.plan.workload import Workload

_NEAREST = 4  # rows used in an estimate
_SAME = 0.25  # distance below which a row counts as the same job
_SAME_PARAMS = 0.02  # norms and biases are left out of a count
_FAR = 4.0  # distance beyond which a row is ignored
_STEEPNESS = 1.5  # how quickly the weight of a row falls with distance
_LEAST_ROWS = 4  # needed for quantiles
_INSIDE = 0.8  # share of the left-out rows within the range
_ONE_RUN = 1.25  # how much another run of the same job may differ from a single published figure (assumed)
_UNKNOWN_SPREAD = 3.0  # for a method without rows (assumed)

KEPT_ACTIVATIONS = 1.25  # the articles: gradient checkpointing takes 20 % of the speed; its memory: `memory_need`
# Training without FlashAttention, as a share of the speed with it, by its tokens. Dao et al. (2022): BERT large
# with 512 is 15 % faster with it. Dao (FlashAttention-2, 2023, table 1), GPT3-1.3B and 2.7B on A100: with 2,048, 142 of
# 196 and 149 of 205 TFLOP/s; with 8,192, 72 of 220 and 80 of 225. In between by the logarithm; beyond, the last.
_PLAIN_ATTENTION = ((512, 1 / 1.15, 1 / 1.15), (2048, 142 / 196, 149 / 205), (8192, 72 / 220, 80 / 225))
SLOWED = FigureRange(0.5, 0.7)  # the articles: CPU offload and micro-batches cost 30 to 50 % of the speed

_METHODS = {
    TrainingMethod.FULL: WorkMethod.FULL,
    TrainingMethod.LORA: WorkMethod.LORA,
    TrainingMethod.QLORA: WorkMethod.QLORA,
    TrainingMethod.INFERENCE: WorkMethod.DECODE,
}


class MeasuredSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """A published measurement. `tokens_per_s`: total of all GPUs."""

    model: str
    task: SpeedTask
    gpu: str
    count: int
    nvlink: bool
    tokens_per_s: FigureRange
    publication: str
    url: str
    date: str = ""  # as stated in the publication
    is_own: bool = False  # measured by the owner
    peak_gb: float | None = None  # the most that PyTorch allocated; None: not stated
    memory_keys: tuple[tuple[str, Any], ...] = ()  # keys of a workload that change its memory

    @property
    def factor(self) -> FigureRange:
        """How fast it ran, compared with the same job run as in the publications."""
        return _factor(dict(self.memory_keys), self.task.context)

    @property
    def text(self) -> str:
        """The row as a short text."""
        what = f"{self.model} {self.task.method.value} on {self.count}× {self.gpu}"
        return f"{what}: {_speed_text(self.tokens_per_s)} ({self.publication})"


class SpeedEstimate(msgspec.Struct, frozen=True):
    """Tokens a second of all GPUs, and the measurements it is based on, nearest first; empty: the roofline alone."""

    tokens_per_s: FigureRange
    middle: float
    rows: tuple[MeasuredSpeed, ...]
    is_measured: bool = False  # the same job was measured

    @property
    def how(self) -> str:
        """The basis of the estimate, as one clause."""
        speed = _speed_text(self.tokens_per_s)
        if self.is_measured:
            return f"{speed}, as measured: {self.rows[0].publication}"
        if not self.rows:
            return f"{speed}, by the roofline alone: no similar measurement was published"
        return f"{speed}, from {self.rows[0].text}"


class ThroughputTable(msgspec.Struct, frozen=True, eq=False):
    """All measurements. Compared by identity, as there is only one table."""

    rows: tuple[MeasuredSpeed, ...]

    def shares(self, method: WorkMethod) -> FigureRange:
        """The range of roofline shares that contains eight of ten measurements of this method."""
        found = [share for row in self.rows if row.task.method is method and (share := share_of(row)) is not None]
        if len(found) < _LEAST_ROWS:
            return FigureRange(min(found, default=0.1), max(found, default=0.5))
        tenths = quantiles(found, n=10, method="inclusive")
        return FigureRange(tenths[0], tenths[-1])


# --- errors of the estimates ------------------------------------------------------------------------------------------


class HeldOutRow(msgspec.Struct, frozen=True):
    """A measurement, and its estimate from the other rows."""

    row: MeasuredSpeed
    estimate: float  # tokens a second; the middle of the range

    @property
    def ratio(self) -> float:
        """The factor by which the estimate is too high or too low: 1 or more."""
        times = self.estimate / _middle(self.row.tokens_per_s)
        return max(times, 1 / times)


class JobSpeed(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A job's work, and the measurements for its estimate. Compared by identity, because it is a key of caches.

    Attributes:
        factor: applied to the estimate; 1: the job runs as in the publications.
    """

    table: ThroughputTable
    task: SpeedTask
    factor: FigureRange = exactly(1.0)

    def on(self, gpu: str, count: int, nvlink: bool | None = None) -> SpeedEstimate | None:
        """Tokens a second on some GPUs; None: no data sheet states their performance.

        Args:
            nvlink: whether NVLink joins them, according to the offer; None: according to the data sheet.
        """
        specs = card_specs_of(gpu)
        found = None if specs is None else estimate_speed(self.table, self.task, specs, count, nvlink)
        if found is None:
            return None
        is_measured = found.is_measured and self.factor == found.rows[0].factor
        span = found.tokens_per_s
        slowed = FigureRange(span.low * self.factor.low, span.high * self.factor.high)
        middle = found.middle * (self.factor.low * self.factor.high) ** 0.5
        return SpeedEstimate(slowed, middle, found.rows, is_measured)


def measured_peak(table: ThroughputTable, work: Workload) -> MeasuredSpeed | None:
    """The owner's row that measured the memory of exactly this work on one GPU; None: there is none."""
    task = speed_task_of(work)
    for row in table.rows:
        theirs = row.task
        is_same = (theirs.method, theirs.layers, theirs.hidden, theirs.batch, theirs.context, row.count) == (
            *(task.method, task.layers, task.hidden, task.batch, task.context), 1,
        )  # fmt: skip
        if row.peak_gb is None or not is_same or (theirs.fp32, theirs.fp8) != (task.fp32, task.fp8):
            continue
        has_same_keys = all(getattr(work, key, None) == value for key, value in row.memory_keys)
        if has_same_keys and abs(theirs.params / task.params - 1) < _SAME_PARAMS:
            return row
    return None


def _speed_text(span: FigureRange) -> str:
    low, high = (f"{one:,.0f}" if one >= 100 else f"{one:.3g}" for one in span)
    return f"{low} tok/s" if low == high else f"{low}–{high} tok/s"


def share_of(row: MeasuredSpeed) -> float | None:
    """The share of its roofline that a measurement reached, or would have; None: a GPU without a data sheet."""
    gpu = gpu_specs().get(row.gpu)
    bound = None if gpu is None else roofline_tokens_s(row.task, gpu, row.count, nvlink=row.nvlink)
    return None if bound is None else _middle(row.tokens_per_s) / _middle(row.factor) / bound


@lru_cache(maxsize=4096)  # the same few GPUs for every offer of every poll
def estimate_speed(
    table: ThroughputTable, task: SpeedTask, gpu: GpuSpecs, count: int, nvlink: bool | None = None
) -> SpeedEstimate | None:
    """The speed of a task on some GPUs. None: the data sheet does not state their performance.

    Args:
        nvlink: whether NVLink joins them, according to the offer; None: according to the data sheet.
    """
    return _estimate(table, task, gpu, count, has_fast_link(gpu, nvlink), _spread_of(table, task.method))


def _estimate(
    table: ThroughputTable, task: SpeedTask, gpu: GpuSpecs, count: int, nvlink: bool, spread: FigureRange
) -> SpeedEstimate | None:
    """The estimate; `spread`: the factors of its range for a job similar to a row, and for one unlike all rows."""
    bound = roofline_tokens_s(task, gpu, count, nvlink=nvlink)
    if bound is None:
        return None
    near = _near(table.rows, task, gpu, count, nvlink)
    if not near:
        shares = table.shares(task.method)
        low, high = bound * shares.low, bound * shares.high
        return SpeedEstimate(FigureRange(low, high), (low * high) ** 0.5, ())
    nearest, distance = near[0]
    used = tuple(row for row, _ in near)
    if distance < _SAME:
        return SpeedEstimate(_carried(nearest, bound), _middle(_carried(nearest, bound)), used, is_measured=True)
    weights = [exp(-_STEEPNESS * one) for _, one in near]
    mean = sum(weight * log(share_of(row) or 1.0) for (row, _), weight in zip(near, weights, strict=True))
    middle = bound * exp(mean / sum(weights))
    unlike = distance / _FAR
    wide = spread.low ** (1 - unlike) * spread.high**unlike
    return SpeedEstimate(FigureRange(middle / wide, middle * wide), middle, used)


def _carried(row: MeasuredSpeed, bound: float) -> FigureRange:
    """The range of a row itself, for a job that differs from it at most slightly in batch or context."""
    span = row.tokens_per_s
    factor = bound * (share_of(row) or 1.0) / _middle(span)
    around = 1.0 if span.is_wide else _ONE_RUN
    return FigureRange(span.low * factor / around, span.high * factor * around)


def _near(
    rows: Sequence[MeasuredSpeed], task: SpeedTask, gpu: GpuSpecs, count: int, nvlink: bool
) -> list[tuple[MeasuredSpeed, float]]:
    """The nearest rows with their distances, nearest first."""
    found = []
    for row in rows:
        distance = _distance(row, task, gpu, count, nvlink)
        if distance < _FAR and share_of(row) is not None:
            found.append((row, distance))
    found.sort(key=lambda pair: (not (pair[0].is_own and pair[1] < _SAME), pair[1]))  # the owner's own first
    return found[:_NEAREST]


def _distance(row: MeasuredSpeed, task: SpeedTask, gpu: GpuSpecs, count: int, nvlink: bool) -> float:
    """Return the distance of a row: 0 for the same job. The weights were set by hand (docs/decisions/0056)."""
    theirs, specs = row.task, gpu_specs()[row.gpu]
    if theirs.method is not task.method and not (theirs.method.trains and task.method.trains):
        return float("inf")
    unlike = (
        0.0 if theirs.method is task.method else 0.8 if WorkMethod.FULL not in {theirs.method, task.method} else 1.6
    )
    unlike += _unlike_gpu(specs, gpu)
    unlike += 0.3 * abs(log2(theirs.params / task.params))
    unlike += (0.3 if nvlink and row.nvlink else 0.6) * abs(log2(row.count / count))
    if max(count, row.count) > 1 and (nvlink or count == 1) is not (row.nvlink or row.count == 1):
        unlike += 1.0
    unlike += 0.5 * ((theirs.fp8, theirs.fp32) != (task.fp8, task.fp32))
    unlike += 0.8 * (theirs.offload is not task.offload)
    unlike += 0.3 * abs(log2(theirs.weight_bytes / task.weight_bytes))
    unlike += (0.15 if task.method is WorkMethod.DECODE else 0.1) * abs(log2(theirs.batch / task.batch))
    return unlike + 0.05 * abs(log2(theirs.context / task.context))


def _unlike_gpu(one: GpuSpecs, other: GpuSpecs) -> float:
    if one.name == other.name:
        return 0.0
    if one.family == other.family:
        return 0.3
    return 0.6 if one.architecture == other.architecture else 1.0


def _middle(span: FigureRange) -> float:
    return float((span.low * span.high) ** 0.5)


def leave_one_out(table: ThroughputTable, *, publications: bool = False) -> list[HeldOutRow]:
    """Estimate each row from all others; with `publications`, only from rows of other addresses."""
    found = []
    for row in table.rows:
        others = [one for one in table.rows if (one.url != row.url if publications else one is not row)]
        specs = gpu_specs().get(row.gpu)
        if specs is None:
            continue
        estimate = _estimate(ThroughputTable(tuple(others)), row.task, specs, row.count, row.nvlink, exactly(1.0))
        if estimate is not None:
            found.append(HeldOutRow(row, estimate.middle))
    return found


@lru_cache(maxsize=64)
def _spread_of(table: ThroughputTable, method: WorkMethod) -> FigureRange:
    """The factors that contain the errors of eight of ten rows, estimated from other rows, and from other sources."""
    return FigureRange(
        _quantile(leave_one_out(table), method), max(1.0, _quantile(leave_one_out(table, publications=True), method))
    )


def _quantile(found: Sequence[HeldOutRow], method: WorkMethod) -> float:
    ratios = sorted(row.ratio for row in found if row.row.task.method is method)
    return ratios[int(_INSIDE * (len(ratios) - 1))] if ratios else _UNKNOWN_SPREAD


def speed_of(work: Workload, table: ThroughputTable) -> JobSpeed:
    """The speed of a workload."""
    return JobSpeed(table=table, task=speed_task_of(work), factor=_factor(speed_keys(work), work.context))


def speed_keys(work: Workload) -> dict[str, bool]:
    """The keys that a factor goes with."""
    if not work.trains:
        return {}
    return {
        "recompute": work.recompute,
        "fused_attention": work.fused_attention,
        "offload": work.offload,
        "micro_batch": work.at_once < work.batch,
    }


def _factor(keys: Mapping[str, Any], context: int) -> FigureRange:
    factor = exactly(1.0 if keys.get("recompute", True) else KEPT_ACTIVATIONS)
    if not keys.get("fused_attention", True):
        plain = plain_attention_share(context)
        factor = FigureRange(factor.low * plain.low, factor.high * plain.high)
    if keys.get("offload") or keys.get("micro_batch"):
        factor = FigureRange(factor.low * SLOWED.low, factor.high * SLOWED.high)
    return factor


def plain_attention_share(context: int) -> FigureRange:
    """The speed of training without FlashAttention, as a share of the speed with it."""
    first, last = _PLAIN_ATTENTION[0], _PLAIN_ATTENTION[-1]
    tokens = min(max(context, first[0]), last[0])
    below, above = next(pair for pair in pairwise(_PLAIN_ATTENTION) if tokens <= pair[1][0])
    way = log2(tokens / below[0]) / log2(above[0] / below[0])
    return FigureRange(*(one + way * (other - one) for one, other in zip(below[1:], above[1:], strict=True)))


def speed_task_of(work: Workload, method: WorkMethod | None = None) -> SpeedTask:
    """A workload as a task for a speed estimate.

    Args:
        method: prefill, for inference; None: the workload's own method, for inference the generation of text.
    """
    model, shape = work.model, work.model.shape
    return SpeedTask(
        method=method or _METHODS[work.method],
        params=model.params,
        active_params=model.active_params,
        layers=shape.layers,
        hidden=shape.hidden,
        kv_width=shape.kv_width,
        weight_bytes=bytes_per_weight(work),
        fp8=work.precision is Precision.FP8,
        fp32=work.precision is Precision.FP32,
        batch=work.at_once,
        context=work.context,
    )
