"""Own or rented cards: the cost of each, and when buying pays off."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.forecasts.trend import long_trends
from gpuwatch.app.history.past_prices import gpu_names_of
from gpuwatch.app.plan.plan_fit import cheapest_stored
from gpuwatch.app.plan.plan_request import BUY_OPTIONS, refuse_keys
from gpuwatch.app.plan.plan_use import RentedPeriod, own_rent
from gpuwatch.domain.market.gpu_cards import gpu_specs
from gpuwatch.domain.market.json_view import number, rfc3339
from gpuwatch.domain.market.money import dollars
from gpuwatch.domain.plan.buy import (
    BUY_METHOD_TEXT,
    MachineUsage,
    PaybackVerdict,
    RentComparison,
    RentTariff,
    cards_holding,
    compare_with_rent,
    discounted,
)
from gpuwatch.domain.plan.figures import parse_gpu_config
from gpuwatch.domain.plan.ownership import DAY_HOURS
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuwatch.domain.plan.plan_schema import BuyRequest, OwnedMachine
    from gpuwatch.settings import Settings

_EXAMPLE_SLOWER = Decimal("2.5")  # the source measured 2 to 3 times as many tokens per second on the rented cards


class RentChange(msgspec.Struct, frozen=True):
    """The change of the rent a year, as a fraction, and the ends of its interval. `gpu`: whose trend it is."""

    a_year: float = 0.0
    low: float = 0.0
    high: float = 0.0
    gpu: str | None = None


class BuyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Owning compared with each tariff, the base first."""

    own: OwnedMachine
    usage: MachineUsage
    loss_percent: tuple[Decimal, ...]
    rent_change: RentChange
    at_ends: tuple[RentComparison, ...]  # with the first tariff, at both ends of the trend's interval
    comparisons: Sequence[RentComparison]
    log: RentedPeriod | None  # the real rent
    notes: Sequence[str]


def plan_buy(request: BuyRequest, settings: Callable[[], Settings], since: datetime | None = None) -> BuyPlan:
    """Compare owning with renting.

    Args:
        settings: loads the settings, if prices or launches come from the store.
        since: start of the own launches that are compared; None: none are.

    Raises:
        UsageError: the request is contradictory, or a GPU has no data sheet or no price.
        StoreError: the store cannot be read.
    """
    if {"rent", "rent_gpu"} <= request.model_fields_set:
        raise UsageError("use either --rent or --rent-gpu")
    if not request.launches:
        refuse_keys(request, "requires --launches", ("since", "log_gpu"), BUY_OPTIONS)
    own, notes = _own_machine(request)
    change = _rent_change(request, settings)
    years = request.years if request.years > 1 or "years" in request.model_fields_set else 0
    usage = MachineUsage(job_hours=request.days * DAY_HOURS, hours_a_day=request.hours_a_day)
    loss, comparisons, log = request.loss or (Decimal(0),), [], None
    ends: list[RentComparison] = []
    if since is None or request.has_rent:
        base = _tariff(request, settings)
        tariffs = [
            base,
            *discounted(base, "reserved", request.reserved),
            *discounted(base, "spot", request.spot),
        ]
        comparisons = [compare_with_rent(own, tariff, usage, loss, change.a_year, years) for tariff in tariffs]
        rates = (change.low, change.high) if change.gpu else ()
        ends = [compare_with_rent(own, base, usage, loss, rate, years) for rate in rates]
        if not request.has_rent:
            notes.append("rented: the example's machine, 8 H100 for $98.32/h; set yours with --rent or --rent-gpu")
    if since is not None:
        names = None if request.log_gpu is None else gpu_names_of(request.log_gpu)
        log = own_rent(settings(), since, names)
        if log.is_enough:
            tariff, as_rented = _as_rented(own, log, usage)
            comparisons.append(compare_with_rent(own, tariff, as_rented, loss, change.a_year, years))
    return BuyPlan(
        own=own,
        usage=usage,
        loss_percent=loss,
        rent_change=change,
        at_ends=tuple(ends),
        comparisons=comparisons,
        log=log,
        notes=notes,
    )


def _rent_change(request: BuyRequest, settings: Callable[[], Settings]) -> RentChange:
    """As stated, or the trend of the rented GPU. Raises UsageError, StoreError."""
    if request.rent_change is not None:
        refuse_keys(request, "is not used: rent_change states the change", ("trend",), BUY_OPTIONS)
        stated = float(request.rent_change) / 100
        return RentChange(stated, stated, stated)
    gpu = request.trend or (None if request.rent_gpu is None else gpu_and_count(request.rent_gpu, "--rent-gpu")[0])
    if gpu is None:
        return RentChange()
    (found,) = long_trends(settings(), gpu, spot=False)
    trend = found.trend
    return RentChange() if trend is None else RentChange(trend.a_year, trend.low, trend.high, found.gpu)


def _own_machine(request: BuyRequest) -> tuple[OwnedMachine, list[str]]:
    """The machine, and a warning if its cards do not hold the model; they may hold another one."""
    stated = request.model_fields_set
    memory_gb, watts = _data_sheet(request)
    if "card" in stated and "card_price" not in stated:
        raise UsageError(f"the price of one {request.card} is unknown: add --card-price USD")
    notes = []
    if {"cards", "memory"} <= stated and request.cards * memory_gb < request.memory:
        notes.append(f"{request.cards} cards of {memory_gb:f} GB do not hold {request.memory:g} GB")
    found: dict[str, Any] = {"card_watts": watts}
    if "cards" not in stated:
        found["cards"] = cards_holding(request.memory, memory_gb)
    if not stated & {"card", "slower", "launches"} and not request.has_rent:
        found["slower"] = _EXAMPLE_SLOWER
    return request.model_copy(update=found), notes


def _data_sheet(request: BuyRequest) -> tuple[Decimal, Decimal]:
    """GB and watts of one card: as requested, else from the data sheet."""
    specs = gpu_specs().get(gpu_names_of(request.card)[0])
    memory, watts = request.card_memory, request.card_watts if "card_watts" in request.model_fields_set else None
    if specs is not None:
        memory = _decimal(specs.memory_gib) if memory is None else memory
        watts = _decimal(specs.power_w) if watts is None and specs.power_w is not None else watts
    if memory is None or watts is None:
        raise UsageError(f"no data sheet for {request.card}: set card_memory and card_watts")
    return memory, watts


def _tariff(request: BuyRequest, settings: Callable[[], Settings]) -> RentTariff:
    if request.rent_gpu is None:
        return RentTariff(name="on demand", usd_hour=request.rent, extra_percent=request.extra)
    name, count = gpu_and_count(request.rent_gpu, "--rent-gpu")
    price_class = cheapest_stored(settings(), name, count)
    return RentTariff(
        name=f"{price_class.cards}× {price_class.gpu}",
        usd_hour=price_class.usd_hour,
        extra_percent=request.extra if "extra" in request.model_fields_set else Decimal(0),
    )


def gpu_and_count(text: str, option: str) -> tuple[str, int]:
    """ "8x H100 SXM" as its GPU and its number. Raises UsageError."""
    try:
        gpu_config = parse_gpu_config(text)
    except ValueError as fault:
        raise UsageError(f"{option}: {fault}") from fault
    return re.sub(r"^[0-9]+\s*[x×*]\s*", "", gpu_config.text), gpu_config.count or 1


def _as_rented(own: OwnedMachine, log: RentedPeriod, usage: MachineUsage) -> tuple[RentTariff, MachineUsage]:
    """The real amount and cost of rent, converted to a machine with as many cards as the own one."""
    a_day = log.gpu_hours / own.cards / log.days
    tariff = RentTariff(name="as you rented", usd_hour=log.usd / log.gpu_hours * own.cards)
    return tariff, msgspec.structs.replace(usage, hours_a_day=a_day)


def _decimal(value: float) -> Decimal:
    return Decimal(repr(value)).normalize()


# --- JSON -------------------------------------------------------------------------------------------------------------


_ANSWERS = {
    PaybackVerdict.GREEN: "Buy: the cards pay back in {days} days, compared with renting {tariff}.",
    PaybackVerdict.AMBER: "Borderline: the cards pay back in {days} days of such work, compared with renting {tariff}.",
    PaybackVerdict.RED: (
        "Rent, unless such work goes on for more than {days} days: only then the cards pay back, compared with renting "
        "{tariff}."
    ),
}


def buy_sentence(plan: BuyPlan) -> str | None:
    """Buy or rent, in one plain sentence, by the first tariff and the stated years; None: there is no tariff."""
    if not plan.comparisons:
        return None
    first = plan.comparisons[0]
    if first.years:
        return _years_sentence(first)
    if first.payback_days is None:
        return f"Rent: the cards never pay back, compared with renting {first.tariff.name}."
    return _ANSWERS[first.verdict].format(tariff=first.tariff.name, days=f"{first.payback_days:,.0f}")


def _years_sentence(comparison: RentComparison) -> str:
    """By what both cost in the stated years, whatever the days of the pay-back are."""
    last = comparison.years[-1]
    low, high = last.owned_usd
    answer = "Buy" if high < last.rented_usd else "Rent" if low > last.rented_usd else "Borderline"
    owned = "–".join(dict.fromkeys((dollars(low), dollars(high))))
    length = "a year" if last.year == 1 else f"{last.year} years"
    return (
        f"{answer}: over {length} own cards cost {owned}, resold at the end, and renting {comparison.tariff.name} "
        f"{dollars(last.rented_usd)}."
    )


def plan_buy_json(plan: BuyPlan) -> dict[str, Any]:
    """JSON of `gpuwatch plan buy`."""
    own, log = plan.own, plan.log
    return {
        "sentence": buy_sentence(plan),
        "method": BUY_METHOD_TEXT,
        "samples": 0 if log is None else log.launches,
        "since": log and rfc3339(log.since),
        "until": log and rfc3339(log.until),
        "own": {
            "card": own.card,
            "cards": own.cards,
            "investment_usd": number(own.investment_usd),
            "kilowatts": number(own.kilowatts),
            "running_usd_hour": number(own.usd_hour),
            "yearly_usd": number(own.yearly_usd),
            "setup_usd": number(own.setup_usd),
            "setup_weeks": number(own.setup_weeks),
            "times_slower": number(own.slower),
            "job_days": number(plan.usage.job_hours * own.slower / 24),
        },
        "loss_percent_a_year": [number(percent) for percent in plan.loss_percent],
        "rent_change": {
            "percent_a_year": 100 * plan.rent_change.a_year,
            "percent_a_year_low": 100 * plan.rent_change.low,
            "percent_a_year_high": 100 * plan.rent_change.high,
            "gpu": plan.rent_change.gpu,
            "payback_days_at_ends": [number(one.payback_days) for one in plan.at_ends],
        },
        "tariffs": [_tariff_json(comparison) for comparison in plan.comparisons],
        "log": log and _log_json(log),
    }


def _tariff_json(comparison: RentComparison) -> dict[str, Any]:
    return {
        "name": comparison.tariff.name,
        "price_usd_hour": number(comparison.tariff.usd_hour),
        "with_extra_usd_hour": number(comparison.tariff.effective_usd_hour),
        "job_usd": number(comparison.job_usd),
        "day_usd": number(comparison.day_usd),
        "saved_day_usd": number(comparison.saved_usd_day),
        "payback_days": number(comparison.payback_days),
        "verdict": comparison.verdict.value,
        "rented_hours_year_one": [number(hours) for hours in comparison.hours_a_year],
        "years": [
            {
                "year": one.year,
                "owned_usd": number(one.owned_usd[1]),
                "owned_low_usd": number(one.owned_usd[0]),
                "rented_usd": number(one.rented_usd),
            }
            for one in comparison.years
        ],
    }


def _log_json(log: RentedPeriod) -> dict[str, Any]:
    return {
        "launches": log.launches,
        "days": number(log.days),
        "hours": number(log.hours),
        "gpu_hours": number(log.gpu_hours),
        "cost_usd": number(log.usd),
    }
