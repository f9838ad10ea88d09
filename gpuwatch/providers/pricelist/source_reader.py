"""Parses a source's answers into offers, by its declaration. Pure, except for the exchange rates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from hashlib import blake2s
from typing import Final

from gpuwatch.domain.market.offer import Offer, OfferKind, OfferTerms, clean
from gpuwatch.errors import PayloadChanged
from gpuwatch.providers.pricelist.declaration import PriceSource, paths
from gpuwatch.providers.pricelist.paths import Row, field_matches, first_text, first_value, rows_of
from gpuwatch.providers.pricelist.products import GIB, OtherProduct, Product, parse_product
from gpuwatch.providers.toolkit.announced_end import is_ending
from gpuwatch.providers.toolkit.currency import ExchangeRate
from gpuwatch.providers.toolkit.list_prices import is_plausible, without_placeholders
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped
from gpuwatch.providers.toolkit.validation import number, usd_hour, whole

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
