"""Guaranteed data-sheet figures of a GPU, even if its name does not identify the card."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import msgspec

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.gpu_specs import GpuSpecs, gpu_specs

_BEFORE_BF16 = frozenset({"Kepler", "Maxwell", "Pascal", "Volta", "Turing"})  # supported since Ampere


@cache
def card_specs_of(name: str) -> GpuSpecs | None:
    """Guaranteed figures of a GPU; if the name does not identify the card ("H100"), the lowest. None: no data sheet."""
    sheets = _sheets(name)
    if len(sheets) < 2:
        return sheets[0] if sheets else None
    return msgspec.structs.replace(
        sheets[0],
        name=name,
        memory_gib=min(sheet.memory_gib for sheet in sheets),
        fp16_tflops=_least([sheet.fp16_tflops for sheet in sheets]),
        fp8_tflops=_least([sheet.fp8_tflops for sheet in sheets]),
        bandwidth_gb_s=_least([sheet.bandwidth_gb_s for sheet in sheets]),
        nvlink=all(sheet.nvlink for sheet in sheets),
    )


def peak_flops(gpu: str, *, fp8: bool = False, fp32: bool = False) -> float | None:
    """Dense FLOP/s of the matrix units, in 16 bits unless said otherwise. None: not on the data sheet."""
    specs = card_specs_of(gpu)
    if specs is None:
        return None
    tflops = specs.fp8_tflops if fp8 else specs.fp32_tflops if fp32 else specs.fp16_tflops
    return tflops * 1e12 if tflops else None


def lacks_bf16(gpu: str) -> bool:
    """Does it certainly lack bf16? If the name does not identify the card: do all possible cards lack it?"""
    sheets = _sheets(gpu)
    return bool(sheets) and all(specs.architecture in _BEFORE_BF16 for specs in sheets)


def _sheets(name: str) -> list[GpuSpecs]:
    known = gpu_specs()
    names = (name,) if name in known else catalog().wanted(name)
    return [known[one] for one in names if one in known]


def _least(figures: Sequence[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return min(known) if known and len(known) == len(figures) else None
