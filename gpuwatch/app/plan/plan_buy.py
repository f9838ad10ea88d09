"""Own or rented cards: the cost of each, and when buying pays off."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.history.past_prices import gpu_names_of
from gpuwatch.app.plan.plan_fit import cheapest_stored
from gpuwatch.app.plan.plan_use import RentedPeriod, own_rent
from gpuwatch.domain.market.gpu_cards import gpu_specs
from gpuwatch.domain.market.money import number, rfc3339
from gpuwatch.domain.plan.buy import (
    BUY_METHOD_TEXT,
    DAY_HOURS,
    SOURCE_TARIFF,
    MachineUsage,
    OwnedMachine,
    RentComparison,
    RentTariff,
    SimplePayback,
    SourceCalculation,
    cards_holding,
    compare_with_rent,
    discounted,
    source_payback_corrected,
)
from gpuwatch.domain.plan.figures import parse_gpu_config
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuwatch.settings import Settings

EXAMPLE_CARD = "RTX 4090"
_EXAMPLE_GB = 140.0
_EXAMPLE_CARD_USD = Decimal(2000)
_EXAMPLE_EXTRA_PERCENT = 10.0
_EXAMPLE_SLOWER = 2.5


class BuyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The hardware, the work, and the rent to compare with; the options of `gpuwatch plan buy`."""

    # the own machine; None: the example's value, or the data sheet's
    card: str | None
    cards: int | None  # None: as many as needed for `memory_gb`
    memory_gb: float | None
    card_memory_gb: float | None
    card_usd: Decimal | None
    card_watts: float | None
    other_usd: Decimal
    system_watts: float
    usd_kwh: Decimal
    cooling_percent: float
    yearly_usd: Decimal
    slower: float | None
    # the work
    days: float
    hours_a_day: float
    loss_percent: tuple[Decimal, ...]
    # the rent
    rent_usd: Decimal | None
    rent_gpu: str | None
    extra_percent: float | None
    reserved_percent: tuple[Decimal, ...]
    spot_percent: tuple[Decimal, ...]
    launches_since: datetime | None  # compare with the own launches since then
    log_gpu: str | None

    @property
    def has_rent_options(self) -> bool:
        """Does the request state what is rented?"""
        return self.rent_usd is not None or self.rent_gpu is not None


class BuyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Owning compared with each tariff, the base first."""

    own: OwnedMachine
    usage: MachineUsage
    loss_percent: tuple[Decimal, ...]
    comparisons: Sequence[RentComparison]
    log: RentedPeriod | None  # the real rent
    notes: Sequence[str]


def plan_buy(request: BuyRequest, settings: Callable[[], Settings]) -> BuyPlan:
    """Compare owning with renting.

    Args:
        settings: loads the settings, if prices or launches come from the store.

    Raises:
        UsageError: the request is contradictory, or a GPU has no data sheet or no price.
        StoreError: the store cannot be read.
    """
    if request.rent_usd is not None and request.rent_gpu is not None:
        raise UsageError("use either --rent or --rent-gpu")
    own, notes = _own_machine(request)
    usage = MachineUsage(job_hours=_decimal(request.days) * DAY_HOURS, hours_a_day=_decimal(request.hours_a_day))
    loss, comparisons, log = request.loss_percent or (Decimal(0),), [], None
    if request.launches_since is None or request.has_rent_options:
        base = _tariff(request, settings)
        tariffs = [
            base,
            *discounted(base, "reserved", request.reserved_percent),
            *discounted(base, "spot", request.spot_percent),
        ]
        comparisons = [compare_with_rent(own, tariff, usage, loss) for tariff in tariffs]
        if not request.has_rent_options:
            notes.append(
                "rented: the example's machine, 8 H100 for $98.32 an hour; set yours with --rent or --rent-gpu"
            )
    if request.launches_since is not None:
        names = None if request.log_gpu is None else gpu_names_of(request.log_gpu)
        log = own_rent(settings(), request.launches_since, names)
        if log.is_enough:
            comparisons.append(_as_rented(own, log, usage, loss))
    return BuyPlan(own=own, usage=usage, loss_percent=loss, comparisons=comparisons, log=log, notes=notes)


def _own_machine(request: BuyRequest) -> tuple[OwnedMachine, list[str]]:
    """The machine, and a warning if its cards do not hold the model; they may hold another one."""
    is_example = request.card is None and not request.has_rent_options and request.launches_since is None
    memory_gb, watts = _data_sheet(request)
    if request.card is not None and request.card_usd is None:
        raise UsageError(f"the price of one {request.card} is unknown: add --card-price USD")
    notes = []
    if request.cards and request.memory_gb and request.cards * memory_gb < _decimal(request.memory_gb):
        notes.append(f"{request.cards} cards of {memory_gb:f} GB do not hold {request.memory_gb:g} GB")
    own = OwnedMachine(
        card=request.card or EXAMPLE_CARD,
        cards=request.cards or cards_holding(_decimal(request.memory_gb or _EXAMPLE_GB), memory_gb),
        card_usd=_EXAMPLE_CARD_USD if request.card_usd is None else request.card_usd,
        other_usd=request.other_usd,
        card_watts=watts,
        system_watts=_decimal(request.system_watts),
        usd_kwh=request.usd_kwh,
        cooling_percent=_decimal(request.cooling_percent),
        yearly_usd=request.yearly_usd,
        slower=_decimal(request.slower or (_EXAMPLE_SLOWER if is_example else 1.0)),
    )
    return own, notes


def _data_sheet(request: BuyRequest) -> tuple[Decimal, Decimal]:
    """GB and watts of one card: as requested, else from the data sheet."""
    name = request.card or EXAMPLE_CARD
    specs = gpu_specs().get(gpu_names_of(name)[0])
    memory, watts = request.card_memory_gb, request.card_watts
    if specs is not None:
        memory = specs.memory_gib if memory is None else memory
        watts = specs.power_w if watts is None else watts
    if memory is None or watts is None:
        raise UsageError(f"no data sheet for {name}: use --card-memory and --card-watts")
    return _decimal(memory), _decimal(watts)


def _tariff(request: BuyRequest, settings: Callable[[], Settings]) -> RentTariff:
    if request.rent_gpu is None:
        extra = _EXAMPLE_EXTRA_PERCENT if request.extra_percent is None else request.extra_percent
        price = SOURCE_TARIFF.usd_hour if request.rent_usd is None else request.rent_usd
        return RentTariff(name="on demand", usd_hour=price, extra_percent=_decimal(extra))
    try:
        gpu_config = parse_gpu_config(request.rent_gpu)
    except ValueError as fault:
        raise UsageError(f"--rent-gpu: {fault}") from fault
    name = re.sub(r"^[0-9]+\s*[x×*]\s*", "", gpu_config.text)
    price_class = cheapest_stored(settings(), name, gpu_config.count or 1)
    extra_percent = _decimal(request.extra_percent or 0.0)
    return RentTariff(
        name=f"{price_class.cards}× {price_class.gpu}", usd_hour=price_class.usd_hour, extra_percent=extra_percent
    )


def _as_rented(own: OwnedMachine, log: RentedPeriod, usage: MachineUsage, loss: tuple[Decimal, ...]) -> RentComparison:
    """The real amount and cost of rent, converted to a machine with as many cards as the own one."""
    a_day = log.gpu_hours / own.cards / log.days
    tariff = RentTariff(name="as you rented", usd_hour=log.usd / log.gpu_hours * own.cards)
    return compare_with_rent(own, tariff, msgspec.structs.replace(usage, hours_a_day=a_day), loss)


def _decimal(value: float) -> Decimal:
    return Decimal(repr(value)).normalize()


# --- JSON -------------------------------------------------------------------------------------------------------------


def plan_buy_json(plan: BuyPlan) -> dict[str, Any]:
    """JSON of `gpuwatch plan buy`."""
    own, log = plan.own, plan.log
    return {
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
            "times_slower": number(own.slower),
            "job_days": number(plan.usage.job_hours * own.slower / 24),
        },
        "loss_percent_a_year": [number(percent) for percent in plan.loss_percent],
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
    }


def _log_json(log: RentedPeriod) -> dict[str, Any]:
    return {
        "launches": log.launches,
        "days": number(log.days),
        "hours": number(log.hours),
        "gpu_hours": number(log.gpu_hours),
        "cost_usd": number(log.usd),
    }


def plan_buy_sources_json(seed: SourceCalculation, plain: SimplePayback) -> dict[str, Any]:
    """JSON of `gpuwatch plan buy --seed`."""
    corrected = zip(("with_running_cost", "slower", "both"), map(number, source_payback_corrected()), strict=True)
    figures = {key: value for key, value in msgspec.structs.asdict(seed).items() if key != "verdict"}
    return {
        "method": "the sources' own reckoning",  # word-check: allow - a value of the JSON
        "samples": 0,
        "calculator": {key: number(value) for key, value in figures.items()} | {"verdict": seed.verdict.value},
        "corrected_payback_days": dict(corrected),
        "simple": {"hours": number(plain.hours), "days": number(plain.days)},
    }
