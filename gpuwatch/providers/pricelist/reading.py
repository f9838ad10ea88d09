"""From a source's answers to offers, as its declaration says. Pure, but for the rates of exchange that it is given."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cache
from hashlib import blake2s
from typing import Final, NamedTuple

from gpuwatch.adapting.answering import Seen
from gpuwatch.adapting.currency import Rate
from gpuwatch.adapting.listed import is_plausible, without_placeholders
from gpuwatch.adapting.untrusted import number, whole
from gpuwatch.errors import PayloadChanged
from gpuwatch.market.gpu_names import GpuName, catalog
from gpuwatch.market.offer import Offer, OfferKind, Terms
from gpuwatch.market.pricing import MAX_USD_HOUR
from gpuwatch.market.slices import gpu_fraction
from gpuwatch.market.text import clean
from gpuwatch.providers.pricelist.declared import Machine, Source, paths
from gpuwatch.providers.pricelist.paths import Row, first, rows_of, says, text, texts

PROVIDER: Final = "pricelist"
_GIB: Final = {"GiB": 1.0, "GB": 1.0, "MiB": 1 / 1024, "B": 1 / 1024**3}  # "GB" of a GPU's memory means GiB
_WHOLE_CARD: Final = 0.9  # less memory than that of a card is a part of it
_MOST_GIB: Final = 5_000.0  # of all GPUs of a machine; more is a fault
_ID_LENGTH: Final = 64
_COUNTS: Final = (1, 2, 4, 8, 16)
_ANY: Final = Machine(match=".*")
Rates = Callable[[str], Rate | None]


class _Skipped(Exception):
    """This row is no offer, for a reason that is counted."""


class _LeftOut(Exception):
    """This row is about something else."""


class _Goods(NamedTuple):
    """What a row sells."""

    machine: str | None
    wire: str
    gpu: GpuName
    gpus: int
    fraction: float
    memory_gib: float | None
    note: str | None
    scale: float


class Reader:
    """Reads the answers of one source, page after page.

    Args:
        rates: dollars for a currency; None: nobody tells.
    """

    def __init__(self, source: Source, rates: Rates, observed_at: datetime) -> None:
        self.seen = Seen(searches=0)
        self._source = source
        self._rates = rates
        self._observed_at = observed_at
        self._told = 0  # rows about GPUs, with a price
        self._terms: dict[object, Terms] = {}

    def page(self, value: object, place: str = "") -> None:
        """One answer. Raises PayloadChanged: there are no rows where they should be."""
        rows = rows_of(value, self._source.rows, place)
        self.seen.searches += 1
        self.seen.rows += len(rows)
        for row in rows:
            try:
                self._row(row)
            except _LeftOut:
                continue
            except _Skipped as skipped:
                self.seen.skip(str(skipped))

    def done(self) -> Seen:
        """All that was read. Raises PayloadChanged: fewer rows about GPUs than the declaration believes."""
        if self._told < self._source.least_rows:
            raise PayloadChanged(
                f"{self._told} of {self.seen.rows} rows tell of GPUs, and {self._source.least_rows} at least are usual"
            )
        if self._source.kind == "listed":  # on a live market a bargain is none
            self.seen.offers = without_placeholders(self.seen.offers, self.seen)
        return self.seen

    def _row(self, row: Row) -> None:
        source = self._source
        if not _is_meant(source, row):
            raise _LeftOut
        goods = _goods(source, row, self.seen)
        free = whole(first(row, paths(source.fields.free)))
        prices = list(self._prices(row, goods))
        self._told += 1
        if free == 0:
            raise _LeftOut  # nothing of it can be had now
        for spot, usd, rate in prices:
            for count, price in _parts(source, row, goods, usd, free):
                if not is_plausible(price, count * goods.fraction):
                    raise _Skipped("a placeholder: nobody would ask this price")
                self.seen.offers.append(self._offer(row, goods._replace(gpus=count), price, spot, rate, free))

    def _prices(self, row: Row, goods: _Goods) -> Iterable[tuple[bool, float, Rate]]:
        """Rental type and dollars an hour for the whole machine."""
        source, fields = self._source, self._source.fields
        currency = text(row, paths(fields.currency)) or source.currency
        rate = self._rates(currency.upper())
        if rate is None:
            raise _Skipped("a price in a currency without a rate")
        is_spot = bool(source.spot_tiers) and (text(row, paths(fields.tier)) or "") in source.spot_tiers
        scale = source.price_scale * goods.scale * rate.usd * (goods.gpus if source.price_for == "gpu" else 1)
        price = number(first(row, paths(fields.price)), 0.0)
        if not price or price * scale > MAX_USD_HOUR:
            raise _Skipped("no price, or a placeholder")
        yield is_spot, price * scale, rate
        spot_price = number(first(row, paths(fields.spot_price)), 0.0)
        if spot_price and spot_price * scale <= MAX_USD_HOUR:
            yield True, spot_price * scale, rate

    def _offer(self, row: Row, goods: _Goods, price: float, spot: bool, rate: Rate, free: int | None) -> Offer:
        source, fields = self._source, self._source.fields
        region = text(row, paths(fields.region))
        thing = text(row, paths(fields.host)) or goods.machine or goods.wire
        name = "/".join(part for part in (source.name, thing, region) if part)
        ram = number(first(row, paths(fields.ram)), 0.0)
        return Offer(
            provider=PROVIDER,
            offer_id=_short(f"{name}/{goods.gpus}{'/spot' if spot else ''}"),
            machine_id=_short(name),
            gpu=goods.gpu.name,
            gpu_family=goods.gpu.family,
            gpu_wire=goods.wire,
            gpu_known=goods.gpu.known,
            gpu_count=goods.gpus,
            gpu_memory_gib=goods.memory_gib,
            spot=spot,
            quoted_usd_hour=price,
            quoted_disk_gb=0.0,
            disk_usd_gb_month=None,
            observed_at=self._observed_at,
            host_id=text(row, paths(fields.host)),
            region=region,
            country=_country(text(row, paths(fields.country))),
            vcpu=number(first(row, paths(fields.vcpu)), 0.0, 1e5),
            ram_gib=None if ram is None else ram * _GIB[source.ram_unit],
            kind=OfferKind.LIVE if source.kind == "live" and free else OfferKind.LISTED,
            terms=self._terms_of(goods, rate),
        )

    def _terms_of(self, goods: _Goods, rate: Rate) -> Terms:
        """Shared between offers that say the same."""
        source = self._source
        key = goods.machine, goods.fraction, goods.note, goods.gpu.reason, rate
        if key not in self._terms:
            notes = [source.note, goods.note, goods.gpu.reason, rate.note]
            self._terms[key] = Terms(
                seller=source.seller or source.name,
                instance_type=goods.machine,
                gpu_fraction=goods.fraction,
                tax_included=source.tax_included,
                min_billing_s=source.min_billing_s,
                currency=rate.currency,
                usd_rate=None if rate.on is None else rate.usd,
                usd_rate_on=rate.on,
                note=clean("; ".join(note for note in notes if note)) or None,
            )
        return self._terms[key]


def _is_meant(source: Source, row: Row) -> bool:
    kept = all(says(row, path, words) for path, words in source.keep.items())
    return kept and not any(says(row, path, words) for path, words in source.drop.items())


def _goods(source: Source, row: Row, seen: Seen) -> _Goods:
    """What a row sells. Raises _LeftOut, _Skipped."""
    name = text(row, paths(source.fields.machine))
    declared, said = _declared(source, name)
    if declared is None:
        declared = _undeclared(source, name, row, seen)
    spellings, gpu_said = _spellings(source, row, declared)
    if not spellings:
        raise _LeftOut if source.mixed else _Skipped("a row without a GPU's name")
    memory_gib = _memory_gib(source, row)
    count = _count(source, row, (said, gpu_said, declared.count))
    fraction = min((gpu_fraction(one) for one in [*spellings, *([name] if name else [])]), default=1.0)
    if source.memory_for == "machine" and memory_gib is not None:
        card_gib = declared.card_gib or _card_gib(spellings)
        if card_gib is None and count is None:
            raise _Skipped("no number of GPUs")
        if count is None and card_gib is not None:
            count, fraction = _cards(memory_gib, card_gib)
        memory_gib /= count or 1
    if count is None:
        raise _Skipped("no number of GPUs")
    if fraction < 1 and count != 1:
        raise _Skipped("several parts of GPUs")
    gpu = _resolved(spellings, declared.card_gib or (memory_gib if fraction == 1 else None))
    return _Goods(
        clean(declared.type or name or "", 60) or None,
        spellings[0],
        gpu,
        count,
        fraction,
        _sold_gib(gpu, memory_gib, declared, fraction),
        declared.note,
        declared.price_scale,
    )


def _memory_gib(source: Source, row: Row) -> float | None:
    memory = number(first(row, paths(source.fields.memory)), 0.0, 1e15)
    memory_gib = (memory or 0.0) * _GIB[source.memory_unit]
    return memory_gib if 0 < memory_gib < _MOST_GIB else None


def _declared(source: Source, name: str | None) -> tuple[Machine | None, int | None]:
    """What is declared of a machine, and the number of GPUs in its name."""
    for machine in source.machines if name else ():
        found = _compiled(machine.match).fullmatch(name or "")
        if found:
            return machine, whole(found.groupdict().get("count"), 1, 1000)
    return None, None


def _undeclared(source: Source, name: str | None, row: Row, seen: Seen) -> Machine:
    """A machine that no pattern matches: another one, or one that a person must be told of."""
    count = whole(first(row, paths(source.fields.count)))
    is_suspect = bool(name and source.suspects and _compiled(source.suspects).search(name))
    if source.fields.gpu and not is_suspect:
        return _ANY
    if is_suspect or (not source.fields.gpu and count):
        seen.drift[f"{source.name}: a machine that is not declared: {clean(name or '', 60)}"] = None
        raise _Skipped("a machine that is not declared")
    raise _LeftOut if source.mixed else _Skipped("a machine that is not declared")


def _spellings(source: Source, row: Row, declared: Machine) -> tuple[list[str], int | None]:
    """Spellings of the GPU, the fullest first, and the number of GPUs that stands in them."""
    if declared.gpu is not None:
        return [declared.gpu], None
    told = list(texts(row, paths(source.fields.gpu)))
    if source.gpu_pattern is None or not told:
        return told, None
    found = _compiled(source.gpu_pattern).fullmatch(told[0])
    if found is None:
        return told, None
    groups = found.groupdict()
    return [groups.get("gpu") or told[0]], whole(groups.get("count"), 1, 1000)


def _count(source: Source, row: Row, said: tuple[int | None, ...]) -> int | None:
    """The number of GPUs, if all who tell it agree. Raises _LeftOut, _Skipped."""
    value = first(row, paths(source.fields.count))
    in_field = whole(value, 0, 1000)
    if value is not None and in_field is None:
        raise _Skipped("no number of GPUs")
    told = {one for one in (*said, in_field or None) if one is not None}
    if len(told) > 1:
        raise _Skipped("two different numbers of GPUs")
    if told:
        return told.pop()
    if source.fields.count and source.count is None:
        raise _LeftOut if source.mixed else _Skipped("no number of GPUs")
    return source.count


def _cards(memory_gib: float, card_gib: float) -> tuple[int, float]:
    """Number of cards and part of one, by the memory of all. Raises _Skipped: it is no multiple."""
    ratio = memory_gib / card_gib
    if ratio < _WHOLE_CARD:
        return 1, ratio
    if not 0.85 <= ratio / max(round(ratio), 1) <= 1.15 or ratio > 1000:
        raise _Skipped("memory that is no number of cards")
    return round(ratio), 1.0


def _parts(source: Source, row: Row, goods: _Goods, usd: float, free: int | None) -> Iterable[tuple[int, float]]:
    """Numbers of GPUs that can be had of this machine, each with its price."""
    least = whole(first(row, paths(source.fields.least_count)), 1, 1000)
    most = goods.gpus if free is None else min(free, goods.gpus)
    if not source.fields.least_count or least is None or least >= goods.gpus:
        # whole or not at all: machines are counted where nothing is sold in parts
        if not source.fields.least_count or most == goods.gpus:
            yield goods.gpus, usd
        return
    for count in sorted({least, most, *(one for one in _COUNTS if least <= one <= most)}):
        if least <= count <= most:
            yield count, usd * count / goods.gpus


def _resolved(spellings: list[str], memory_gib: float | None) -> GpuName:
    """By the first spelling that the catalogue knows; else what the first one is."""
    names = [catalog().resolve(spelling, memory_gib) for spelling in spellings]
    return next((name for name in names if name.known), names[0])


def _card_gib(spellings: list[str]) -> float | None:
    card = catalog().get(_resolved(spellings, None).name)
    return card.memory_gib if card else None


def _sold_gib(gpu: GpuName, told_gib: float | None, declared: Machine, fraction: float) -> float | None:
    if fraction < 1:
        return told_gib
    if told_gib is not None:
        return catalog().sold_memory_gib(gpu.name, told_gib)
    card = catalog().get(gpu.name)
    return declared.card_gib or (card.memory_gib if card else None)


def _country(told: str | None) -> str | None:
    return told.upper() if told and len(told) == 2 and told.isascii() and told.isalpha() else None


def _short(name: str) -> str:
    """A name that fits the store's column; a long one keeps its beginning and a digest of all of it."""
    name = clean(name, 400)
    if len(name) <= _ID_LENGTH:
        return name
    return f"{name[:47]}~{blake2s(name.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
