"""Offers available now, with their prices: from the store, from a file of price rows, or from the providers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gpuwatch import providers
from gpuwatch.app.market.offers import markets_now, providers_that_sell
from gpuwatch.bootstrap import open_store_read_only, real_now
from gpuwatch.domain.history.market_history import COVERAGE_S, quoted_offer
from gpuwatch.domain.market.gpu_cards import gpu_specs
from gpuwatch.domain.market.money import REFERENCE_DISK_GB, Commission, OfferPrice, price_of, threshold_microusd
from gpuwatch.domain.market.offer import Identity, ListedOffer, Offer, OfferKind
from gpuwatch.domain.watches.decide import Match
from gpuwatch.settings.validate import default_commission
from gpuwatch.storage.history.recording.price_sources import is_imported_source, kind_of_source, provider_of_source

if TYPE_CHECKING:
    from gpuwatch.domain.history.market_history import OfferInterval, SnapshotOffer
    from gpuwatch.engine.market.browse import OfferFilter
    from gpuwatch.settings import Settings


FRESH = timedelta(seconds=COVERAGE_S)
_POLLS_KEPT = 3  # an answer counts for this many poll intervals of its provider, as for watches


def max_price_age(settings: Settings, source: str) -> timedelta:
    """The maximum age of a poll whose prices are those of now. Price lists are polled a few times a day."""
    name, every_s = provider_of_source(source), 0.0
    if name in settings.providers:
        every_s = settings.providers[name].poll_every_s
    elif name in providers.names():
        every_s = providers.info(name).poll_every_s
    return max(FRESH, timedelta(seconds=_POLLS_KEPT * every_s))


_BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)


class CurrentOffers(msgspec.Struct, frozen=True, kw_only=True):
    """Offers with their prices, including commission and disk; their source and time.

    Attributes:
        as_of: the newest poll; None: no poll.
        errors: why some offers may be missing, one line each.
        is_polled: just now; recorded prices do not state all facts.
        since: since when an offer has its price, as far as that is recorded.
        left_out: of a provider in the store that has not answered lately: its last answer, and how many offers it had.
        sellers: the providers in the store that sell anything now, of any GPU.
    """

    offers: tuple[tuple[Offer, OfferPrice], ...]
    as_of: datetime | None
    source: str
    errors: tuple[str, ...] = ()
    is_polled: bool = False
    since: Mapping[Identity, datetime] = {}
    left_out: Mapping[str, tuple[datetime, int]] = {}
    sellers: frozenset[str] = frozenset()

    @property
    def matches(self) -> list[Match]:
        """The offers as a list is made of them (`sorted_offers`, `group_offers`)."""
        return [Match(*priced) for priced in self.offers]


def is_old(as_of: datetime | None, now: datetime) -> bool:
    """Whether prices of that time may have changed since."""
    return as_of is not None and abs(now - as_of) > FRESH


def current_offers(
    settings: Settings,
    offer_filter: OfferFilter,
    provider_names: Sequence[str] = (),
    data: Path | None = None,
    poll_within_s: float | None = None,
) -> CurrentOffers:
    """The offers that pass a filter.

    Args:
        provider_names: providers; empty: all.
        data: a file of price rows, in which the newest poll counts; None: the store.
        poll_within_s: poll the providers instead, for at most this time.

    Raises:
        UsageError: the file cannot be used, or no provider can be polled.
        StoreError: the store cannot be read.
    """
    if poll_within_s is not None:
        return _polled(settings, offer_filter, provider_names, poll_within_s)
    found = (
        _in_store(settings, offer_filter, provider_names)
        if data is None
        else _in_file(settings, offer_filter, provider_names, data)
    )
    offers = found.offers
    commissions = {name: _commission(settings, name) for name in {offer.provider for offer in offers}}
    priced = tuple(
        (offer, price_of(offer, offer_filter.disk_gb, commissions[offer.provider]))
        for offer in offers
        if (not offer_filter.gpu_names or offer.gpu in offer_filter.gpu_names)
        and (offer_filter.has_count(offer.gpu_count) or not offer.gpu_count)
        and (offer.verified is True or not offer_filter.verified)
    )
    if offer_filter.when is not None:
        priced = tuple(one for one in priced if offer_filter.meets_condition(*one))
    most = offer_filter.max_price_usd_gpu_hour
    if most is not None:
        priced = tuple(
            (offer, price)
            for offer, price in priced
            if price.price_microusd_hour <= threshold_microusd(most, offer.gpu_count)
        )
    return CurrentOffers(
        offers=priced,
        as_of=found.as_of,
        source="the store" if data is None else data.name,
        since=found.since,
        left_out=found.left_out,
        sellers=found.sellers,
    )


class _Recorded(NamedTuple):
    """Recorded offers without their prices; as `CurrentOffers`."""

    offers: Sequence[Offer]
    as_of: datetime | None
    since: Mapping[Identity, datetime] = {}
    left_out: Mapping[str, tuple[datetime, int]] = {}
    sellers: frozenset[str] = frozenset()


def _polled(
    settings: Settings, offer_filter: OfferFilter, provider_names: Sequence[str], within_s: float
) -> CurrentOffers:
    names = providers_that_sell(settings, offer_filter, provider_names)
    offers: list[tuple[Offer, OfferPrice]] = []
    errors: list[str] = []
    for answer in markets_now(settings, offer_filter, names, None, within_s):
        offers += [(match.offer, match.price) for match in answer.matches]
        errors += [f"{answer.provider}: {answer.error}"] if answer.error else []
    source = ", ".join(names) if len(names) <= 3 else f"{len(names)} providers"
    return CurrentOffers(offers=tuple(offers), as_of=real_now(), source=source, errors=tuple(errors), is_polled=True)


def _in_store(settings: Settings, offer_filter: OfferFilter, provider_names: Sequence[str]) -> _Recorded:
    """The offers of the providers whose last poll is recent compared with the newest one, and the time of that poll."""
    from gpuwatch.storage.history.queries.poll_queries import last_polls
    from gpuwatch.storage.history.queries.stored_prices import market_at, sources_on_sale

    gpus = offer_filter.gpu_names or None
    with open_store_read_only(settings) as store:
        read = market_at(store, real_now(), is_now=True, gpus=gpus)
        on_sale = {(offer.provider, offer.spot) for offer in read} if gpus is None else sources_on_sale(store)
        names = {
            name
            for name, spot in on_sale
            if not is_imported_source(name)
            and _is_requested(name, kind_of_source(name), offer_filter, provider_names, spot=spot)
        }
        requested = [offer for offer in read if offer.provider in names and offer.spot in offer_filter.spots]
        polled = {name: poll.at for name, poll in last_polls(store).items() if name in names}
    newest = max(polled.values(), default=_BEGINNING)
    fresh = {name: at for name, at in polled.items() if newest - at <= max_price_age(settings, name)}
    shown = [
        (offer.since, _offer(offer, offer, fresh[offer.provider])) for offer in requested if offer.provider in fresh
    ]
    left_out = Counter(offer.provider for offer in requested if offer.provider not in fresh)
    return _Recorded(
        offers=[offer for _, offer in shown],
        as_of=max(polled.values(), default=None),
        since={offer.identity: since for since, offer in shown},
        left_out={
            provider_of_source(name): (polled[name], count) for name, count in left_out.items() if name in polled
        },
        sellers=frozenset(map(provider_of_source, fresh)),
    )


def _in_file(settings: Settings, offer_filter: OfferFilter, provider_names: Sequence[str], data: Path) -> _Recorded:
    """The offers in the newest poll, and its time."""
    from gpuwatch.app.history.past_prices import load_prices
    from gpuwatch.domain.history.market_history import MarketFilter

    history = load_prices(settings, MarketFilter(), _BEGINNING, real_now(), data)
    ends_s = history.ends_s or 0
    offers = []
    for interval in history.intervals:
        facts = history.listings[interval.listing]
        is_open = interval.ended_s is None and ends_s - interval.seen_s <= FRESH.total_seconds()
        if is_open and _is_requested(facts.provider, facts.kind, offer_filter, provider_names, spot=facts.spot):
            seen_at = datetime.fromtimestamp(interval.seen_s, UTC)
            offers.append(_offer(facts, interval, seen_at))
    return _Recorded(offers, datetime.fromtimestamp(ends_s, UTC) if offers else None)


def _is_requested(
    source: str, kind: OfferKind, offer_filter: OfferFilter, provider_names: Sequence[str], *, spot: bool
) -> bool:
    return (
        spot in offer_filter.spots
        and (kind if kind is OfferKind.LISTED else OfferKind.LIVE) in offer_filter.kinds
        and (not provider_names or provider_of_source(source) in provider_names)
    )


def _offer(listing: ListedOffer, price: SnapshotOffer | OfferInterval, seen_at: datetime) -> Offer:
    """The offer with the facts that the catalogue has about its GPU."""
    specs, region = gpu_specs().get(listing.gpu), listing.region
    if region and listing.country:  # some files state the country twice
        region = region.removesuffix(f", {listing.country}")
    return quoted_offer(
        listing,
        price,
        seen_at,
        REFERENCE_DISK_GB,
        provider=provider_of_source(listing.provider),
        gpu_family=listing.gpu if specs is None else specs.family,
        gpu_known=specs is not None,
        gpu_memory_gib=listing.gpu_memory_gib or (None if specs is None else specs.memory_gib),
        region=region,
    )


def _commission(settings: Settings, name: str) -> Commission:
    """The commission as configured; for a provider that is not enabled, its default."""
    if (options := settings.providers.get(name)) is not None:
        return options.commission
    return default_commission(name) if name in providers.names() else Commission()
