"""Data-sheet figures of GPUs. Sources per row: `gpu-catalog.csv`."""

from __future__ import annotations

import os
from csv import DictReader
from functools import cache

import msgspec

_TENSOR_CORES = frozenset(
    {"Volta", "Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell", "Blackwell Ultra"}
)  # NVIDIA's name; AMD's and Intel's matrix units do the same work


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
