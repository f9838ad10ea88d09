"""What a GPU can do by its data sheet, and which part of a GPU a spelling names. Pure.

The figures are in `gpu-catalog.csv` and `gpu-figures.csv`, with the sources of each row (`card_sources`). Slices of
GPUs (MIG instances, vGPUs, machines with a part of a card) do not count as GPUs.

source: NVIDIA's MIG profile tables and vGPU type names; EC2, Azure and Google Cloud instance types, read 2026-11.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from csv import DictReader
from functools import cache
from typing import Final

import msgspec

_TENSOR_CORES = frozenset(
    {
        *("Volta", "Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell", "Blackwell Ultra"),
        *("CDNA", "CDNA 2", "CDNA 3", "CDNA 4", "Da Vinci", "BR1xx", "Big Island"),
    }
)  # NVIDIA's name; the matrix units of others do the same work
# The 32-bit rate as a share of the 16-bit rate. NVIDIA's data sheets: TF32 is half since Ampere (A100 156 of 312
# TFLOP/s, H100 494.7 of 989.5, B200 1,125 of 2,250), as is P100's 32-bit rate (10.6 of 21.2); Volta and Turing reach
# an eighth (V100 15.7 of 125, T4 8.1 of 65). AMD's: a quarter on CDNA 1 and 2 (MI250X 95.7 of 383), then an eighth
# (MI300X 163.4 of 1,307). An eighth is assumed for all others.
_FP32_SHARE = {"CDNA": 0.25, "CDNA 2": 0.25} | dict.fromkeys(
    ("Pascal", "Ampere", "Ada Lovelace", "Hopper", "Blackwell", "Blackwell Ultra"), 0.5
)
_LEAST_FP32_SHARE = 0.125

WHOLE: Final = 1.0
_LONGEST: Final = 200  # characters; longer texts are not spellings of a GPU

_MIG: Final = r"(?<![a-z0-9.])([1-7])g[. -]?(\d{1,3})gb(?![a-z0-9])"  # "1g.24gb", "3g.40gb+me"
_MIG_LABEL: Final = r"(?<![a-z0-9])mig[ :_-]*(\d{1,3}) ?gb(?![a-z0-9])"  # "PRO 6000 MIG 24GB"
_VGPU_MIG: Final = r"(?<![a-z0-9])(a100|a100d|a30|h100|h200)[xl]?-([1-7])-(\d{1,3})c(?:me)?(?![a-z0-9])"
_VGPU: Final = r"(?<![a-z0-9])([a-z]{0,4}\d{1,4}[a-z]{0,3})-(\d{1,3})[abcq](?![a-z0-9])"  # "RTXA6000-12Q"
_VRAM: Final = r"(?<![a-z0-9])vcg-([a-z0-9]+)-.*?-(\d{1,3})vram(?![a-z0-9])"  # "vcg-a16-2c-8g-2vram"
_SHARE: Final = r"(?<![\w./-])(\d{1,2})/(\d{1,2})(?![\w/-]|\.\d)"  # "1/2", but not a date or a path
_DECIMAL: Final = r"(?<![\w.])0?\.(\d{1,4}) ?(?:x|×|gpus?)(?![a-z0-9])"  # "0.5x A10", "0.125 GPU"
_AZURE_A10: Final = r"(?<![a-z0-9])nv(\d{1,2})a[a-z]*_a10_v5(?![a-z0-9])"
_EC2: Final = r"(?<![a-z0-9])g(r?)6f\.(large|xlarge|2xlarge|4xlarge)(?![a-z0-9])"
_GCP_G4: Final = r"(?<![a-z0-9])g4-standard-(6|12|24)(?![a-z0-9])"

_EC2_SHARES: Final = {"large": 1 / 8, "xlarge": 1 / 8, "2xlarge": 1 / 4, "4xlarge": 1 / 2}
_GCP_SHARES: Final = {"6": 1 / 8, "12": 1 / 4, "24": 1 / 2}
_AZURE_A10_VCPUS: Final = 36  # of the machine with one whole A10
# MIG splits an A100, H100, H200 or B200 into 7, an A30 or RTX PRO 6000 into 4; the profile's memory shows which.
_OF_FOUR: Final = frozenset({("1", "6"), ("2", "12"), ("4", "24"), ("1", "24"), ("2", "48"), ("4", "96")})
_MIG_LABELS: Final = {"24": 1 / 4, "48": 1 / 2}  # RTX PRO 6000, as RunPod sells it
_CARDS_GB: Final = {
    "a2": 16, "a10": 24, "a10g": 24, "a16": 16, "a30": 24, "a40": 48, "a100": 40, "a100d": 80, "a100x": 80,
    "h100": 80, "h100l": 94, "h200": 141, "l4": 24, "l40": 48, "l40s": 48, "t4": 16, "m10": 8, "m60": 8,
    "p4": 8, "p6": 16, "p40": 24, "p100": 16, "v100": 16, "v100d": 32, "v100x": 16, "v100dx": 32,
    "rtx6000": 24, "rtx8000": 48, "rtxa5000": 24, "rtxa6000": 48,
}  # fmt: skip


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
    has_bridge: bool = False  # between pairs, if the host bought one
    has_no_link: bool = False  # nothing but PCIe joins it with others
    link_gb_s: float | None = None  # to the other GPUs over NVLink or the like, both directions together
    cuda_cores: float | None = None  # AMD's are called stream processors
    boost_mhz: float | None = None
    ecc: bool | None = None  # memory with error correction, as a feature of the card
    datacenter_card: bool | None = None  # made, and by its driver's licence allowed, for data centers

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
    more = more_figures()
    return {
        name: _specs(row, more.get(name, {}))
        for row in catalog_rows("gpu-catalog.csv")
        if (name := row["canonical_name"])
    }


def more_figures() -> dict[str, dict[str, str]]:
    """Figures that only a few questions need, and their sources: apart, because every start reads the catalogue."""
    return {row["canonical_name"]: row for row in catalog_rows("gpu-figures.csv")}


def catalog_rows(file: str) -> Iterator[dict[str, str]]:
    """Return the rows of a file of the catalogue, in its order."""
    path = os.path.join(os.path.dirname(__file__), file)
    return DictReader(__spec__.loader.get_data(path).decode().splitlines())  # type: ignore[union-attr]


def _specs(row: dict[str, str], more: dict[str, str]) -> GpuSpecs:
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
        has_bridge=row["nvlink"] == "bridge",
        has_no_link=(row["vendor"], row["nvlink"], row["form_factor"]) == ("nvidia", "no", "PCIe"),
        link_gb_s=_number(more.get("link_gb_s", "")),
        cuda_cores=_number(more.get("cuda_cores", "")),
        boost_mhz=_number(more.get("boost_mhz", "")),
        ecc=_YES_OR_NO.get(more.get("ecc", "")),
        datacenter_card=_YES_OR_NO.get(more.get("datacenter_card", "")),
    )


_YES_OR_NO: Final = {"yes": True, "no": False}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def gpu_fraction(text: str) -> float:
    """Return the part of one GPU that a spelling, plan or instance type names: 0 < x < 1 for a slice, 1.0 for anything
    else.

    A MIG instance counts by its compute slices (1g of 7 is 1/7), a vGPU by its share of the memory. A profile that
    takes the whole card (7g.80gb) is the whole card. Without a known slice in the name it is a whole GPU, because the
    caller knows best what it reads.
    """
    if len(text) > _LONGEST:
        return WHOLE
    plain = text.casefold()
    for share_in in _READERS:
        share = share_in(plain)
        if share is not None:
            return share if 0 < share < WHOLE else WHOLE
    return WHOLE


def _mig(text: str) -> float | None:
    if found := re.search(_VGPU_MIG, text):
        return int(found[2]) / (4 if found[1] == "a30" else 7)
    if found := re.search(_MIG, text):
        return int(found[1]) / (4 if (found[1], found[2]) in _OF_FOUR else 7)
    if found := re.search(_MIG_LABEL, text):
        return _MIG_LABELS.get(found[1])
    return None


def _by_memory(text: str) -> float | None:
    found = re.search(_VRAM, text) or re.search(_VGPU, text)
    if not found or found[1] not in _CARDS_GB:
        return None
    return int(found[2]) / _CARDS_GB[found[1]]


def _machine(text: str) -> float | None:
    if found := re.search(_EC2, text):
        return _EC2_SHARES[found[2]]
    if found := re.search(_AZURE_A10, text):
        return int(found[1]) / _AZURE_A10_VCPUS
    if found := re.search(_GCP_G4, text):
        return _GCP_SHARES[found[1]]
    return None


def _spelled(text: str) -> float | None:
    if found := re.search(_DECIMAL, text):
        return float(f"0.{found[1]}")
    if found := re.search(_SHARE, text):
        return int(found[1]) / int(found[2]) if int(found[2]) else None
    return None


_READERS: Final = (_mig, _by_memory, _machine, _spelled)
