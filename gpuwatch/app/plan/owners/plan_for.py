"""Whose situation is it? Rent, reserve, buy, credits or both, for kinds of owners, by the existing calculators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gpuwatch.app.history.past_prices import gpu_names_of
from gpuwatch.app.market.current_offers import is_old
from gpuwatch.app.plan.owners.rent_prices import RentPrice, price_at, price_of
from gpuwatch.app.plan.plan_buy import BuyPlan, gpu_and_count, plan_buy
from gpuwatch.app.plan.plan_fit import MarketPrices, market_prices
from gpuwatch.app.plan.plan_request import FOR_OPTIONS, refuse_keys
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
    used_percent,
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
from gpuwatch.errors import ProviderDown, StoreMissing, UsageError

if TYPE_CHECKING:
    from gpuwatch.app.plan.plan_use import OwnLoad
    from gpuwatch.domain.plan.plan_schema import ForRequest
    from gpuwatch.settings import Settings

_LAUNCHES_SINCE = timedelta(days=90)
_FEW_DAYS = 7  # of launches: hardly a habit
OWN_CREDITS = "your credits"


class CloudOffer(msgspec.Struct, frozen=True, kw_only=True):
    """A large cloud: for whom, its price for the machine, and what it grants."""

    cloud: Cloud
    price: RentPrice | None
    credits: tuple[CreditUse, ...]


class OwnerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The ways with their cost, and what they rest on."""

    case: OwnerCase
    request: ForRequest
    buy: BuyPlan
    ways: tuple[WayCost, ...]
    best: WayCost
    work: OwnedWork
    used_percent: Decimal  # of the hours of the stated machine, beyond which the work is rented
    offer: RentPrice | None  # whose price the rent is; None: it is stated
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
        ProviderDown: no price is known, because providers did not answer.
        StoreError: the store cannot be read.
    """
    if not request.credit:
        refuse_keys(request, "requires --credit", ("credit_provider", "credit_days"), FOR_OPTIONS)
    refuse_keys(request, "has no effect here: --gpu states the machine, --rent its price", [*request.unused_keys])
    case = owner_cases()[case_name]
    gpu, cards = gpu_and_count(request.gpu, "--gpu")
    _check_peaks(request, cards)
    names = gpu_names_of(gpu)
    load = _own_load(request, names, settings)
    request, notes = _completed(case, request, load, cards)
    market = _market(request, settings)
    offer = None if "rent" in request.model_fields_set else _rent(request, market, names, cards)
    request = request.model_copy(update=_machine(request, offer, names, cards))
    buy = plan_buy(request, settings)
    steps = load.steps if load is not None else _stated_load(request, cards)
    hours = sum((step.gpus * step.hours for step in steps), Decimal(0)) / cards or request.hours_a_day
    work = OwnedWork(buy.comparisons[0].tariff.effective_usd_hour, hours, buy.rent_change.a_year)
    spot = _spot(request, market, names, cards)
    programs = _programs(case, request)
    providers = {*(cloud.provider for cloud in large_clouds()), *(program.provider for program in programs)}
    prices = {provider: price_at(market, names, cards, provider) for provider in providers}
    asked = {provider: None if price is None else price.usd_hour for provider, price in prices.items()}
    credits = tuple(credit_use(program, work, asked[program.provider], request.years) for program in programs)
    if request.credit_provider and asked[request.credit_provider] is None:
        notes.append(f"no price of {request.credit_provider} is known: your credits are counted at your rent")
    farms = _farms(request, buy, work, steps, cards)
    ways = tuple(_ways(case, request, buy, _Terms(work, spot, farms, credits, steps, offer)))
    return OwnerPlan(
        case=case,
        request=request,
        buy=buy,
        ways=ways,
        best=cheapest_way(ways),
        work=work,
        used_percent=used_percent(work, steps, cards),
        offer=offer,
        commitments=tuple((one, one.break_even_percent(work.change)) for one in _commitments(request)),
        base=min(farms, key=lambda one: one.usd, default=None),
        credits=credits,
        clouds=tuple(
            CloudOffer(
                cloud=cloud,
                price=prices[cloud.provider],
                credits=tuple(one for one in credits if one.program.provider == cloud.provider),
            )
            for cloud in large_clouds()
        ),
        notes=(*notes, *_price_notes(market), *(market.errors if market is not None else ())),
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
    farms: list[BaseAndPeaks]  # by the number of own cards; empty: no peaks are known, or cards have no price
    credits: tuple[CreditUse, ...]
    steps: tuple[LoadStep, ...]
    offer: RentPrice | None


def _check_peaks(request: ForRequest, cards: int) -> None:
    """Raises UsageError: the stated peaks are none."""
    if bool(request.peak_gpus) is not bool(request.peak_hours):
        raise UsageError("peak_gpus and peak_hours belong together: set both")
    if request.peak_gpus and request.peak_gpus <= cards:
        raise UsageError(f"peak_gpus: expected more than the {cards} of --gpu")


def _price_notes(market: MarketPrices | None) -> Iterator[str]:
    if market is not None and market.as_of is not None:
        old = " (outdated: fetch current ones with --poll)" if is_old(market.as_of, real_now()) else ""
        yield f"prices: {market.source}, as of {market.as_of:%Y-%m-%d %H:%M} UTC{old}"


def _completed(case: OwnerCase, request: ForRequest, load: OwnLoad | None, cards: int) -> tuple[ForRequest, list[str]]:
    """The request with the case's values, and a line about the hours that are the owner's own."""
    notes, hours = [], Decimal(case.hours_a_day)
    if load is not None:
        hours = max(load.gpu_hours_a_day / cards, Decimal("0.01"))  # over 24: several such machines
        notes.append(
            f"hours: {load.gpu_hours_a_day:.1f} GPU-hours a day, by {load.launches} of your own launches in "
            f"{load.days:.0f} days{': a rough estimate' if load.days < _FEW_DAYS else ''} (--hours-a-day states others)"
        )
    values = {"hours_a_day": hours, "years": case.years, "term_years": case.term_years}
    missing = {key: value for key, value in values.items() if key not in request.model_fields_set}
    return request.model_copy(update=missing), notes


def _market(request: ForRequest, settings: Callable[[], Settings]) -> MarketPrices | None:
    """The current prices; None: the rent is stated, and there is no store."""
    try:
        return market_prices(settings(), everything=True, poll=request.poll)
    except StoreMissing as fault:
        if "rent" in request.model_fields_set:
            return None
        raise StoreMissing(f"{fault}; or add --poll for current prices, or --rent USD per hour") from None


def _own_load(request: ForRequest, names: tuple[str, ...], settings: Callable[[], Settings]) -> OwnLoad | None:
    """The load of the own launches; None: there are too few, or another load is stated."""
    if request.model_fields_set & {"hours_a_day", "peak_gpus", "peak_hours"}:
        return None
    try:
        return own_load(settings(), real_now() - _LAUNCHES_SINCE, names)
    except StoreMissing:
        return None


def _machine(
    request: ForRequest, offer: RentPrice | None, names: tuple[str, ...], cards: int
) -> dict[str, Any]:  # fmt: skip
    """Card, number, price of a card, trend and rent."""
    found: dict[str, Any] = {"card": names[0], "cards": cards}
    if request.rent_change is None and request.trend is None:
        found["trend"] = names[0]
    if "card_price" not in request.model_fields_set:
        found["card_price"] = CARD_PRICES.get(names[0], Decimal(0))
    if offer is not None:
        found["rent"] = offer.usd_hour
    return found


def _rent(request: ForRequest, market: MarketPrices | None, names: tuple[str, ...], cards: int) -> RentPrice:
    """The cheapest offer. Raises UsageError: there is none. Raises ProviderDown: not every provider answered."""
    if (price := price_of(market, names, cards)) is not None:
        return price
    if market is not None and market.errors:  # whether it is offered is unknown
        raise ProviderDown(f"no price of {cards}× {names[0]}: {'; '.join(market.errors)}; --rent states one")
    way = "no provider offers it now: add --rent USD per hour, or another --gpu"
    if not request.poll:
        way = "add --poll, or --rent USD per hour"
    raise UsageError(f"no price of {cards}× {names[0]} is known: {way}")


def _spot(request: ForRequest, market: MarketPrices | None, names: Sequence[str], cards: int) -> _SpotRate | None:
    """The price of a spot machine; None: none is known or assumed."""
    if request.spot_usd is not None:
        return _SpotRate(request.spot_usd, "as stated")
    if (price := price_of(market, names, cards, spot=True)) is not None:
        return _SpotRate(price.usd_hour, f"the cheapest spot offer ({price.provider})")
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
                name=OWN_CREDITS,
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
    beside = max(request.hours_a_day - request.peak_hours, Decimal(0))
    steps = [LoadStep(cards, beside), LoadStep(request.peak_gpus, request.peak_hours)]
    return tuple(step for step in steps if step.hours)


def _farms(
    request: ForRequest, buy: BuyPlan, work: OwnedWork, steps: tuple[LoadStep, ...], cards: int
) -> list[BaseAndPeaks]:
    if not steps or not request.card_price:
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

    at = "" if terms.offer is None else f" at {terms.offer.provider}"
    if terms.offer is not None and terms.offer.gpu != buy.own.card:
        at += f", {terms.offer.gpu}"
    yield way(Way.RENT, f"{per_hour(work.usd_hour, most=2)} on demand{at}", rented)
    if terms.spot is None:
        yield way(Way.SPOT, "spot", None, "no spot price is known: --spot-usd USD")
    else:
        usd = OwnedWork(terms.spot.usd_hour, work.hours, work.change).rent_usd(days)
        one = way(Way.SPOT, f"{per_hour(terms.spot.usd_hour, most=2)}, {terms.spot.source}", usd)
        assumed = "its price is assumed: --spot-usd USD" if terms.spot.assumed else None
        yield msgspec.structs.replace(one, why_not=one.why_not or assumed)
    usable = [one for one in terms.credits if one.program.open and one.program.usd is not None]
    if usable:
        best = max(usable, key=lambda one: (one.program.name == OWN_CREDITS, one.saved_usd))
        name = " at ".join(filter(None, (best.program.name, best.program.provider)))
        how = f"{name}: the first {best.hours:,.0f} h"
        one = way(Way.CREDITS, how, max(rented - best.saved_usd, Decimal(0)))
        trial = None if best.program.name == OWN_CREDITS else "not counted before you have it: --credit USD"
        yield msgspec.structs.replace(one, why_not=one.why_not or trial)
    cards = buy.own.cards
    beyond = sum((max(step.gpus - cards, 0) * step.hours for step in terms.steps), Decimal(0)) / cards
    for commitment in _commitments(request)[:1]:
        percent = commitment.break_even_percent(work.change)
        pays = "never pays" if percent > 100 else f"pays from {percent:.0f} % use"
        how = f"−{commitment.discount_percent:f} % for {commitment.term_years} y; {pays}"
        if owed := -years % commitment.term_years:
            how += f"; paid for {years + owed} y"
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
