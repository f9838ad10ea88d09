"""What fewer tokens save: GPU-hours in proportion, and dollars at a price."""

from __future__ import annotations

import msgspec

from gpuwatch.domain.planning.job import training_flop
from gpuwatch.domain.planning.job_hours import HOUR_S, peak_flops
from gpuwatch.errors import UsageError


class TrainingWork(msgspec.Struct, frozen=True, kw_only=True):
    """How long training on the whole file takes: by the first of these that is given."""

    gpu_hours: float | None = None
    tokens_per_s: float | None = None  # of one GPU
    params: float | None = None
    lora: bool = False
    utilisation: float = 0.4
    epochs: float = 1.0


class TrainingPrice(msgspec.Struct, frozen=True, kw_only=True):
    """USD per GPU-hour, commission included, and its source."""

    usd_gpu_hour: float
    source: str
    gpu: str | None = None  # canonical


class TrainingSaving(msgspec.Struct, frozen=True, kw_only=True):
    """None: unknown. `how` says how the hours were computed, or which option is missing."""

    share: float  # of the tokens
    gpu_hours_whole: float | None
    gpu_hours_saved: float | None
    price: TrainingPrice | None
    saved_usd: float | None
    how: str


def training_saving(
    tokens: int, removed_tokens: int, work: TrainingWork, gpu: str | None, price: TrainingPrice | None
) -> TrainingSaving:
    """Hours are proportional to tokens: the same epochs over less data.

    Args:
        gpu: a canonical name.

    Raises:
        UsageError: the options do not determine the hours.
    """
    share = removed_tokens / tokens if tokens else 0.0
    hours, how = _whole(tokens, work, gpu)
    saved = None if hours is None else hours * share
    usd = None if saved is None or price is None else saved * price.usd_gpu_hour
    return TrainingSaving(
        share=share, gpu_hours_whole=hours, gpu_hours_saved=saved, price=price, saved_usd=usd, how=how
    )


def _whole(tokens: int, work: TrainingWork, gpu: str | None) -> tuple[float | None, str]:
    seen = tokens * work.epochs
    if work.gpu_hours is not None:
        return work.gpu_hours, f"{work.gpu_hours:g} GPU-hours for the whole file, as said"
    if work.tokens_per_s is not None:
        return seen / work.tokens_per_s / HOUR_S, f"{seen:,.0f} tokens at {work.tokens_per_s:g} a second and GPU"
    if work.params is None:
        return None, "not known: say --gpu-hours, --tokens-per-s, or --params with --gpu"
    if gpu is None:
        raise UsageError("--params needs a GPU: --gpu H100")
    peak = peak_flops(gpu, fp8=False)
    if peak is None:
        raise UsageError(f"no data sheet gives the FLOP/s of {gpu}: use --tokens-per-s or --gpu-hours")
    flop = training_flop(work.params, seen, full=not work.lora)
    how = (
        f"{flop:.3g} FLOP ({flop / (work.params * seen) if seen else 0:g} × parameters × tokens)"
        f" at {peak / 1e12:g} TFLOP/s × {work.utilisation:.0%} of {gpu}"
    )
    return flop / (peak * work.utilisation) / HOUR_S, how
