"""The rows of vast.ai's search answer as they arrive: their types, and which of them are of a query's GPUs. Pure.

A server may ignore the GPUs of a search and send its whole market: the rows of others need not become offers.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Any, Final

import msgspec

from gpuwatch.domain.market.gpu_names import catalog, fold
from gpuwatch.domain.market.offer import clean_word
from gpuwatch.providers.toolkit.post_processing import RowSkipped
from gpuwatch.providers.toolkit.validation import UNREADABLE

_SPELLINGS_MAX: Final = 2_000  # of GPUs: a marketplace could send any number, of any length
_SPELLING_LENGTH: Final = 200


class VastRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The fields that gpuwatch reads, with their types of 2026. All other fields are ignored.

    Their order is vast.ai's: the decoder expects the next one next.
    """

    id: int | str
    bw_nvlink: float | None = None
    cpu_arch: str | None = None
    cpu_cores_effective: float | None = None
    cpu_ram: float | None = None
    cuda_max_good: float | None = None
    direct_port_count: int | None = None
    disk_space: float | None = None
    dlperf: float | None = None
    dph_total: float
    driver_version: str | None = None
    end_date: float | None = None
    geolocation: str | None = None
    gpu_name: str
    gpu_ram: float | None = None
    host_id: int | str | None = None
    hosting_type: int | None = None
    inet_down: float | None = None
    inet_down_cost: float | None = None
    inet_up: float | None = None
    inet_up_cost: float | None = None
    machine_id: int | str | None = None
    min_bid: float | None = None
    num_gpus: int
    reliability: float | None = None  # the same as `reliability2`, in answers that lack the other
    rentable: bool | None = None
    static_ip: bool | None = None
    storage_cost: float | None = None
    storage_total_cost: float | None = None
    verification: str | None = None
    reliability2: float | None = None


# A wrong value here makes the price or the machine uncertain, so the row is skipped. A wrong value in any other field
# makes that field unknown.
_ESSENTIAL: Final = frozenset(
    {"id", "gpu_name", "num_gpus", "dph_total", "storage_cost", "storage_total_cost", "rentable"}
)
_fields: Final = msgspec.structs.fields(VastRow)


def row_of(raw: bytes | msgspec.Raw) -> VastRow:
    """Decode one row; wrong values of optional fields become None.

    Raises:
        RowSkipped: it is not an object, or an essential field is missing or has a wrong type.
    """
    try:
        value = msgspec.json.decode(raw)
    except UNREADABLE:
        value = _decode_leniently(bytes(raw))
    if not isinstance(value, dict):
        raise RowSkipped("row: not an object")
    return VastRow(**{field.name: _field(field, value) for field in _fields})


def _decode_leniently(raw: bytes) -> object:
    """Decode by the standard library, which accepts what msgspec rejects: NaN, 1e999, lone surrogates."""
    try:
        import json  # noqa: PLC0415 - only for odd answers

        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise RowSkipped("row: not JSON") from error


def _field(field: msgspec.structs.FieldInfo, value: dict[str, Any]) -> Any:
    name = field.name
    if field.required and value.get(name) is None:
        raise RowSkipped(f"{name}: missing")
    found = value.get(name)
    if found is None:
        return None
    if isinstance(found, float) and found.is_integer() and field.type in (int, int | None):
        found = int(found)
    try:
        return msgspec.convert(found, field.type, strict=True)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # UnicodeEncodeError: a lone surrogate
        if name in _ESSENTIAL:
            raise RowSkipped(f"{name}: wrong type") from error
        return None


class GpuFilter(dict[str, bool]):
    """Whether a row may be one of these GPUs, by its spelling; its memory decides later."""

    def __init__(self, gpus: Collection[str]) -> None:
        super().__init__()
        self._gpus = frozenset(gpus)
        self._spellings = frozenset(fold(name) for gpu in gpus for name in catalog().spellings(gpu))

    def __missing__(self, spelling: str) -> bool:
        wanted = fold(spelling) in self._spellings or catalog().resolve(clean_word(spelling), None).name in self._gpus
        if len(self) < _SPELLINGS_MAX and len(spelling) <= _SPELLING_LENGTH:
            self[spelling] = wanted
        return wanted


gpu_filter_of: Final = lru_cache(maxsize=256)(GpuFilter)  # the same few queries repeat
