"""Data-sheet figures of GPUs. Sources per row: `gpu-catalog.csv`."""

from __future__ import annotations

import os
from csv import DictReader
from functools import cache

import msgspec

_TENSOR_CORES = frozenset(
    {"Volta", "Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell", "Blackwell Ultra"}
)  # NVIDIA's name; AMD's and Intel's matrix units do the same work
# The 32-bit rate as a share of the 16-bit rate. NVIDIA's data sheets: TF32 is half since Ampere (A100 156 of 312
# TFLOP/s, H100 494.7 of 989.5, B200 1,125 of 2,250), as is P100's 32-bit rate (10.6 of 21.2); Volta and Turing reach
# an eighth (V100 15.7 of 125, T4 8.1 of 65). AMD's: a quarter on CDNA 1 and 2 (MI250X 95.7 of 383), then an eighth
# (MI300X 163.4 of 1,307). An eighth is assumed for all others.
_FP32_SHARE = {"CDNA 1": 0.25, "CDNA 2": 0.25} | dict.fromkeys(
    ("Pascal", "Ampere", "Ada Lovelace", "Hopper", "Blackwell", "Blackwell Ultra"), 0.5
)
_LEAST_FP32_SHARE = 0.125


class GpuSpecs(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the catalog, for one GPU. None: not on the data sheet."""

    name: str
    family: str
    vendor: str
    architecture: str
    form_factor: str
    memory_gib: float
    fp16_tflops: float | None  # dense, with the matrix units
    fp8_tflops: float | None  # dense
    bandwidth_gb_s: float | None  # of its memory
    power_w: float | None
    nvlink: bool  # between all cards of a machine; a bridge between pairs does not count

    @property
    def fp32_tflops(self) -> float | None:
        """Dense rate of 32-bit work, with TF32 where the GPU has it; None: no 16-bit rate is on the data sheet."""
        if self.fp16_tflops is None:
            return None
        return self.fp16_tflops * _FP32_SHARE.get(self.architecture, _LEAST_FP32_SHARE)

    @property
    def has_tensor_cores(self) -> bool:
        """Return whether it has matrix units for half precision, which training needs."""
        if self.name.startswith(("GTX", "CMP")):  # the small Turing cards have none
            return False
        return self.architecture in _TENSOR_CORES or self.form_factor == "OAM"


@cache
def gpu_specs() -> dict[str, GpuSpecs]:
    """Return all rows of the catalog by canonical name; read once."""
    path = os.path.join(os.path.dirname(__file__), "gpu-catalog.csv")
    lines = __spec__.loader.get_data(path).decode().splitlines()  # type: ignore[union-attr]
    return {row["canonical_name"]: _specs(row) for row in DictReader(lines)}


def _specs(row: dict[str, str]) -> GpuSpecs:
    return GpuSpecs(
        name=row["canonical_name"],
        family=row["family"],
        vendor=row["vendor"],
        architecture=row["architecture"],
        form_factor=row["form_factor"],
        memory_gib=float(row["vram_gib"]),
        fp16_tflops=_number(row["fp16_dense_tflops"]),
        fp8_tflops=_number(row["fp8_dense_tflops"]),
        bandwidth_gb_s=_number(row["mem_bandwidth_gb_s"]),
        power_w=_number(row["tdp_w"]),
        nvlink=row["nvlink"] == "yes",
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
