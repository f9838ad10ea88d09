"""The saving from fewer tokens: GPU-hours in proportion, and dollars at a price."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpuwatch.app.market.current_offers import current_offers, is_old
from gpuwatch.bootstrap import real_now
from gpuwatch.domain.market.money import MICRO
from gpuwatch.domain.plan.job_total import training_flop
from gpuwatch.domain.plan.roofline import peak_flops
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.engine.market.browse import offer_filter
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

_POLL_WITHIN_S = 30.0


class TrainingWork(msgspec.Struct, frozen=True, kw_only=True):
    """The training time for the whole file: from the first of these that is given."""

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


def cheapest_price(settings: Settings, gpu: str, *, poll: bool) -> TrainingPrice | None:
    """The cheapest live offer now, per GPU-hour. None: no offer, or no poll in the last three hours.

    Args:
        poll: poll the providers instead of reading the store.

    Raises:
        UsageError: no GPU has this name, or no provider can be polled.
        StoreError: the store cannot be read.
    """
    offers = current_offers(settings, offer_filter((gpu,), kind="live"), poll_within_s=_POLL_WITHIN_S if poll else None)
    if not offers.offers or is_old(offers.as_of, real_now()):
        return None
    price, offer = min(
        ((price.price_microusd_hour / offer.gpu_count, offer) for offer, price in offers.offers),
        key=lambda pair: (pair[0], pair[1].gpu, pair[1].provider),
    )
    source = f"the cheapest {offer.gpu} now, {offer.provider}"
    return TrainingPrice(usd_gpu_hour=price / MICRO, source=source, gpu=offer.gpu)


class TrainingSaving(msgspec.Struct, frozen=True, kw_only=True):
    """The saving. None: unknown. `how` states how the hours were computed, or which option is missing."""

    share: float  # of the tokens
    gpu_hours_whole: float | None
    gpu_hours_saved: float | None
    price: TrainingPrice | None
    saved_usd: float | None
    how: str


def training_saving(
    tokens: int, removed_tokens: int, work: TrainingWork, gpu: str | None, price: TrainingPrice | None
) -> TrainingSaving:
    """Compute the saving; hours are proportional to tokens: the same epochs over less data.

    Args:
        gpu: a canonical name.

    Raises:
        UsageError: the options do not determine the hours.
    """
    share = removed_tokens / tokens if tokens else 0.0
    hours, how = _total_gpu_hours(tokens, work, gpu)
    saved = None if hours is None else hours * share
    usd = None if saved is None or price is None else saved * price.usd_gpu_hour
    return TrainingSaving(
        share=share, gpu_hours_whole=hours, gpu_hours_saved=saved, price=price, saved_usd=usd, how=how
    )


def _total_gpu_hours(tokens: int, work: TrainingWork, gpu: str | None) -> tuple[float | None, str]:
    seen = tokens * work.epochs
    if work.gpu_hours is not None:
        return work.gpu_hours, f"{work.gpu_hours:g} GPU-hours for the whole file (--gpu-hours)"
    if work.tokens_per_s is not None:
        return seen / work.tokens_per_s / HOUR_S, f"{seen:,.0f} tokens at {work.tokens_per_s:g} per second and GPU"
    if work.params is None:
        return None, "GPU-hours unknown: pass --gpu-hours, --tokens-per-s, or --params with --gpu"
    if gpu is None:
        raise UsageError("--params requires a GPU, such as --gpu H100")
    peak = peak_flops(gpu, fp8=False)
    if peak is None:
        raise UsageError(f"no data sheet lists the FLOP/s of {gpu}: use --tokens-per-s or --gpu-hours")
    flop = training_flop(work.params, seen, full=not work.lora)
    how = (
        f"{flop:.3g} FLOP ({flop / (work.params * seen) if seen else 0:g} × parameters × tokens)"
        f" at {peak / 1e12:g} TFLOP/s × {work.utilisation:.0%} of {gpu}"
    )
    return flop / (peak * work.utilisation) / HOUR_S, how
