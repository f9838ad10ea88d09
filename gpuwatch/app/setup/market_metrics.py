"""Metrics of the market: offers and best prices that are known now; what nobody knows is absent, never 0 or old."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.market.current_offers import current_offers
from gpuwatch.app.setup.metric_specs import OTHER_GPU
from gpuwatch.bootstrap.provider_access import is_polled_for
from gpuwatch.bootstrap.rules import AGE_SLACK, MAX_MISSED_POLLS, commissions_of, stored_max_age, stored_pace
from gpuwatch.domain.history.market_history import COVERAGE_S
from gpuwatch.domain.market.gpu_cards import gpu_specs
from gpuwatch.domain.market.money import MICRO, Commission, OfferPrice, price_of
from gpuwatch.domain.market.offer import Offer, OfferKind, priced_units
from gpuwatch.domain.watches.match import accepts_facts, price_for
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.market.browse import offer_filter
from gpuwatch.storage.history.queries.poll_queries import newest_covers
from gpuwatch.storage.history.recording.price_sources import is_imported_source, provider_of_source, source_name
from gpuwatch.storage.history.recording.recording import seconds_since_1970

if TYPE_CHECKING:
    from gpuwatch.app.market.provider_status import ProviderStatus
    from gpuwatch.app.watches.check import MarketCheck
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database

Labels = tuple[str, ...]
Values = dict[str, dict[Labels, float]]
PricedOffer = tuple[Offer, OfferPrice]
OFFERS, BEST_PRICE = "gpuwatch_offers", "gpuwatch_best_price_usd_gpu_hour"
WATCH_BEST_PRICE = "gpuwatch_watch_best_price_usd_gpu_hour"


class ReadMarket(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the market.

    Attributes:
        answering: providers whose newest answer still counts.
        read: (name in the history, GPU, spot) that were read completely, recently enough; GPU "": all models.
    """

    answering: Collection[str]
    read: Collection[tuple[str, str, bool]]

    def knows(self, offer: Offer) -> bool:
        """Whether the newest reading of this offer's GPU still counts, so that it is on offer."""
        source = source_name(offer.provider, offer.kind)
        return offer.provider in self.answering and (
            (source, offer.gpu, offer.spot) in self.read or (source, "", offer.spot) in self.read
        )


def is_answering(
    settings: Settings, store: Database, status: ProviderStatus, at: datetime | None, now: datetime
) -> bool:
    """Whether a provider's newest answer still counts, for three of its rounds or sweeps, and has not become empty."""
    return at is not None and status.empty is None and abs(now - at) <= _max_age(settings, store, status)


def _max_age(settings: Settings, store: Database, status: ProviderStatus) -> timedelta:
    if any(is_polled_for(status.provider, watch) for watch in settings.watches):
        return stored_max_age(settings, status.provider, stored_pace(settings, status.provider, store))
    return MAX_MISSED_POLLS * _sweep_every(status) + AGE_SLACK


def _sweep_every(status: ProviderStatus) -> timedelta:
    return timedelta(seconds=max(status.plan.sweep_every_s or 0.0, status.settings.poll_every_s))


def read_market(
    store: Database, statuses: Iterable[ProviderStatus], answering: Collection[str], at: datetime
) -> ReadMarket:
    """What the history holds that is recent enough. Raises StoreError."""
    ages_s = {
        status.provider: max(COVERAGE_S, MAX_MISSED_POLLS * _sweep_every(status).total_seconds()) for status in statuses
    }
    at_s = seconds_since_1970(at)
    read = {
        (source, gpu, bool(spot))
        for (source, gpu, spot), covered_s in newest_covers(store, at_s).items()
        if not is_imported_source(source) and at_s - covered_s <= ages_s.get(provider_of_source(source), 0.0)
    }
    return ReadMarket(answering=answering, read=read)


def market_values(settings: Settings, market: ReadMarket, watches: Iterable[Watch], now: datetime) -> Values:
    """Offers and best prices, by GPU and by watch. A GPU that was read and has no offers is 0. Raises StoreError."""
    offers = [one for one in current_offers(settings, offer_filter((), spot="any")).offers if market.knows(one[0])]
    known = {(source, _bounded(gpu)) for source, gpu, spot in market.read if gpu and not spot}
    counts = {key: 0.0 for key in known if key[0] in market.answering}  # a list price has another name, and no offers
    cheapest = CheapestOffers([offer for offer, _ in offers], commissions_of(settings))
    best_prices: dict[Labels, float] = {
        (watch.name,): best for watch in watches if (best := cheapest.best_of(watch, now)) is not None
    }
    counted = _counted(offers)
    return {
        OFFERS: counts | counted[OFFERS],
        BEST_PRICE: counted[BEST_PRICE],
        WATCH_BEST_PRICE: best_prices,
    }


def checked_values(settings: Settings, check: MarketCheck, stored: Values) -> Values:
    """What a check saw, for watches, and for GPUs of which the history holds no recent complete reading."""
    offers = [offer for part in check.providers for _, answer in part.answers for offer in answer.offers]
    commissions = commissions_of(settings)
    disk_gb = offer_filter(()).disk_gb  # as for the offers in the store
    seen = {offer.identity: (offer, price_of(offer, disk_gb, commissions[offer.provider])) for offer in offers}
    counted = _counted(list(seen.values()))
    return {
        OFFERS: counted[OFFERS] | stored.get(OFFERS, {}),
        BEST_PRICE: counted[BEST_PRICE] | stored.get(BEST_PRICE, {}),
        WATCH_BEST_PRICE: stored.get(WATCH_BEST_PRICE, {})
        | {
            (name,): min(gpu_price(match.offer, match.price) for match in matches)
            for name, matches in check.matches.items()
            if matches
        },
    }


def _counted(offers: Sequence[PricedOffer]) -> Values:
    """Count live on-demand offers, and find the cheapest, by provider and GPU."""
    counts: dict[Labels, float] = {}
    cheapest: dict[Labels, float] = {}
    for key, price in _live_on_demand(offers):
        counts[key] = counts.get(key, 0.0) + 1
        cheapest[key] = min(cheapest.get(key, price), price)
    return {OFFERS: counts, BEST_PRICE: cheapest}


def _live_on_demand(offers: Sequence[PricedOffer]) -> Iterator[tuple[Labels, float]]:
    for offer, price in offers:
        if not offer.spot and offer.kind is OfferKind.LIVE:
            yield (offer.provider, _bounded(offer.gpu)), gpu_price(offer, price)


class CheapestOffers:
    """The offers of each GPU, cheapest first with the disk that a watch requests: sorted once for all its watches."""

    def __init__(self, offers: Iterable[Offer], commissions: Mapping[str, Commission]) -> None:
        self._commissions = commissions
        self._by_gpu: dict[str, list[Offer]] = {}
        for offer in offers:
            self._by_gpu.setdefault(offer.gpu, []).append(offer)
        self._sorted: dict[tuple[Any, ...], list[tuple[float, Offer, OfferPrice]]] = {}

    def best_of(self, watch: Watch, now: datetime) -> float | None:
        """The lowest price that fits a watch, as far as the history knows its facts."""
        prices = [self._best(watch, gpu, now) for gpu in watch.gpu_names]
        return min((price for price in prices if price is not None), default=None)

    def _best(self, watch: Watch, gpu: str, now: datetime) -> float | None:
        return next(
            (usd for usd, offer, price in self._offers(watch, gpu) if accepts_facts(watch, offer, price, now)), None
        )

    def _offers(self, watch: Watch, gpu: str) -> Sequence[tuple[float, Offer, OfferPrice]]:
        key = gpu, watch.disk_gb, watch.traffic
        if key not in self._sorted:
            priced = [(offer, price_for(watch, offer, self._commissions)) for offer in self._by_gpu.get(gpu, ())]
            ranked = [(gpu_price(offer, price), offer, price) for offer, price in priced]
            self._sorted[key] = sorted(ranked, key=lambda one: one[0])
        return self._sorted[key]


def gpu_price(offer: Offer, price: OfferPrice) -> float:
    """The price of one GPU, USD per hour."""
    return price.price_microusd_hour / MICRO / priced_units(offer.gpu_count)


def _bounded(gpu: str) -> str:
    return gpu if gpu in gpu_specs() else OTHER_GPU
