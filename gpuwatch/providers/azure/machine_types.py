"""Azure's machine types with GPUs, and the price list's filters for them. Pure.

source: the vendor's pages of machine sizes and of the price list's filters, read 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final, NamedTuple


class AzureMachine(NamedTuple):
    """The hardware of a machine type. `gpus` below 1: a fraction of one. `vcpu`: the number in its name."""

    gpu: str
    gpus: float
    memory_gib: float | None  # of the fraction; None: the whole card's


class _Type(NamedTuple):
    family: str
    pattern: re.Pattern[str]
    gpu: str
    gpus: float
    memory_gib: float | None = None


def _type(family: str, pattern: str, gpu: str, gpus: float, memory_gib: float | None = None) -> _Type:
    return _Type(family, re.compile(f"Standard_{pattern}"), gpu, gpus, memory_gib)


# The number in a name counts virtual processors, not GPUs. source: the vendor's pages of machine sizes.
_TYPES: Final = (
    _type("GB200", "ND128isrf?_(?:NDR_)?GB200_v6", "GB200", 4),
    _type("H200", "ND96isr?f?_H200_v5", "H200 SXM", 8),
    _type("H100", "ND96isr?f?_H100_v5", "H100 SXM", 8),
    _type("H100", "NCC?40ads_H100_v5", "H100 NVL", 1),
    _type("H100", "NC80adis_H100_v5", "H100 NVL", 2),
    _type("MI300X", "ND96isr?f?_MI300X_v5", "MI300X", 8),
    _type("A100", "ND96ams?r_A100_v4", "A100 SXM 80GB", 8),
    _type("A100", "ND96asr_v4", "A100 SXM 40GB", 8),
    _type("A100", "NC24ads_A100_v4", "A100 PCIe 80GB", 1),
    _type("A100", "NC48ads_A100_v4", "A100 PCIe 80GB", 2),
    _type("A100", "NC96ads_A100_v4", "A100 PCIe 80GB", 4),
    _type("A10", "NV6ads_A10_v5", "A10", 1 / 6, 4.0),
    _type("A10", "NV12ads_A10_v5", "A10", 1 / 3, 8.0),
    _type("A10", "NV18ads_A10_v5", "A10", 1 / 2, 12.0),
    _type("A10", "NV36adm?s_A10_v5", "A10", 1),
    _type("A10", "NV72ads_A10_v5", "A10", 2),
    _type("T4", "NC(?:4|8|16)as_T4_v3", "T4", 1),
    _type("T4", "NC64as_T4_v3", "T4", 4),
    _type("V100", "NC6s_v3", "V100 PCIe 16GB", 1),
    _type("V100", "NC12s_v3", "V100 PCIe 16GB", 2),
    _type("V100", "NC24r?s_v3", "V100 PCIe 16GB", 4),
    _type("V100", "ND40rs_v2", "V100 SXM2 32GB", 8),
)
_V100S: Final = ("NC6s_v3", "NC12s_v3", "NC24s_v3", "NC24rs_v3", "ND40rs_v2")
_FILTERS: Final[Mapping[str, str]] = {
    **{name: f"contains(armSkuName,'{name}')" for name in ("GB200", "H200", "H100", "MI300X")},
    "A100": "contains(armSkuName,'A100') or armSkuName eq 'Standard_ND96asr_v4'",
    "A10": "contains(armSkuName,'_A10_v5')",
    "T4": "contains(armSkuName,'_T4_v3')",
    "V100": " or ".join(f"armSkuName eq 'Standard_{name}'" for name in _V100S),
}


@cache
def listable_gpus() -> frozenset[str]:
    """Return the GPUs of the table: prices of others are not requested."""
    return frozenset(one.gpu for one in _TYPES)


def families_of(gpus: Iterable[str]) -> tuple[str, ...]:
    """Return the families to request for these GPUs; without GPUs: all families."""
    requested = set(gpus)
    return tuple(dict.fromkeys(one.family for one in _TYPES if not requested or one.gpu in requested))


def filter_of(family: str, regions: Iterable[str] = ()) -> str:
    """Return the OData filter for one family of GPUs. The filter `priceType` is the field `type` of a row."""
    parts = ["serviceName eq 'Virtual Machines'", "priceType eq 'Consumption'", f"({_FILTERS[family]})"]
    if places := " or ".join(f"armRegionName eq '{region}'" for region in regions):
        parts.append(f"({places})")
    return " and ".join(parts)


@cache
def machine(sku: str) -> AzureMachine | None:
    """Return the hardware of a machine type; None: it is not in the table."""
    found = next((one for one in _TYPES if one.pattern.fullmatch(sku)), None)
    return None if found is None else AzureMachine(found.gpu, found.gpus, found.memory_gib)
