"""Parses a source's answers into offers, by its declaration. Pure, except for the exchange rates.

A row says what it sells: the GPU, the number, the memory, whole cards or a fraction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from functools import cache
from hashlib import blake2s
from typing import Final, NamedTuple

from gpuwatch.domain.market.gpu_cards import gpu_fraction
from gpuwatch.domain.market.gpu_names import GpuName, catalog
from gpuwatch.domain.market.offer import Offer, OfferKind, OfferTerms, clean
from gpuwatch.errors import PayloadChanged
from gpuwatch.providers.pricelist.declaration import (
    DeclaredMachine,
    PriceSource,
    Row,
    field_matches,
    first_text,
    first_value,
    paths,
    rows_of,
    template_texts,
)
from gpuwatch.providers.toolkit.announced_end import is_ending
from gpuwatch.providers.toolkit.currency import ExchangeRate
from gpuwatch.providers.toolkit.list_prices import is_plausible, without_placeholders
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped
from gpuwatch.providers.toolkit.validation import number, usd_hour, whole

GIB: Final = {"GiB": 1.0, "GB": 1.0, "MiB": 1 / 1024, "B": 1 / 1024**3}  # "GB" of a GPU's memory means GiB
_MIN_WHOLE_CARD: Final = 0.9  # less than this share of a card's memory is a fraction of the card
_MEMORY_TOLERANCE: Final = 0.1  # tolerance for the stated memory; ECC and drivers use a part
_MAX_GIB: Final = 5_000.0  # of all GPUs of a machine; more is implausible
_MEMORY_WITH_UNIT: Final = re.compile(r"\s*(\d{1,4}(?:\.\d+)?) ?G(?:iB|B|i)?\s*")
_ANY: Final = DeclaredMachine(match=".*")


class OtherProduct(Exception):
    """The row is about something else."""


class Product(NamedTuple):
    """What a row sells."""

    machine: str | None
    gpu_wire: str
    gpu: GpuName
    gpus: int
    fraction: float
    memory_gib: float | None
    note: str | None
    price_scale: float


def parse_product(source: PriceSource, row: Row, result: ParseResult) -> Product:
    """Parse what a row sells. Raises OtherGoods, RowSkipped."""
    name = first_text(row, paths(source.fields.machine))
    declared, name_count = _find_declaration(source, name)
    if declared is None:
        declared = _handle_undeclared(source, name, row, result)
    spellings, gpu_count = _gpu_spellings(source, row, declared)
    if not spellings:
        raise OtherProduct if source.mixed else RowSkipped("a row without a GPU's name")
    memory_gib = _memory_gib(source, row)
    count = _count(source, row, (name_count, gpu_count, declared.count))
    fraction = min((gpu_fraction(one) for one in [*spellings, *([name] if name else [])]), default=1.0)
    if source.memory_for == "machine" and memory_gib is not None:
        card_gib = declared.card_gib or _card_gib(spellings)
        if card_gib is None and count is None:
            raise RowSkipped("a GPU that nobody knows, and no number of them")
        if count is None and card_gib is not None:
            count, fraction = _count_cards(memory_gib, card_gib)
        memory_gib /= count or 1
    if count is None:
        raise RowSkipped("no number of GPUs")
    if fraction < 1 and count != 1:
        raise RowSkipped("several parts of GPUs")
    gpu = _resolve(spellings, declared.card_gib or (memory_gib if fraction == 1 else None))
    return Product(
        clean(declared.type or name or "", 60) or None,
        spellings[0],
        gpu,
        count,
        fraction,
        _sold_memory_gib(gpu, memory_gib, declared, fraction),
        declared.note,
        declared.price_scale,
    )


def _memory_gib(source: PriceSource, row: Row) -> float | None:
    """Return the stated memory, of one GPU or of all; also from a text with its unit, "80Gi"."""
    value = first_value(row, paths(source.fields.memory))
    if isinstance(value, str) and (match := _MEMORY_WITH_UNIT.fullmatch(value[:20])):
        memory_gib = float(match[1])
    else:
        memory_gib = (number(value, 0.0) or 0.0) * GIB[source.memory_unit]
    return memory_gib if 0 < memory_gib < _MAX_GIB else None


def _find_declaration(source: PriceSource, name: str | None) -> tuple[DeclaredMachine | None, int | None]:
    """Return the declaration of a machine, and the GPU count in its name."""
    for machine in source.machines if name else ():
        match = _compile(machine.match).fullmatch(name or "")
        if match:
            return machine, whole(match.groupdict().get("count"), 1, 1000)
    return None, None


def _handle_undeclared(source: PriceSource, name: str | None, row: Row, result: ParseResult) -> DeclaredMachine:
    """Handle a machine that no pattern matches: another product, or one to report to the owner."""
    count = whole(first_value(row, paths(source.fields.count)))
    is_suspect = bool(name and source.suspects and _compile(source.suspects).search(name))
    if source.fields.gpu and not is_suspect:
        return _ANY
    if is_suspect or (not source.fields.gpu and count):
        result.drift[f"{source.name}: a machine that is not declared: {clean(name or '', 60)}"] = None
        raise RowSkipped("a machine that is not declared")
    raise OtherProduct if source.mixed else RowSkipped("a machine that is not declared")


def _gpu_spellings(source: PriceSource, row: Row, declared: DeclaredMachine) -> tuple[list[str], int | None]:
    """Return spellings of the GPU, the longest first, and the GPU count in them."""
    if declared.gpu is not None:
        return [declared.gpu], None
    spellings = list(template_texts(row, paths(source.fields.gpu)))
    if source.gpu_pattern is None or not spellings:
        return spellings, None
    match = _compile(source.gpu_pattern).fullmatch(spellings[0])
    if match is None:
        return spellings, None
    groups = match.groupdict()
    return [groups.get("gpu") or spellings[0]], whole(groups.get("count"), 1, 1000)


def _count(source: PriceSource, row: Row, stated_counts: tuple[int | None, ...]) -> int | None:
    """Return the GPU count, if all fields agree. Raises OtherGoods, RowSkipped."""
    value = first_value(row, paths(source.fields.count))
    field_count = whole(value, 0, 1000)
    if value is not None and field_count is None:
        raise RowSkipped("no number of GPUs")
    counts = {one for one in (*stated_counts, field_count or None) if one is not None}
    if len(counts) > 1:
        raise RowSkipped("two different numbers of GPUs")
    if counts:
        return counts.pop()
    if source.fields.count and source.count is None:
        raise OtherProduct if source.mixed else RowSkipped("no number of GPUs")
    return source.count


def _count_cards(memory_gib: float, card_gib: float) -> tuple[int, float]:
    """Return the number of cards and the fraction of one, by the total memory. Raises RowSkipped: not a multiple."""
    ratio = memory_gib / card_gib
    if ratio < _MIN_WHOLE_CARD:
        return 1, ratio
    if not 0.9 <= ratio / max(round(ratio), 1) <= 1.1 or ratio > 1000:
        raise RowSkipped("memory that is no number of cards")  # word-check: allow - a value of the JSON
    return round(ratio), 1.0


def _resolve(spellings: list[str], memory_gib: float | None) -> GpuName:
    """Resolve the first spelling in the catalogue, preferably with this memory; else the first spelling."""
    names = [catalog().resolve(spelling, memory_gib) for spelling in spellings]
    known_names = [name for name in names if name.known]
    return next((name for name in known_names if _has_such_memory(name, memory_gib)), [*known_names, *names][0])


def _has_such_memory(name: GpuName, memory_gib: float | None) -> bool:
    card = catalog().get(name.name)
    return card is None or memory_gib is None or card.memory_distance(memory_gib) <= memory_gib * _MEMORY_TOLERANCE


def _card_gib(spellings: list[str]) -> float | None:
    card = catalog().get(_resolve(spellings, None).name)
    return card.memory_gib if card else None


def _sold_memory_gib(
    gpu: GpuName, stated_gib: float | None, declared: DeclaredMachine, fraction: float
) -> float | None:
    if fraction < 1:
        return stated_gib
    if stated_gib is not None:
        return catalog().sold_memory_gib(gpu.name, stated_gib)
    card = catalog().get(gpu.name)
    return declared.card_gib or (card.memory_gib if card else None)


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


PROVIDER: Final = "pricelist"
_ID_LENGTH: Final = 64
_COUNTS: Final = (1, 2, 4, 8, 16)
_TRACKED_FIELDS: Final = ("spot_price", "gpu", "count", "memory", "machine", "host", "region", "free", "least_count")
Rates = Callable[[str], ExchangeRate | None]


class SourceReader:
    """Reads the answers of one source, page after page.

    Args:
        rates: returns dollars for a currency; None: unknown.
    """

    def __init__(self, source: PriceSource, rates: Rates, observed_at: datetime) -> None:
        self.result = ParseResult(searches=0)
        self._source = source
        self._rates = rates
        self._observed_at = observed_at
        self._gpu_rows = 0  # rows about GPUs, with a price
        self._missing_fields = {name for name in _TRACKED_FIELDS if getattr(source.fields, name)}
        self._terms: dict[object, OfferTerms] = {}

    def add_page(self, value: object, place: str = "") -> None:
        """Parse one answer. Raises PayloadChanged: there are no rows at the path."""
        rows = rows_of(value, self._source.rows, place)
        self.result.searches += 1
        self.result.rows += len(rows)
        for row in rows:
            with suppress(OtherProduct), self.result.counting_skips():
                self._row(row)

    def finish(self) -> ParseResult:
        """Return the result. Raises PayloadChanged: fewer rows about GPUs than the declaration requires."""
        if self._gpu_rows < self._source.least_rows:
            raise PayloadChanged(
                f"{self._gpu_rows} of {self.result.rows} rows are about GPUs, "
                f"usually at least {self._source.least_rows}"
            )
        for name in sorted(self._missing_fields) if self._gpu_rows else ():
            self.result.drift[f"{self._source.name}: field gone: {name}"] = None
        if self._source.kind == "listed":  # a bargain on a live market is not a placeholder
            self.result.offers = without_placeholders(self.result.offers, self.result)
        return self.result

    def _row(self, row: Row) -> None:
        source = self._source
        if not _is_selected(source, row) or any(is_ending(value, self._observed_at) for _, value in row):
            raise OtherProduct
        product = parse_product(source, row, self.result)
        free = whole(first_value(row, paths(source.fields.free)))
        prices = list(self._prices(row, product))
        self._gpu_rows += 1
        self._missing_fields -= {
            name for name in self._missing_fields if _has_value(row, paths(getattr(source.fields, name)))
        }
        if free == 0:
            raise OtherProduct  # nothing of it is available now
        for spot, usd, rate in prices:
            for count, price in _sellable_counts(source, row, product, usd, free):
                if not is_plausible(price, count * product.fraction):
                    raise RowSkipped("a placeholder: nobody would ask this price")
                self.result.offers.append(self._offer(row, product._replace(gpus=count), price, spot, rate, free))

    def _prices(self, row: Row, product: Product) -> Iterable[tuple[bool, float, ExchangeRate]]:
        """Return rental type and dollars an hour for the whole machine."""
        source, fields = self._source, self._source.fields
        currency = first_text(row, paths(fields.currency)) or source.currency
        rate = self._rates(currency.upper())
        if rate is None:
            raise RowSkipped("a price in a currency without a rate")
        is_spot = bool(source.spot_tiers) and (first_text(row, paths(fields.tier)) or "") in source.spot_tiers
        scale = source.price_scale * product.price_scale * rate.usd * (product.gpus if source.price_for == "gpu" else 1)
        price = _scaled(first_value(row, paths(fields.price)), scale)
        if price is None:
            raise RowSkipped("no price, or a placeholder")
        yield is_spot, price, rate
        spot_value = first_value(row, paths(fields.spot_price))
        if (spot_price := _scaled(spot_value, scale)) is not None:
            yield True, spot_price, rate
        elif spot_value and number(spot_value) != 0:
            self.result.skip("a spot price that is none, or a placeholder")

    def _offer(
        self, row: Row, product: Product, price: float, spot: bool, rate: ExchangeRate, free: int | None
    ) -> Offer:
        source, fields = self._source, self._source.fields
        region = first_text(row, paths(fields.region))
        machine_name = first_text(row, paths(fields.host)) or product.machine or product.gpu_wire
        name = "/".join(part for part in (source.name, machine_name, region) if part)
        ram = number(first_value(row, paths(fields.ram)), 0.0)
        return Offer(
            provider=PROVIDER,
            offer_id=_shorten_id(f"{name}/{product.gpus}{'/spot' if spot else ''}"),
            machine_id=_shorten_id(name),
            gpu=product.gpu.name,
            gpu_family=product.gpu.family,
            gpu_wire=product.gpu_wire,
            gpu_known=product.gpu.known,
            gpu_count=product.gpus,
            gpu_memory_gib=product.memory_gib,
            spot=spot,
            quoted_usd_hour=price,
            quoted_disk_gb=0.0,
            disk_usd_gb_month=None,
            observed_at=self._observed_at,
            host_id=first_text(row, paths(fields.host)),
            region=region,
            country=_country(first_text(row, paths(fields.country))),
            vcpu=number(first_value(row, paths(fields.vcpu)), 0.0, 1e5),
            ram_gib=None if ram is None else ram * GIB[source.ram_unit],
            kind=OfferKind.LIVE if source.kind == "live" and free else OfferKind.LISTED,
            terms=self._terms_of(product, rate),
        )

    def _terms_of(self, product: Product, rate: ExchangeRate) -> OfferTerms:
        """Share one value among all offers with the same terms."""
        source = self._source
        key = product.machine, product.fraction, product.note, product.gpu.reason, rate
        if key not in self._terms:
            notes = [source.note, product.note, product.gpu.reason, rate.note]
            self._terms[key] = OfferTerms(
                seller=source.seller or source.name,
                instance_type=product.machine,
                gpu_fraction=product.fraction,
                tax_included=source.tax_included,
                min_billing_s=source.min_billing_s,
                currency=rate.currency,
                usd_rate=None if rate.on is None else rate.usd,
                usd_rate_on=rate.on,
                note=clean("; ".join(note for note in notes if note)) or None,
            )
        return self._terms[key]


def _scaled(price: object, scale: float) -> float | None:
    """Return the price in US dollars an hour; None: no plausible one."""
    return usd_hour((number(price) or 0.0) * scale)


def _is_selected(source: PriceSource, row: Row) -> bool:
    is_kept = all(field_matches(row, path, values) for path, values in source.keep.items())
    return is_kept and not any(field_matches(row, path, values) for path, values in source.drop.items())


def _sellable_counts(
    source: PriceSource, row: Row, product: Product, usd: float, free: int | None
) -> Iterable[tuple[int, float]]:
    """Return the GPU counts that are available of this machine, each with its price."""
    min_count = whole(first_value(row, paths(source.fields.least_count)), 1, 1000)
    max_count = product.gpus if free is None else min(free, product.gpus)
    if not source.fields.least_count or min_count is None or min_count >= product.gpus:
        # sold only as a whole
        if not source.fields.least_count or max_count == product.gpus:
            yield product.gpus, usd
        return
    for count in sorted({min_count, max_count, *(one for one in _COUNTS if min_count <= one <= max_count)}):
        if min_count <= count <= max_count:
            yield count, usd * count / product.gpus


def _has_value(row: Row, templates: tuple[str, ...]) -> bool:
    return first_value(row, templates) is not None or first_text(row, templates) is not None


def _country(code: str | None) -> str | None:
    return code.upper() if code and len(code) == 2 and code.isascii() and code.isalpha() else None


def _shorten_id(name: str) -> str:
    """Return a name that fits the store's column; a long one keeps its start and gets a digest."""
    name = clean(name, 400)
    if len(name) <= _ID_LENGTH:
        return name
    return f"{name[:47]}~{blake2s(name.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"
