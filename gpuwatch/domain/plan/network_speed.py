"""Passes of a network in a second on a card: its arithmetic at the share that published runs reached. Pure.

The runs are in `networks/network-runs.csv`, with their sources. Those of the same family count; of them those of the
same bits and the same work, if there are any. A family without a run takes all runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from csv import DictReader
from functools import cache
from typing import TYPE_CHECKING, Final

import msgspec

from gpuwatch.domain.market.gpu_cards import GpuSpecs, gpu_specs
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.plan.networks.network_shape import NetworkFamily, NetworkShape
from gpuwatch.domain.plan.roofline import Precision, card_specs_of

if TYPE_CHECKING:
    from gpuwatch.domain.plan.memory_need import CardFit
    from gpuwatch.domain.plan.workload import Workload

_PASSES: Final = {True: 4.0, False: 3.0}  # of a step of training, with and without recomputation (Kaplan et al., 2020)
_SEVERAL_CARDS: Final = 0.84  # of one card's speed each, at worst: ResNet-50 on 8 A100 is 6.72 × one (NVIDIA)
_SPREAD: Final = 1.5  # around a single run (assumed: the median factor between the runs of a family)


class NetworkRun(msgspec.Struct, frozen=True, kw_only=True):
    """A published run. `passes_per_s`: of one card; `gflop`: of one pass forward."""

    family: NetworkFamily
    model: str
    work: str
    bits: int
    gpu: str
    passes_per_s: float
    gflop: float
    source: str

    @property
    def share(self) -> float:
        """Of the data sheet's rate. Raises KeyError: the catalogue does not have the card."""
        passes = _PASSES[False] if self.work == "train" else 1.0
        return self.passes_per_s * passes * self.gflop * 1e9 / (_tflops(gpu_specs()[self.gpu], self.bits == 32) * 1e12)


class NetworkRate(msgspec.Struct, frozen=True):
    """Passes a second of all cards, and what they rest on. `tokens_per_s`: a sample counts as a token counts."""

    tokens_per_s: FigureRange
    how: str


class NetworkSpeed(msgspec.Struct, frozen=True, eq=False):
    """The speed of one workload on any cards, as a job asks for it."""

    work: Workload

    def on(self, gpu: str, count: int, nvlink: bool | None = None) -> NetworkRate | None:
        """The speed of a number of cards; None: no data sheet. `nvlink` does not change it: none was published."""
        del nvlink
        specs, network = card_specs_of(gpu), self.work.model.network
        one = None if specs is None else passes_per_s(self.work, specs)
        if one is None or network is None:
            return None
        least = count * (_SEVERAL_CARDS if count > 1 else 1.0)
        found = FigureRange(one.low * least, one.high * count)
        return NetworkRate(found, f"{found.low:,.4g} to {found.high:,.4g} {network.sample}/s: {shares_text(self.work)}")


@cache
def network_runs() -> tuple[NetworkRun, ...]:
    """All published runs, read once."""
    path = os.path.join(os.path.dirname(__file__), "networks", "network-runs.csv")
    lines = __spec__.loader.get_data(path).decode().splitlines()  # type: ignore[union-attr]
    rows = DictReader(line for line in lines if not line.startswith("#"))
    return tuple(msgspec.convert(row, NetworkRun, strict=False) for row in rows)


def passes_per_s(work: Workload, gpu: GpuSpecs) -> FigureRange | None:
    """Inputs a second on one card. None: a language model, no data sheet, or inference that writes word by word."""
    network, tflops = work.model.network, _tflops(gpu, work.precision is Precision.FP32)
    if network is None or not tflops or _writes(work, network):
        return None
    shares = _shares(_runs_of(work, network))
    return FigureRange(*(tflops * 1e12 * share / pass_flop(work) for share in shares))


def pass_flop(work: Workload) -> float:
    """Operations for one input, in inference or a step of training."""
    network = work.model.network
    return (network.flop if network else 0.0) * (_PASSES[work.recompute] if work.trains else 1.0)


def shares_text(work: Workload) -> str:
    """The runs that a speed rests on, as a clause."""
    network = work.model.network
    if network is None:
        return ""
    runs = _runs_of(work, network)
    low, high = (100 * share for share in _shares(runs))
    whose = network.family.value if {run.family for run in runs} == {network.family} else "other networks"
    number = f"{len(runs)} published runs of {whose}" if len(runs) > 1 else f"1.5 × below and above a run of {whose}"
    return f"{low:.0f} to {high:.0f} % of its arithmetic, from {number}"


def speed_lines(work: Workload, fits: Sequence[CardFit]) -> Iterator[str]:
    """The speed on these cards, one plain sentence each."""
    network = work.model.network
    if network is None:
        return
    yield f"a pass is {network.unit}: {network.flop / 1e12:,.3g} TFLOP forward ({network.source})"
    if _writes(work, network):
        yield f"{network.kind} writes its words one after the other, so that passes do not give its speed: measure it"
        return
    for fit in fits:
        span = passes_per_s(work, fit.gpu)
        if span is not None:
            doing = "trains" if work.trains else "computes"
            yield f"{fit.gpu.name} {doing} {_span(span)} passes a second: {shares_text(work)}"


def _writes(work: Workload, network: NetworkShape) -> bool:
    return network.writes and not work.trains


def _tflops(gpu: GpuSpecs, fp32: bool) -> float:
    return (gpu.fp32_tflops if fp32 else gpu.fp16_tflops) or 0.0


def _span(value: FigureRange) -> str:
    return f"{value.low:,.3g} to {value.high:,.3g}"


def _runs_of(work: Workload, network: NetworkShape) -> list[NetworkRun]:
    """The runs nearest to this work."""
    kind, bits = "train" if work.trains else "infer", 32 if work.precision is Precision.FP32 else 16
    narrower: tuple[Callable[[NetworkRun], bool], ...] = (
        lambda run: run.family is network.family,
        lambda run: run.bits == bits,
        lambda run: run.work == kind,
    )
    runs = list(network_runs())
    for is_near in narrower:
        runs = [run for run in runs if is_near(run)] or runs
    return runs


def _shares(runs: Sequence[NetworkRun]) -> FigureRange:
    shares = [run.share for run in runs]
    if len(shares) == 1:
        return FigureRange(shares[0] / _SPREAD, min(1.0, shares[0] * _SPREAD))
    return FigureRange(min(shares), max(shares))
