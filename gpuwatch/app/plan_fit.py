"""Current GPU prices for the planner: from the store, from a file of price rows, or from the providers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch import providers
from gpuwatch.app.offers import markets_now, providers_that_sell
from gpuwatch.app.past_prices import commission_rates, gpu_names_of, gpu_price, load_prices
from gpuwatch.bootstrap import open_store_read_only, real_now
from gpuwatch.domain.analysis.market_history import MarketFilter
from gpuwatch.domain.market.json_values import number, rfc3339
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.domain.market.pricing import MICRO
from gpuwatch.domain.planning.fit import CostMeasure, PricedClass, price_ratio
from gpuwatch.engine.browse import offer_filter
from gpuwatch.errors import UsageError
from gpuwatch.storage.price_sources import is_imported_source, kind_of_source, provider_of_source

if TYPE_CHECKING:
    from gpuwatch.domain.analysis.market_history import MarketHistory
    from gpuwatch.domain.planning.fit import ClassChoice, SourceClass, TaskNeeds
    from gpuwatch.domain.planning.fit import RankedClasses as Fitting
    from gpuwatch.settings import Settings
    from gpuwatch.storage.database import Database
    from gpuwatch.storage.market_snapshot import SnapshotOffer

FRESH = timedelta(hours=3)  # older prices are marked as old
_WITHIN_S = 30.0
_POLLS_KEPT = 3  # an answer counts for this many poll intervals of its provider, as for watches


class CurrentPrices(msgspec.Struct, frozen=True, kw_only=True):
    """Prices, their source and their time."""

    offers: tuple[PricedClass, ...]
    as_of: datetime | None  # the newest poll; None: none
    source: str
    troubles: tuple[str, ...] = ()  # why some may be missing, one line each

    def is_old(self, now: datetime) -> bool:
        """Whether they may have changed since."""
        return self.as_of is not None and now - self.as_of > FRESH


class PriceFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which prices count. `spot` None: interruptible ones too."""

    spot: bool | None = False
    provider: str | None = None
    listed: bool = False  # list prices, without proof of stock, too


def prices_now(settings: Settings, where: PriceFilter, data: Path | None = None, poll: bool = False) -> CurrentPrices:
    """Every offer's price, commission included.

    Args:
        data: a file of price rows, of which the newest poll counts; None: the store.
        poll: poll the providers instead.

    Raises:
        UsageError: the file cannot be used, or no provider can be polled.
        StoreError: the store cannot be read.
    """
    if poll:
        return _polled(settings, where)
    return _in_store(settings, where) if data is None else _in_file(settings, where, data)


def cheapest_gpu_hour(settings: Settings, gpu: str, count: int) -> Decimal:
    """The cheapest price per GPU-hour for at least `count` of a GPU, from the store.

    Raises:
        UsageError: no GPU has this name, or the store has no price.
        StoreError: the store cannot be read.
    """
    found = cheapest(prices_now(settings, PriceFilter()), gpu, count)
    return found.usd_hour / found.cards


def cheapest(prices: CurrentPrices, gpu: str, count: int) -> PricedClass:
    """The cheapest offer with at least `count` of a GPU. Raises UsageError: there is none."""

    names = gpu_names_of(gpu, frozenset(one.gpu for one in prices.offers))
    fitting = [one for one in prices.offers if one.gpu in names and one.cards >= count]
    if not fitting:
        raise UsageError(f"{prices.source} knows no offer with {count}× {gpu}; say its price instead")
    return min(fitting, key=lambda one: one.usd_hour)


def _in_store(settings: Settings, where: PriceFilter) -> CurrentPrices:
    from gpuwatch.storage.market_snapshot import market_at

    now = real_now()
    with open_store_read_only(settings) as store:
        found = [one for one in market_at(store, now).offers if _is_wanted(one, where)]
        looked = _looked(store, {one.identity.provider for one in found})
    newest, rates = max(looked.values(), default=None), commission_rates(settings)
    fresh = [
        _priced(one, rates)
        for one in found
        if newest is not None and _counts_as_now(settings, one.identity.provider, newest, looked)
    ]
    return CurrentPrices(offers=tuple(fresh), as_of=newest, source="the store")


def _counts_as_now(settings: Settings, name: str, newest: datetime, looked: Mapping[str, datetime]) -> bool:
    """Whether it was polled about when the others were. A list that is polled a few times a day may be older."""

    provider, at = provider_of_source(name), looked.get(name)
    pace_s = 0.0
    if provider in settings.providers:
        pace_s = settings.providers[provider].poll_every_s
    elif provider in providers.names():
        pace_s = providers.info(provider).poll_every_s
    return at is not None and newest - at <= max(FRESH, timedelta(seconds=_POLLS_KEPT * pace_s))


def _looked(store: Database, names: set[str]) -> dict[str, datetime]:
    """Name in the history → its newest complete poll."""
    from gpuwatch.storage.poll_queries import last_poll

    return {name: poll.at for name in names if (poll := last_poll(store, name)) is not None}


def _is_wanted(one: SnapshotOffer, where: PriceFilter) -> bool:

    name = one.identity.provider
    if is_imported_source(name) or (where.provider is not None and provider_of_source(name) != where.provider):
        return False
    if kind_of_source(name) is OfferKind.LISTED and not where.listed:
        return False
    return where.spot is None or one.identity.spot == where.spot


def _priced(one: SnapshotOffer, rates: Mapping[str, float]) -> PricedClass:

    provider = provider_of_source(one.identity.provider)
    listed = Decimal(one.listed_microusd_hour()) / MICRO
    return PricedClass(
        gpu=one.identity.gpu,
        cards=one.identity.gpu_count,
        usd_hour=listed * (1 + Decimal(repr(rates.get(provider, 0.0)))),
        provider=provider,
        spot=one.identity.spot,
    )


def _in_file(settings: Settings, where: PriceFilter, data: Path) -> CurrentPrices:
    """What the newest poll of each provider in the file shows."""

    scope = MarketFilter(gpus=None, provider=where.provider, gpu_count_min=None, gpu_count_max=None, spot=where.spot)
    market_history = load_prices(settings, scope, datetime(2000, 1, 1, tzinfo=UTC), real_now(), data)
    as_of = None if market_history.ends_s is None else datetime.fromtimestamp(market_history.ends_s, UTC)
    return CurrentPrices(offers=tuple(_open_in(settings, market_history)), as_of=as_of, source=data.name)


def _open_in(settings: Settings, market_history: MarketHistory) -> list[PricedClass]:

    ends_s = market_history.ends_s or 0
    found = []
    for interval in market_history.intervals:
        if interval.gone_s is not None or ends_s - interval.seen_s > FRESH.total_seconds():
            continue
        who = market_history.listings[interval.listing].identity
        usd_hour = Decimal(repr(gpu_price(settings, market_history, interval))) * who.gpu_count / MICRO
        priced = PricedClass(gpu=who.gpu, cards=who.gpu_count, usd_hour=usd_hour, provider=who.provider, spot=who.spot)
        found.append(priced)
    return found


def _polled(settings: Settings, where: PriceFilter) -> CurrentPrices:

    spot = {False: "no", True: "only", None: "any"}[where.spot]
    wanted = offer_filter((), spot=spot, kind="all" if where.listed else "live")
    names = providers_that_sell(settings, wanted, () if where.provider is None else (where.provider,))
    found: list[PricedClass] = []
    troubles: list[str] = []
    for one in markets_now(settings, wanted, names, None, _WITHIN_S):
        found += [
            PricedClass(
                gpu=match.offer.gpu,
                cards=match.offer.gpu_count,
                usd_hour=Decimal(match.price.price_microusd_hour) / MICRO,
                provider=match.offer.provider,
                spot=match.offer.spot,
            )
            for match in one.matches
        ]
        if one.error:
            troubles.append(f"{one.provider}: {one.error}")
    return CurrentPrices(offers=tuple(found), as_of=real_now(), source=_markets(names), troubles=tuple(troubles))


def _markets(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{len(names)} providers"


METHOD = (
    "per class the cheapest offer that holds the task with 10 % of each card left free; a token takes at least what it "
    "reads ÷ 60 % of the data sheet's bandwidth; TFLOPS are dense 16-bit ones"
)


def plan_fit_json(needs: TaskNeeds, chosen: Fitting, found: CurrentPrices, other: PricedClass | None) -> dict[str, Any]:
    """JSON of `gpuwatch plan fit`: every class."""

    return {
        "method": METHOD,
        "samples": len(found.offers),
        "since": rfc3339(found.as_of),
        "until": rfc3339(found.as_of),
        "source": found.source,
        "task": needs.task.value,
        "vram_gb": needs.vram_gb,
        "max_token_ms": None if needs.token_s is None else needs.token_s * 1000,
        "by": chosen.by.value,
        "choices": [_choice_json(one, other) for one in chosen.choices],
        "left_out": {why: list(gpus) for why, gpus in chosen.left_out.items()},
        "troubles": list(found.troubles),
    }


def _choice_json(one: ClassChoice, other: PricedClass | None) -> dict[str, Any]:

    times = None if other is None else price_ratio(one.priced, other)
    return {
        "gpu": one.gpu.name,
        "gpu_count": one.priced.cards,
        "cards_needed": one.needed,
        "provider": one.priced.provider,
        "spot": one.priced.spot,
        "offers": one.offers,
        "price_usd_hour": number(one.usd_hour),
        "price_usd_gpu_hour": number(one.usd_hour / one.priced.cards),
        "price_usd_gb_hour": number(one.per(CostMeasure.MEMORY)),
        "price_usd_tflop_hour": number(one.per(CostMeasure.COMPUTE)),
        "price_usd_tb_s_hour": number(one.per(CostMeasure.BANDWIDTH)),
        "token_ms": None if one.token_s is None else one.token_s * 1000,
        "times_dearer": None
        if times is None
        else {"than": other and other.gpu, "low": number(times[0]), "high": number(times[1])},
    }


def plan_fit_sources_json(
    found: Sequence[SourceClass], ratios: Mapping[str, tuple[Decimal, Decimal]]
) -> dict[str, Any]:
    """JSON of `gpuwatch plan fit --seed`."""

    classes = [
        {
            "gpu": one.gpu,
            "task": one.task.value,
            "memory_gb": one.memory_gb,
            "low_usd_gpu_hour": number(one.low),
            "high_usd_gpu_hour": number(one.high or one.low),
        }
        for one in found
    ]
    shown = {pair: [number(low), number(high)] for pair, (low, high) in ratios.items()}
    return {"method": "the sources' own table", "samples": len(found), "classes": classes, "ratios": shown}
