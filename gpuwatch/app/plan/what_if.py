"""What precision, kernels, checkpointing and batch change about a job: its hours, and the memory of its model.

Each change is the plan of the same job with one key changed, so that its figures are those of `gpuwatch plan job`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.plan.plan_job import plan_on_hardware
from gpuwatch.app.plan.plan_size import memory_needed
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.plan.job_comparison import parse_hardware
from gpuwatch.domain.plan.memory_need import cards_hold
from gpuwatch.domain.plan.roofline import Precision, TrainingMethod
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.jobs.job_request import JobRequest

_TRAINED = {
    Precision.FP32: (
        "32 bits",
        "half the 16-bit rate with TF32, a quarter without: mixed precision is 2–4 times as fast",
    ),
    Precision.BF16: ("16 bits", "the data sheet's 16-bit rate, and a 32-bit copy of trained weights"),
    Precision.FP8: ("fp8", "the data sheet's 8-bit rate, twice that of 16 bits; a byte per stored weight"),
}
_SIXTEEN = (Precision.BF16, Precision.FP16)
_READ = {
    Precision.FP32: ("32 bits", "4 bytes are read per weight and token"),
    Precision.BF16: ("16 bits", "2 bytes are read per weight and token"),
    Precision.FP8: ("fp8", "1 byte is read per weight and token; arithmetic in 8 bits where the card has fp8"),
    Precision.INT8: ("int8", "1 byte is read per weight and token; arithmetic in 16 bits"),
    Precision.INT4: ("int4", "half a byte is read per weight and token; arithmetic in 16 bits"),
}
_METHODS = {
    TrainingMethod.FULL: ("all weights", "weights, gradients and optimizer of all: ZeRO (2020)"),
    TrainingMethod.LORA: ("LoRA", "gradients and optimizer of the adapters alone: Hu et al. (2021)"),
    TrainingMethod.QLORA: ("QLoRA, 4 bits", "frozen weights in 4 bits, computed in 16: Dettmers et al. (2023)"),
}
_KERNELS = {
    True: ("with FlashAttention", "Dao et al. (2022), Dao (2023)"),
    False: ("without FlashAttention", "context × context scores in memory: Dao et al. (2022), Dao (2023)"),
}
_CHECKPOINTING = {
    True: ("with checkpointing", "inputs of layers are kept, the rest is computed again: Korthikanti et al. (2022)"),
    False: ("without checkpointing", "all activations are kept: Korthikanti et al. (2022)"),
}
_BATCH_TRAINED = "memory alone: what a larger batch gains in speed is within the error of the measurements"
_BATCH_READ = "weights are read once for all sequences, until arithmetic limits: Williams et al. (2009)"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The job with one key changed. `hours`: of work on the first candidate; None: `why_not`."""

    name: str
    key: str  # "" for the job as it is
    value: str
    rule: str
    memory_gb: float
    fits: bool | None  # on the first candidate; None: the memory of its cards is unknown
    hours: FigureRange | None
    why_not: str = ""

    def times(self, first: Change) -> float | None:
        """The time as a multiple of that of the first, in the middle of both ranges; None: one of them is unknown."""
        if self.hours is None or first.hours is None:
            return None
        (low, high), (first_low, first_high) = self.hours, first.hours
        return sqrt(low * high / (first_low * first_high))


def what_changes(request: JobRequest) -> list[Change]:
    """The job as it is, then with one thing changed each; what changes nothing that is known is left out.

    Raises:
        UsageError: the job as it is cannot be planned, or has no candidate, no model or no tokens.
    """
    if not request.candidates:
        raise UsageError("what_if requires cards at a price, such as '1x H100 @ 2.00'")
    if request.model is None or request.model.network is not None or request.tokens is None:
        raise UsageError("what_if requires a language model and its tokens: --size-of 8B --tokens 1B")
    if request.utilisation is not None or request.tokens_per_s is not None:
        raise UsageError("what_if compares estimates: omit utilisation and tokens_per_s")
    first = _change(request, "", "as it is", "", "")
    if first.hours is None:
        raise UsageError(first.why_not)
    return [first, *(_change(request, *one) for one in _changes(request))]


def changes_sentence(request: JobRequest, changes: Sequence[Change]) -> str:
    """The fastest change that fits the first cards, in one plain sentence."""
    first, cards = changes[0], parse_hardware(request.candidates[0]).on.text
    found = [(times, change) for change in changes[1:] if change.fits and (times := change.times(first)) is not None]
    if not found or (best := min(found, key=lambda pair: pair[0]))[0] >= 1:
        return f"{cards}: nothing listed here makes the job faster and fits."
    return f"{cards}: {best[1].name} changes the time most, to {best[0]:.2f}×, and needs {best[1].memory_gb:,.1f} GB."


def changes_json(request: JobRequest, changes: Sequence[Change]) -> dict[str, Any]:
    """JSON of `gpuwatch plan job --set what_if=true`."""
    return {
        "sentence": changes_sentence(request, changes),
        "cards": parse_hardware(request.candidates[0]).on.text,
        "changes": [
            {
                "change": change.name,
                "key": change.key or None,
                "value": change.value or None,
                "hours": None if change.hours is None else list(change.hours),
                "times": change.times(changes[0]),
                "memory_gb": change.memory_gb,
                "fits": change.fits,
                "rule": change.rule or None,
                "why_not": change.why_not or None,
            }
            for change in changes
        ],
    }


def _changes(request: JobRequest) -> Iterator[tuple[str, str, Any, str]]:
    """Key, name, value and rule of each change."""
    method, now = request.work_method, request.precision or Precision.BF16
    trains = method is not TrainingMethod.INFERENCE
    if method is not TrainingMethod.QLORA:
        for precision, (name, rule) in (_TRAINED if trains else _READ).items():
            if precision is not now and not (precision is Precision.BF16 and now in _SIXTEEN):
                yield "precision", name, precision, rule
    if trains:
        for other, (name, rule) in _METHODS.items():
            if other is not method and (other is not TrainingMethod.QLORA or now in _SIXTEEN):
                yield "method", name, other, rule
        name, rule = _KERNELS[not request.fused_attention]
        yield "fused_attention", name, not request.fused_attention, rule
        name, rule = _CHECKPOINTING[not request.recompute]
        yield "recompute", name, not request.recompute, rule
    for factor in (2, 8):
        batch = request.batch * factor
        rule = _BATCH_TRAINED if trains else _BATCH_READ
        yield "batch", f"batch {batch}", batch, rule


def _change(request: JobRequest, key: str, name: str, value: Any, rule: str) -> Change:
    changed = request.model_copy(update={key: value}) if key else request
    work = changed.workload()
    if work is None:
        raise UsageError("what_if requires a model")
    gb, why_not = memory_needed(work).gb, ""
    fits: bool | None = None
    hours: FigureRange | None = None
    try:  # without its memory, so that hours are known where it does not fit
        first = plan_on_hardware(changed.model_copy(update={"memory_gb": 0.0})).compared[0]
    except UsageError as fault:
        why_not = str(fault)
    else:
        gpus = first.priced_gpus
        fits = None if gpus.memory_gib is None else cards_hold(gb, gpus.memory_gib, gpus.count)
        if not (key == "batch" and work.trains):
            hours = FigureRange(first.cost.low.work_h, first.cost.high.work_h)
    text = "" if not key else str(value).lower() if isinstance(value, bool) else str(value)
    return Change(name=name, key=key, value=text, rule=rule, memory_gb=gb, fits=fits, hours=hours, why_not=why_not)
