"""Recorded prices: from the store, or from a file of price rows."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from gpuwatch import providers
from gpuwatch.bootstrap import open_history, open_store_read_only
from gpuwatch.bootstrap.rules import all_commissions
from gpuwatch.domain.history.price_series import (
    gpu_pricer,
    series_of,
)
from gpuwatch.domain.history.row_conversion import history_of_columns
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.money import REFERENCE_DISK_GB
from gpuwatch.domain.market.offer import ListedOffer, OfferKind, Verification, clean
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.errors import ResourceNotFound
from gpuwatch.storage.history.imports.price_file_rows import read_columns
from gpuwatch.storage.history.recording.price_sources import matches_source

if TYPE_CHECKING:
    from gpuwatch.domain.history.market_history import MarketFilter, MarketHistory, OfferInterval
    from gpuwatch.domain.history.price_series import PriceSeries, gpu_pricer
    from gpuwatch.settings import Settings

log = logging.getLogger(__name__)


def gpu_names_of(text: str, seen: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """The canonical GPU names for a text. A name that only the store has recorded is its own canonical name.

    Raises:
        UsageError: no GPU has this name.
    """
    names = catalog().wanted(text) or tuple(name for name in catalog().unlisted(text) if name in seen)
    if not names and text not in seen:
        near = " or ".join(catalog().suggest(text))
        raise ResourceNotFound(f"unknown GPU {text!r}" + (f"; did you mean {near}?" if near else ""))
    return names or (text,)


def gpu_names_in(market_history: MarketHistory) -> frozenset[str]:
    """Every GPU name and family in a history."""
    return frozenset(name for listing in market_history.listings for name in (listing.gpu, listing.gpu_family))


def known_gpu_names_of(settings: Settings, text: str, data: Path | None) -> tuple[str, ...]:
    """The canonical names; without a file, names recorded in the store are accepted, too. Raises UsageError."""
    if data is not None:
        return gpu_names_of(text, frozenset(catalog().unlisted(text)))
    from gpuwatch.storage.history.queries.history_queries import known_gpu_names

    with open_store_read_only(settings) as database:
        return gpu_names_of(text, frozenset(known_gpu_names(database)))


def load_prices(
    settings: Settings, scope: MarketFilter, since: datetime, until: datetime, data: Path | None
) -> MarketHistory:
    """Recorded prices of a part of the market in a period.

    Args:
        data: a file of price rows, read whole and cut to the period; None: the store.

    Raises:
        UsageError: the file cannot be used.
        StoreError: the store cannot be read.
    """
    if data is None:
        from gpuwatch.storage.history.queries.stored_prices import read_market_history

        with open_history(settings, scope, since, until) as database:
            return read_market_history(database, scope, since, until)
    return _file_history(data, scope, since, until)


@contextmanager
def gc_paused() -> Iterator[None]:
    """Run without the garbage collector, which would repeatedly scan half a million small values that stay alive."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class GpuPrices(msgspec.Struct, frozen=True):
    """Recorded prices of one GPU name: several questions about them need one reading."""

    scope: MarketFilter  # with the GPUs of that name
    history: MarketHistory


def load_gpu_prices(
    settings: Settings, gpu: str, scope: MarketFilter, since: datetime, until: datetime, data: Path | None
) -> GpuPrices:
    """The recorded prices of a GPU. Arguments and errors as `load_prices`; also UsageError: no GPU has this name."""
    scope = replace(scope, gpus=known_gpu_names_of(settings, gpu, data))
    return GpuPrices(scope, load_prices(settings, scope, since, until, data))


def hourly_lows(settings: Settings, market_history: MarketHistory, until: datetime, zone: tzinfo) -> PriceSeries:
    """The lowest GPU price of each local hour, commission included.

    In a zone with half hours, hours begin at half past in UTC (where the clock changes by half an hour, for the offset
    at the end).
    """
    offset = until.astimezone(zone).utcoffset() or timedelta()
    return series_of(market_history, pricer(settings, market_history), -int(offset.total_seconds()) % HOUR_S)


def newest_price(settings: Settings, gpus: tuple[str, ...] | None, provider: str | None) -> datetime | None:
    """The time when such an offer was last seen; None: never. Raises StoreError."""
    from gpuwatch.storage.history.queries.history_queries import newest_prices

    with open_store_read_only(settings) as database:
        newest = newest_prices(database, gpus)
    return max((at for name, _, at in newest if matches_source(name, provider)), default=None)


def pricer(settings: Settings, market_history: MarketHistory) -> Callable[[int, OfferInterval], float]:
    """Return a function that prices a GPU-hour of an interval: micro-dollars, with commission and reference disk."""
    return gpu_pricer(market_history, all_commissions(settings), REFERENCE_DISK_GB)


def commission_rates(settings: Settings) -> Mapping[str, float]:
    """Provider → the fraction added to its listed prices; see `all_commissions`."""
    return {name: float(commission.on_top_rate(None)) for name, commission in all_commissions(settings).items()}


def _file_history(data: Path, scope: MarketFilter, since: datetime, until: datetime) -> MarketHistory:
    columns, skipped = read_columns(data)
    for reason, count in skipped.items():
        log.warning("%s: skipped %d rows: %s", data, count, reason)
    start_s, end_s = int(since.timestamp()), int(until.timestamp())
    rows = columns.where((start_s <= columns.at_s) & (columns.at_s < end_s))
    if not len(rows.at_s) and len(columns.at_s):
        days = (datetime.fromtimestamp(int(at_s), UTC) for at_s in (columns.at_s.min(), columns.at_s.max()))
        log.warning(
            "%s: no rows in the requested period; the file covers %s to %s", data, *(f"{d:%Y-%m-%d}" for d in days)
        )
    kinds = default_kinds({offer.provider for offer in columns.offers})
    market_history = history_of_columns(rows, clean(data.name), kinds, partial(_are_in_scope, scope=scope))
    if scope.provider is None and len({listing.kind for listing in market_history.listings}) > 1:
        log.warning("%s: skipped its list prices; show them with --provider NAME:listed", data)
    return narrow_to_scope(replace(market_history, until_s=end_s), scope)


def default_kinds(names: set[str]) -> dict[str, OfferKind]:
    """The kind of price if a provider's rows do not state it: a provider without live prices has list prices."""
    known = {name: providers.info(name).kinds for name in names if name in providers.names()}
    return {name: OfferKind.LISTED for name, kinds in known.items() if OfferKind.LIVE not in kinds}


def narrow_to_scope(market_history: MarketHistory, scope: MarketFilter) -> MarketHistory:
    """The part of the history that a filter selects."""
    meant = _are_in_scope(market_history.listings, scope)
    new_index = {
        number: index for index, number in enumerate(number for number, is_meant in enumerate(meant) if is_meant)
    }
    identities = [market_history.listings[number].identity for number in new_index]
    scopes = {(identity.provider, gpu, identity.spot) for identity in identities for gpu in ("", identity.gpu)}
    return replace(
        market_history,
        listings=tuple(market_history.listings[number] for number in new_index),
        intervals=[
            interval._replace(listing=new_index[interval.listing])
            for interval in market_history.intervals
            if interval.listing in new_index
        ],
        polls=[poll for poll in market_history.polls if (poll.provider, poll.gpu, poll.spot) in scopes],
    )


def _are_in_scope(listings: tuple[ListedOffer, ...], scope: MarketFilter) -> list[bool]:
    """The offers that a filter selects."""
    provider, _, kind = (scope.provider or "").partition(":")
    models = frozenset(listing.gpu for listing in listings)
    only_listed = all(listing.kind is OfferKind.LISTED for listing in listings)
    listed_too = kind == "listed" if provider else only_listed  # list prices are not mixed with prices of offers
    return [
        (listing.kind is OfferKind.LISTED) == listed_too
        and provider in ("", listing.provider)
        and scope.has_gpu(listing.gpu, listing.gpu_family, models)
        and scope.has_count(listing.gpu_count)
        and scope.has_spot(listing.spot)
        and (not scope.verified or listing.verification is Verification.VERIFIED)
        for listing in listings
    ]
