"""Passes of a network in a second on a card: its arithmetic at the share that published runs reached. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from gpuwatch.domain.market.gpu_cards import GpuSpecs
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.plan.roofline import Precision

if TYPE_CHECKING:
    from gpuwatch.domain.plan.memory_need import CardFit
    from gpuwatch.domain.plan.workload import Workload

# Of the data sheet's dense 16-bit rate, on an A100 SXM 80GB, by github.com/fal-ai/stable-diffusion-benchmarks (PyTorch
# 2.1 with SDPA, two passes a step): SD 1.5 at 31.19 steps a second, SDXL at 8.43. Other networks: assumed the same.
_SHARES: Final = FigureRange(0.16, 0.365)
_PASSES: Final = {True: 4.0, False: 3.0}  # of a step of training, with and without recomputation (Kaplan et al., 2020)


def passes_per_s(work: Workload, gpu: GpuSpecs) -> FigureRange | None:
    """Inputs a second on one card, in inference or training. None: a language model, or no data sheet."""
    network = work.model.network
    tflops = gpu.fp32_tflops if work.precision is Precision.FP32 else gpu.fp16_tflops
    if network is None or not tflops:
        return None
    flop = network.flop * (_PASSES[work.recompute] if work.trains else 1.0)
    return FigureRange(*(tflops * 1e12 * share / flop for share in _SHARES))


def speed_lines(work: Workload, fits: Sequence[CardFit]) -> Iterator[str]:
    """The speed on these cards, one plain sentence each."""
    network = work.model.network
    if network is None:
        return
    yield f"a pass is {network.unit}: {network.flop / 1e12:,.3g} TFLOP forward ({network.source})"
    for fit in fits:
        span = passes_per_s(work, fit.gpu)
        if span is not None:
            low, high = (f"{one:,.3g}" for one in span)
            doing = "trains" if work.trains else "computes"
            yield f"{fit.gpu.name} {doing} {low} to {high} passes a second, at the shares that SD 1.5 and SDXL reached"
