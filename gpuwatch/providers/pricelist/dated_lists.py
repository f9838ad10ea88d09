"""Prices that somebody copied from a page on a given day: for clouds without a machine-readable price list.

Each list is a file in `dated/`: its rows, its page, and the date of reading. A list that is older than
`STALE_AFTER_DAYS` is shown with a warning, as a historical price.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Final, Literal

import msgspec

from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.offer import Offer, OfferKind, OfferTerms, clean
from gpuwatch.ports.findings import Finding
from gpuwatch.ports.settings import Option
from gpuwatch.providers.toolkit.currency import ExchangeRate
from gpuwatch.providers.toolkit.post_processing import ParseResult, short_id

log = logging.getLogger(__name__)
PROVIDER: Final = "pricelist"
STALE_AFTER_DAYS: Final = 90
_FOLDER: Final = Path(__file__).parent / "dated"
_HOURS_PER_UNIT: Final = {"hour": 1.0, "second": 1.0 / 3600.0, "month": 730.0}
Rates = Callable[[str], ExchangeRate | None]


class DatedPrice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row. Prices are of the whole machine, in the list's unit of time; at least one of them is set."""

    gpu: str
    count: int = 1
    price: float | None = None
    spot_price: float | None = None
    memory_gib: float | None = None  # of one GPU; None: the card's
    ram_gib: float | None = None
    machine: str | None = None  # the vendor's name
    region: str | None = None
    country: str | None = None  # ISO 3166 alpha-2


class DatedList(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One list. `source` is the page with the prices, `read_on` the day on which they were copied."""

    name: str
    title: str
    source: str
    read_on: date
    prices: tuple[DatedPrice, ...]
    per: Literal["hour", "second", "month"] = "hour"
    currency: str = "USD"
    tax_included: bool | None = None
    note: str | None = None

    def age_days(self, today: date) -> int:
        """Days since it was read."""
        return (today - self.read_on).days

    def is_stale(self, today: date) -> bool:
        """Whether it needs a warning."""
        return self.age_days(today) > STALE_AFTER_DAYS


def load_dated_list(name: str) -> DatedList:
    """Load one list that ships with gpuwatch. Raises ValueError: never, in a release."""
    return msgspec.toml.decode((_FOLDER / f"{name}.toml").read_bytes(), type=DatedList)


class DatedLists:
    """The lists in the settings. Logs a warning once for each old list.

    Args:
        rates: returns dollars for a currency; None: unknown.
    """

    def __init__(self, option: Option, rates: Rates) -> None:
        names = option if isinstance(option, tuple) else ()
        self._lists = [load_dated_list(str(name)) for name in names]
        self._rates = rates
        self._warned: set[str] = set()

    def findings(self, today: date) -> Iterator[Finding]:
        """Return one prerequisite per list: an old one has outdated prices."""
        for dated_list in self._lists:
            text = (
                f"{dated_list.name}: read on {dated_list.read_on}, {count_text(dated_list.age_days(today), 'day')} ago"
            )
            if dated_list.is_stale(today):
                mend = f"its prices are outdated; update them from {dated_list.source}"
                yield Finding(area=PROVIDER, state="note", text=text, mend=mend)
            else:
                yield Finding(area=PROVIDER, state="ok", text=text)

    def read(self, now: datetime) -> ParseResult:
        """Return all offers, as of `now`: timezone-aware, UTC."""
        result = ParseResult(searches=0)
        for dated_list in self._lists:
            if dated_list.is_stale(now.date()) and dated_list.name not in self._warned:
                self._warned.add(dated_list.name)
                log.warning(
                    "%s: %s: %s: update them from %s",
                    PROVIDER,
                    dated_list.name,
                    _age_text(dated_list, now),
                    dated_list.source,
                )
            rate = self._rates(dated_list.currency)
            result.rows += len(dated_list.prices)
            if rate is None:
                result.add_skipped({"a price in a currency without a rate": len(dated_list.prices)}, dated_list.name)
                continue
            result.offers += offers_of(dated_list, rate, now)
        return result


def offers_of(dated_list: DatedList, rate: ExchangeRate, now: datetime) -> Iterator[Offer]:
    """Build the offers of one list, each with its age. Pure."""
    for row in dated_list.prices:
        for spot, price in ((False, row.price), (True, row.spot_price)):
            if price is not None:
                usd_hour = price / _HOURS_PER_UNIT[dated_list.per] * rate.usd
                yield _offer(dated_list, row, usd_hour, spot, rate, now)


def _offer(
    dated_list: DatedList, row: DatedPrice, usd_hour: float, spot: bool, rate: ExchangeRate, now: datetime
) -> Offer:
    gpu = catalog().resolve(row.gpu, row.memory_gib)
    card = catalog().get(gpu.name)
    memory_gib = row.memory_gib or (card.memory_gib if card else None)
    machine = short_id(*(part for part in (dated_list.name, row.machine or gpu.name, row.region) if part))
    notes = [_age_text(dated_list, now), dated_list.source, dated_list.note, gpu.reason, rate.note]
    return Offer(
        provider=PROVIDER,
        offer_id=short_id(machine, str(row.count), *(("spot",) if spot else ())),
        machine_id=machine,
        gpu=gpu.name,
        gpu_family=gpu.family,
        gpu_wire=row.gpu,
        gpu_known=gpu.known,
        gpu_count=row.count,
        gpu_memory_gib=memory_gib,
        spot=spot,
        quoted_usd_hour=usd_hour,
        quoted_disk_gb=0.0,
        disk_usd_gb_month=None,
        observed_at=now,
        region=row.region,
        country=row.country,
        ram_gib=row.ram_gib,
        kind=OfferKind.HISTORY if dated_list.is_stale(now.date()) else OfferKind.LISTED,
        terms=OfferTerms(
            seller=dated_list.name,
            instance_type=row.machine,
            fungible=True,
            prepaid=True if dated_list.per == "month" else None,
            tax_included=dated_list.tax_included,
            currency=rate.currency,
            usd_rate=None if rate.on is None else rate.usd,
            usd_rate_on=rate.on,
            note=clean("; ".join(note for note in notes if note)) or None,
        ),
    )


def _age_text(dated_list: DatedList, now: datetime) -> str:
    """Return its date of reading; a warning if that is long ago."""
    text = f"read on {dated_list.read_on}"
    return (
        f"{text}, {count_text(dated_list.age_days(now.date()), 'day')} ago" if dated_list.is_stale(now.date()) else text
    )
