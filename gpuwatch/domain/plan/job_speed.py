"""The speed of a job on any GPUs, from published measurements: the same result for `plan job` and `plan fit`."""

from __future__ import annotations

import msgspec

from gpuwatch.domain.plan.card_specs import card_specs_of
from gpuwatch.domain.plan.figures import FigureRange, exactly
from gpuwatch.domain.plan.memory_need import Precision, TrainingMethod, Workload, bytes_per_weight
from gpuwatch.domain.plan.roofline import SpeedTask, WorkMethod
from gpuwatch.domain.plan.throughput import SpeedEstimate, ThroughputTable, estimate_speed

KEPT_ACTIVATIONS = 1.25  # the articles: gradient checkpointing takes 20 % of the speed; its memory: `memory_need`
SLOWED = FigureRange(0.5, 0.7)  # the articles: CPU offload and micro-batches cost 30 to 50 % of the speed


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
        if found is None or self.factor == exactly(1.0):
            return found
        span = found.tokens_per_s
        slowed = FigureRange(span.low * self.factor.low, span.high * self.factor.high)
        middle = found.middle * (self.factor.low * self.factor.high) ** 0.5
        return SpeedEstimate(slowed, middle, found.rows)


def speed_of(work: Workload, table: ThroughputTable) -> JobSpeed:
    """The speed of a workload."""
    factor = exactly(KEPT_ACTIVATIONS if work.trains and not work.recompute else 1.0)
    if work.offload or work.at_once < work.batch:
        factor = FigureRange(factor.low * SLOWED.low, factor.high * SLOWED.high)
    return JobSpeed(table=table, task=speed_task_of(work), factor=factor)


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


_METHODS = {
    TrainingMethod.FULL: WorkMethod.FULL,
    TrainingMethod.LORA: WorkMethod.LORA,
    TrainingMethod.QLORA: WorkMethod.QLORA,
    TrainingMethod.INFERENCE: WorkMethod.DECODE,
}
