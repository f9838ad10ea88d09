"""Whose situation is it? Rent, reserve, buy, credits or both, for kinds of owners, by the existing calculators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gpuwatch.app.history.past_prices import gpu_names_of
from gpuwatch.app.plan.plan_buy import BuyPlan, gpu_and_count, plan_buy
from gpuwatch.app.plan.plan_fit import MarketPrices, cheapest_class, market_prices
from gpuwatch.app.plan.plan_use import own_load
from gpuwatch.bootstrap import real_now
from gpuwatch.domain.market.money import dollars, per_hour
from gpuwatch.domain.plan.owners.owner_cases import (
    CARD_PRICES,
    Cloud,
    CreditProgram,
    CreditUse,
    OwnerCase,
    Way,
    WayCost,
    cheapest_way,
    credit_use,
)
from gpuwatch.domain.plan.owners.owner_data import credit_programs, large_clouds, owner_cases
from gpuwatch.domain.plan.ownership import (
    DAY_HOURS,
    YEAR_DAYS,
    BaseAndPeaks,
    Commitment,
    LoadStep,
    OwnedWork,
    base_and_peaks,
)
from gpuwatch.errors import StoreMissing, UsageError

if TYPE_CHECKING:
    from gpuwatch.app.plan.plan_use import OwnLoad
    from gpuwatch.domain.plan.fit import PricedClass
    from gpuwatch.domain.plan.plan_schema import ForRequest
    from gpuwatch.settings import Settings

_LAUNCHES_SINCE = timedelta(days=90)


class CloudOffer(msgspec.Struct, frozen=True, kw_only=True):
    """A large cloud: for whom, its price for the machine, and what it grants."""

    cloud: Cloud
    usd_hour: Decimal | None  # None: the store has no price of it
    credits: tuple[CreditUse, ...]


class OwnerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The ways with their cost, and what they rest on."""

    case: OwnerCase
    request: ForRequest
    buy: BuyPlan
    ways: tuple[WayCost, ...]
    best: WayCost
    work: OwnedWork
    commitments: tuple[tuple[Commitment, Decimal], ...]  # with the share of hours from which each is cheaper
    base: BaseAndPeaks | None
    credits: tuple[CreditUse, ...]
    clouds: tuple[CloudOffer, ...]
    notes: tuple[str, ...]
    errors: tuple[str, ...]  # providers that did not answer


def plan_for(case_name: str, request: ForRequest, settings: Callable[[], Settings]) -> OwnerPlan:
    """Compare the ways of one kind of owner.

    Args:
        request: keys that it does not state take the case's values.

    Raises:
        UsageError: the request is contradictory, or no price is known.
        StoreError: the store cannot be read.
    """
    case = owner_cases()[case_name]
    gpu, cards = gpu_and_count(request.gpu, "--gpu")
    names = gpu_names_of(gpu)
    load = _own_load(names, settings)
    request, notes = _completed(case, request, load, cards)
    market = _market(request, settings)
    request = request.model_copy(update=_machine(request, market, names, cards))
    buy = plan_buy(request, settings)
    work = OwnedWork(buy.comparisons[0].tariff.effective_usd_hour, request.hours_a_day, buy.rent_change.a_year)
    spot = _spot(request, market, names, cards)
    clouds = {cloud.provider: _price_at(market, names, cards, cloud.provider) for cloud in large_clouds()}
    credits = tuple(credit_use(program, work, clouds.get(program.provider)) for program in _programs(case, request))
    steps = load.steps if load is not None else _stated_load(request, cards)
    if len(steps) > 1 and load is None:
        work = work._replace(hours=sum((step.gpus * step.hours for step in steps), Decimal(0)) / cards)
    farms = _farms(request, buy, work, steps, cards)
    ways = tuple(_ways(case, request, buy, _Terms(work, spot, farms, credits, steps)))
    return OwnerPlan(
        case=case,
        request=request,
        buy=buy,
        ways=ways,
        best=cheapest_way(ways),
        work=work,
        commitments=tuple((one, one.break_even_percent(work.change)) for one in _commitments(request)),
        base=min(farms, key=lambda one: one.usd, default=None),
        credits=credits,
        clouds=tuple(
            CloudOffer(
                cloud=cloud,
                usd_hour=clouds[cloud.provider],
                credits=tuple(one for one in credits if one.program.provider == cloud.provider),
            )
            for cloud in large_clouds()
        ),
        notes=(*notes, *(market.errors if market is not None else ())),
        errors=() if market is None else market.errors,
    )


class _SpotRate(NamedTuple):
    """The price of a spot machine. `assumed`: it is no offer's, and not stated."""

    usd_hour: Decimal
    source: str
    assumed: bool = False


class _Terms(NamedTuple):
    """What the ways are computed from."""

    work: OwnedWork
    spot: _SpotRate | None
    farms: list[BaseAndPeaks]  # by the number of own cards; empty: the load has no peaks, or cards no price
    credits: tuple[CreditUse, ...]
    steps: tuple[LoadStep, ...]


def _completed(case: OwnerCase, request: ForRequest, load: OwnLoad | None, cards: int) -> tuple[ForRequest, list[str]]:
    """The request with the case's values, and a line about the hours that are the owner's own."""
    notes, hours = [], Decimal(case.hours_a_day)
    if load is not None and "hours_a_day" not in request.model_fields_set:
        hours = max(load.gpu_hours_a_day / cards, Decimal("0.01"))  # over 24: several such machines
        notes.append(
            f"hours: {load.gpu_hours_a_day:.1f} GPU-hours a day, by {load.launches} of your own launches in "
            f"{load.days:.0f} days"
        )
    values = {"hours_a_day": hours, "years": case.years, "term_years": case.term_years, "extra": Decimal(0)}
    missing = {key: value for key, value in values.items() if key not in request.model_fields_set}
    return request.model_copy(update=missing), notes


def _market(request: ForRequest, settings: Callable[[], Settings]) -> MarketPrices | None:
    """The current prices; None: the rent is stated, and there is no store."""
    try:
        return market_prices(settings(), everything=True, poll=request.poll)
    except StoreMissing:
        if "rent" in request.model_fields_set:
            return None
        raise


def _own_load(names: tuple[str, ...], settings: Callable[[], Settings]) -> OwnLoad | None:
    try:
        return own_load(settings(), real_now() - _LAUNCHES_SINCE, names)
    except StoreMissing:
        return None


def _machine(request: ForRequest, market: MarketPrices | None, names: tuple[str, ...], cards: int) -> dict[str, Any]:
    """Card, number, price of a card, trend and rent."""
    found: dict[str, Any] = {"card": names[0], "cards": cards, "trend": None}
    if request.rent_change is None:
        found["trend"] = names[0]
    if "card_price" not in request.model_fields_set:
        found["card_price"] = CARD_PRICES.get(names[0], Decimal(0))
    if "rent" not in request.model_fields_set:
        if market is None or (price := _price_of(market, names, cards)) is None:
            way = "no provider offers it now: add --rent USD per hour, or another --gpu"
            if not request.poll:
                way = "add --poll, or --rent USD per hour"
            raise UsageError(f"no price of {cards}× {names[0]} is known: {way}")
        found["rent"] = price
    return found


def _price_of(market: MarketPrices | None, names: Sequence[str], cards: int, *, spot: bool = False) -> Decimal | None:
    """The price of so many GPUs for an hour, by the cheapest plausible live offer that has them."""
    if market is None:
        return None
    live = [price for price in market.prices if price.spot is spot and not price.listed]
    return _cheapest(live, market.source, names, cards)


def _price_at(market: MarketPrices | None, names: Sequence[str], cards: int, provider: str) -> Decimal | None:
    if market is None:
        return None
    of_provider = [price for price in market.prices if price.provider == provider and not price.spot]
    return _cheapest(of_provider, market.source, names, cards)


def _cheapest(prices: Sequence[PricedClass], source: str, names: Sequence[str], cards: int) -> Decimal | None:
    found = []
    for name in names:
        of_gpu = [price for price in prices if price.gpu == name and price.cards >= cards]
        if of_gpu:
            one = cheapest_class(of_gpu, source, name, cards)
            found.append(one.usd_hour / one.cards * cards)
    return min(found, default=None)


def _spot(request: ForRequest, market: MarketPrices | None, names: Sequence[str], cards: int) -> _SpotRate | None:
    """The price of a spot machine; None: none is known or assumed."""
    if request.spot_usd is not None:
        return _SpotRate(request.spot_usd, "as stated")
    if (price := _price_of(market, names, cards, spot=True)) is not None:
        return _SpotRate(price, "the cheapest spot offer")
    if not request.spot:
        return None
    usd_hour = request.rent * (1 - request.spot[0] / 100)
    return _SpotRate(usd_hour, f"{request.spot[0]:f} % under on demand, as articles say", assumed=True)


def _programs(case: OwnerCase, request: ForRequest) -> list[CreditProgram]:
    """The programs for the case; the owner's own credit first."""
    own = []
    if request.credit:
        today = real_now().date()
        own.append(
            CreditProgram(
                name="your credits",
                provider=request.credit_provider or "",
                cases=(case.name,),
                usd=request.credit,
                days=request.credit_days,
                open=True,
                who="you",
                url="",
                looked_up=today,
                page_date=None,
            )
        )
    return [*own, *(program for program in credit_programs() if case.name in program.cases)]


def _commitments(request: ForRequest) -> list[Commitment]:
    return [Commitment(percent, request.term_years) for percent in request.reserved]


def _stated_load(request: ForRequest, cards: int) -> tuple[LoadStep, ...]:
    """The load without own launches: the machine in its hours, and the stated peaks."""
    if not request.peak_gpus or not request.peak_hours:
        return ()
    at_peak = min(request.peak_hours, request.hours_a_day)
    steps = [LoadStep(cards, request.hours_a_day - at_peak), LoadStep(max(cards, request.peak_gpus), at_peak)]
    return tuple(step for step in steps if step.hours)


def _farms(
    request: ForRequest, buy: BuyPlan, work: OwnedWork, steps: tuple[LoadStep, ...], cards: int
) -> list[BaseAndPeaks]:
    if len(steps) < 2 or not request.card_price:
        return []
    gpu = OwnedWork(work.usd_hour / cards, DAY_HOURS, work.change)
    return base_and_peaks(buy.own, steps, gpu, max(buy.loss_percent), request.years)


def _ways(case: OwnerCase, request: ForRequest, buy: BuyPlan, terms: _Terms) -> Iterator[WayCost]:
    work, years = terms.work, request.years
    days = years * YEAR_DAYS
    rented = work.rent_usd(days)

    def way(kind: Way, how: str, usd: Decimal | None, missing: str = "") -> WayCost:
        reason = missing if usd is None else case.why_not.get(kind)
        return WayCost(way=kind, how=how, usd=usd, why_not=reason)

    yield way(Way.RENT, f"{per_hour(work.usd_hour, most=2)} on demand", rented)
    if terms.spot is None:
        yield way(Way.SPOT, "spot", None, "no spot price is known: --spot-usd USD")
    else:
        usd = OwnedWork(terms.spot.usd_hour, work.hours, work.change).rent_usd(days)
        one = way(Way.SPOT, f"{per_hour(terms.spot.usd_hour, most=2)}, {terms.spot.source}", usd)
        assumed = "its price is assumed: --spot-usd USD" if terms.spot.assumed else None
        yield msgspec.structs.replace(one, why_not=one.why_not or assumed)
    usable = [one for one in terms.credits if one.program.open and one.program.usd is not None]
    if usable:
        best = max(usable, key=lambda one: one.saved_usd)
        name = " ".join(filter(None, (best.program.provider, best.program.name)))
        how = f"{name}: pays {best.hours:,.0f} of the first hours"
        yield way(Way.CREDITS, how, max(rented - best.saved_usd, Decimal(0)))
    cards = buy.own.cards
    beyond = sum((max(step.gpus - cards, 0) * step.hours for step in terms.steps), Decimal(0)) / cards
    for commitment in _commitments(request)[:1]:
        percent = commitment.break_even_percent(work.change)
        how = f"−{commitment.discount_percent:f} % for {commitment.term_years} y; pays from {percent:.0f} % use"
        usd = commitment.usd(work.usd_hour, work.change, years) + work._replace(hours=beyond).rent_usd(days)
        yield way(Way.RESERVE, how, usd)
    yield from _own_ways(request, buy, terms, way)


def _own_ways(request: ForRequest, buy: BuyPlan, terms: _Terms, way: Callable[..., WayCost]) -> Iterator[WayCost]:
    """Owning all cards, and owning those of the base load."""
    if not request.card_price:
        for kind, how in ((Way.BUY, "own cards"), (Way.HYBRID, "base load owned, peaks rented")):
            yield way(kind, how, None, "the price of a card is unknown: --card-price USD")
        return
    farms, own = terms.farms, buy.own
    if not farms:
        how = f"{own.cards}× {own.card} for {dollars(own.investment_usd)}, resold after {request.years} y"
        yield way(Way.BUY, how, buy.comparisons[0].years[-1].owned_usd[1])
        missing = "no peaks are known: no launches of your own; --set peak_gpus=N --set peak_hours=H"
        yield way(Way.HYBRID, "base load owned, peaks rented", None, missing)
        return
    every, base = farms[-1], min(farms, key=lambda one: one.usd)
    yield way(Way.BUY, f"{every.cards}× {own.card}, enough for the peaks, busy {every.busy_percent:.0f} %", every.usd)
    how = f"{base.cards} cards owned, busy {base.busy_percent:.0f} %; {base.peak_percent:.0f} % of the work rented"
    yield way(Way.HYBRID, how, base.usd)
