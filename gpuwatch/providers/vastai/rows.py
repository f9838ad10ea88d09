"""The rows of vast.ai's search answer: their types, which are of a query's GPUs, and the offer of each. Pure.

A server may ignore the GPUs of a search and send its whole market: the rows of others need not become offers. A row
that is no offer is skipped with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import lru_cache
from math import isfinite
from typing import Any, Final

import msgspec

from gpuwatch.domain.market.gpu_names import NO_GPU_NAME, GpuName, catalog, fold
from gpuwatch.domain.market.money import HOURS_A_MONTH, MAX_USD_HOUR
from gpuwatch.domain.market.offer import NO_GPU, PLAIN_TERMS, Offer, OfferTerms, Verification, clean_word
from gpuwatch.providers.toolkit.post_processing import RowSkipped
from gpuwatch.providers.toolkit.validation import UNREADABLE, time_from_unix

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
    disk_bw: float | None = None
    disk_space: float | None = None
    dlperf: float | None = None
    dph_total: float
    driver_version: str | None = None
    end_date: float | None = None
    geolocation: str | None = None
    gpu_name: str | None = None  # of a machine without GPUs, null
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


PROVIDER: Final = "vastai"
_MIB: Final = 1024.0
_MIN_USD_HOUR: Final = 5e-7  # less rounds to zero micro-dollars
_MAX_GPUS: Final = 1024
_MAX_DISK_GB: Final = 1e6
_COUNTRY_LETTERS: Final = 2
_MAX_SHARED_VALUES: Final = 5_000
_VERIFICATIONS: Final = {word.value: word for word in Verification}


class _SharedValues(dict[float | None, float | None]):
    """Share one object for a value that many offers have: ten thousand copies would take 24 bytes each."""

    def __missing__(self, value: float | None) -> float | None:
        if len(self) < _MAX_SHARED_VALUES:
            self[value] = value
        return value


_shared_values: Final = _SharedValues()


class ParsedRows(msgspec.Struct, gc=False):
    """The content of some rows. The offers are in the order of the rows."""

    offers: list[Offer]
    skipped: list[RowSkipped]  # one for each row that is not an offer
    other_gpu_rows: int  # of GPUs outside the query; they are not parsed further


class RowReader:
    """Turns the rows of one answer into offers.

    Args:
        spot: whether the rows answer a search for bids; the rows do not say.
        disk_gb: the disk size of the quote.
        observed_at: when the answer arrived.
        gpus: canonical names of the query; empty: all. Rows of other GPUs are skipped early. `NO_GPU` alone: the rows
            without GPUs, which are no offers otherwise.
    """

    def __init__(self, spot: bool, disk_gb: float, observed_at: datetime, gpus: Sequence[str] = ()) -> None:
        self._spot = spot
        self._disk_gb = disk_gb
        self._disk_tolerance_gb = 1e-6 * max(1.0, disk_gb)
        self._observed_at = observed_at
        self._resolve: Callable[[str, float | None], GpuName] = catalog().resolve
        self._wants_no_gpu = tuple(gpus) == (NO_GPU,)
        self._gpu_filter = gpu_filter_of(tuple(gpus)) if gpus else None

    def parse(self, rows: Sequence[VastRow]) -> ParsedRows:
        """Turn rows into offers."""
        gpu_filter = self._gpu_filter
        if self._wants_no_gpu:
            wanted: Sequence[VastRow] = [row for row in rows if not row.num_gpus]
        elif gpu_filter is not None:  # a row without a name is skipped with its reason
            wanted = [row for row in rows if row.gpu_name is None or gpu_filter[row.gpu_name]]
        else:
            wanted = rows
        parsed = ParsedRows([], [], other_gpu_rows=len(rows) - len(wanted))
        for row in wanted:
            try:
                parsed.offers.append(self._build(row))
            except RowSkipped as skipped:
                parsed.skipped.append(skipped)
        return parsed

    def _build(self, row: VastRow) -> Offer:
        offer_id, wire_name = self._check(row)
        memory = _shared_values[row.gpu_ram / _MIB if row.gpu_ram and 0 < row.gpu_ram < 1e9 else None]
        gpu = NO_GPU_NAME if self._wants_no_gpu else self._resolve(wire_name, memory)
        if gpu.name == NO_GPU and row.num_gpus:
            raise RowSkipped("gpu_name: none, with GPUs")
        region, country = parse_place(row.geolocation)
        verification = row.verification
        return Offer(
            provider=PROVIDER,
            offer_id=offer_id,
            machine_id=_identifier(row.machine_id),
            gpu=gpu.name,
            gpu_family=gpu.family,
            gpu_wire=wire_name,
            gpu_known=gpu.known,
            gpu_count=row.num_gpus,
            gpu_memory_gib=memory,
            spot=self._spot,
            quoted_usd_hour=_bid_quote(row) if self._spot else row.dph_total,
            quoted_disk_gb=self._quoted_disk_gb(row),
            disk_usd_gb_month=row.storage_cost,
            observed_at=self._observed_at,
            min_bid_usd_hour=row.min_bid if row.min_bid and 0 < row.min_bid <= MAX_USD_HOUR else None,
            host_id=_identifier(row.host_id),
            region=region,
            country=country,
            reliability=_in_range(row.reliability if row.reliability2 is None else row.reliability2, 1.0),
            verification=_VERIFICATIONS.get(verification) if verification else None,
            datacenter=None if row.hosting_type is None else row.hosting_type == 1,
            rentable=row.rentable is not False,
            vcpu=_shared_values[_positive(row.cpu_cores_effective)],
            ram_gib=_shared_values[row.cpu_ram / _MIB if _positive(row.cpu_ram) and row.cpu_ram else None],
            cpu_arch=clean_word(row.cpu_arch) or None if row.cpu_arch else None,
            disk_free_gb=_in_range(row.disk_space, 1e9),
            disk_mb_s=_positive(row.disk_bw),
            download_mbps=_positive(row.inet_down),
            upload_mbps=_positive(row.inet_up),
            download_usd_gb=_shared_values[_in_range(row.inet_down_cost, MAX_USD_HOUR)],
            upload_usd_gb=_shared_values[_in_range(row.inet_up_cost, MAX_USD_HOUR)],
            cuda_max=_shared_values[_positive(row.cuda_max_good)],
            driver=clean_word(row.driver_version) or None if row.driver_version else None,
            ports=row.direct_port_count if row.direct_port_count is not None and row.direct_port_count >= 0 else None,
            static_ip=row.static_ip,
            nvlink_gbps=_positive(row.bw_nvlink),
            available_until=time_from_unix(row.end_date),
            dlperf=_positive(row.dlperf),
            terms=PLAIN_TERMS if gpu.certain else _ambiguous_terms(gpu.reason),
        )

    def _check(self, row: VastRow) -> tuple[str, str]:
        """Return its id and its GPU name. Raises RowSkipped: it is not an offer."""
        has_count = 1 <= row.num_gpus <= _MAX_GPUS or (self._wants_no_gpu and row.num_gpus == 0)
        if not _MIN_USD_HOUR <= row.dph_total <= MAX_USD_HOUR or not has_count or not row.id:
            raise RowSkipped(_skip_reason(row))
        if row.gpu_name is None and not self._wants_no_gpu:
            raise RowSkipped("gpu_name: missing")
        wire_name = NO_GPU if self._wants_no_gpu else clean_word(row.gpu_name or "")
        if not wire_name:
            raise RowSkipped("gpu_name: empty")
        offer_id = _identifier(row.id)
        if offer_id is None:
            raise RowSkipped("id: no identifier")
        if self._spot and row.min_bid is not None and not 0 < row.min_bid <= MAX_USD_HOUR:
            raise RowSkipped("min_bid: out of range")
        if row.storage_cost is not None and not 0 <= row.storage_cost <= MAX_USD_HOUR:
            raise RowSkipped("storage_cost: out of range")
        if row.storage_total_cost is not None and not 0 <= row.storage_total_cost <= MAX_USD_HOUR:
            raise RowSkipped("storage_total_cost: out of range")
        return offer_id, wire_name

    def _quoted_disk_gb(self, row: VastRow) -> float:
        """Return the disk of the quote: from its price if the row has both prices, else the disk of the query."""
        rate, total = row.storage_cost, row.storage_total_cost
        if not rate or total is None:
            return self._disk_gb
        disk_gb = total * HOURS_A_MONTH / rate
        if abs(disk_gb - self._disk_gb) <= self._disk_tolerance_gb or disk_gb > _MAX_DISK_GB:
            return self._disk_gb
        rounded = round(disk_gb)
        return float(rounded) if abs(disk_gb - rounded) <= 1e-6 * max(1.0, disk_gb) else disk_gb


@lru_cache(maxsize=256)
def _ambiguous_terms(reason: str | None) -> OfferTerms:
    """Share one value among all offers of a name that several cards have, such as "Tesla V100"."""
    return OfferTerms(note=reason)


def parse_place(geolocation: str | None) -> tuple[str | None, str | None]:
    """Return region and ISO country of "Washington, US"; either may be missing: ", US", "Norway"."""
    if not geolocation:
        return None, None
    found = _places.get(geolocation)
    if found is None:
        if len(_places) >= _PLACES_MAX:
            _places.clear()
        found = _places[geolocation[:_PLACE_LENGTH]] = _split_place(clean_word(geolocation))
    return found


_PLACES_MAX: Final = 5_000
_PLACE_LENGTH: Final = 300
_places: dict[str, tuple[str | None, str | None]] = {}


def _split_place(text: str) -> tuple[str | None, str | None]:
    region, comma, after = text.rpartition(",")
    code = after.strip()
    if len(code) == _COUNTRY_LETTERS and code.isascii() and code.isalpha() and (comma or code.isupper()):
        return region.strip() or None, code.upper()
    return text or None, None


def _skip_reason(row: VastRow) -> str:
    if not isfinite(row.dph_total):
        return "dph_total: not a finite number"
    if row.dph_total < _MIN_USD_HOUR:
        return "dph_total: zero or less"
    if row.dph_total > MAX_USD_HOUR:
        return "dph_total: too large"
    return "id: zero or empty" if not row.id else "num_gpus: out of range"


def _bid_quote(row: VastRow) -> float:
    """Return the cost of a won bid: at least the minimum bid and the disk, even if `dph_total` is less."""
    if row.min_bid is None:
        return row.dph_total
    return max(row.dph_total, row.min_bid + (row.storage_total_cost or 0.0))


def _identifier(value: int | str | None) -> str | None:
    """Return an id as text; None: it is empty, or too long for the store's 64 characters."""
    found = str(value) if isinstance(value, int) else clean_word(value or "")
    return found if value and 0 < len(found) <= 64 else None


def _positive(value: float | None) -> float | None:
    """Return None for 0, which means "not measured" at vast.ai, and for absurd values."""
    return value if value and 0 < value < 1e12 else None


def _in_range(value: float | None, most: float) -> float | None:
    return value if value is not None and 0 <= value <= most else None
