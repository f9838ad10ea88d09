"""Buying cards compared with renting them: the cost of each, and when buying pays. Exact decimals. Pure.

Cards are rounded up; the pay-back counts the own running cost, the higher speed of the rented machine, and the
hardware's loss of value.

Also the cost of an hour of useful work: the price divided by the GPU utilisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, Decimal
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.domain.plan.ownership import (
    DAY_HOURS,
    YEAR_DAYS,
    OwnedWork,
    OwnershipYear,
    own_share,
    payback_days,
    rented_days,
    years_of_owning,
)

if TYPE_CHECKING:
    from gpuwatch.domain.plan.plan_schema import OwnedMachine

GREEN_DAYS, RED_DAYS = 30, 90  # a pay-back time below the first means buy, above the second rent
BUY_METHOD_TEXT = (
    "pays back: investment ÷ (rent saved a day − own running cost a day), for the work the own machine does in a day; "
    "a rent that changes is summed over the days"
)

LOW_UTILISATION_PERCENT = 70.0  # below it: find out what the GPU is waiting for
GOOD_UTILISATION_PERCENT = 90.0  # below it: some capacity is unused
UTILISATION_METHOD_TEXT = "price ÷ use"


class PaybackVerdict(StrEnum):
    """The meaning of a pay-back time."""

    GREEN = "green"
    AMBER = "amber"
    RED = "red"


class RentTariff(msgspec.Struct, frozen=True, kw_only=True):
    """One way to rent instead of buying."""

    name: str
    usd_hour: Decimal  # of the whole machine
    extra_percent: Decimal = Decimal(0)  # storage and traffic, relative to the compute cost

    @property
    def effective_usd_hour(self) -> Decimal:
        """The hourly price with storage and traffic."""
        return self.usd_hour * (1 + self.extra_percent / 100)


class RentComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Owning compared with one tariff."""

    tariff: RentTariff
    job_usd: Decimal  # the job, rented
    day_usd: Decimal  # a day of that work, rented
    saved_usd_day: Decimal  # by owning, after running costs
    payback_days: Decimal | None  # None: owning never pays
    verdict: PaybackVerdict
    hours_a_year: tuple[
        Decimal | None, Decimal | None
    ]  # rented hours from which owning is cheaper; `compare_with_rent`
    years: tuple[OwnershipYear, ...] = ()


class MachineUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The amount of work."""

    job_hours: Decimal  # hours of one job on the rented machine
    hours_a_day: Decimal = DAY_HOURS  # hours per day that the rented machine would run


def cards_holding(memory_gb: Decimal, card_gb: Decimal) -> int:
    """The number of cards that hold the task."""
    return int((memory_gb / card_gb).to_integral_value(ROUND_CEILING))


def buy_verdict(days: Decimal | None) -> PaybackVerdict:
    """Green below 30 days; red from 90 days on, or if it never pays."""
    if days is None or days >= RED_DAYS:
        return PaybackVerdict.RED
    return PaybackVerdict.GREEN if days < GREEN_DAYS else PaybackVerdict.AMBER


def compare_with_rent(
    own: OwnedMachine,
    tariff: RentTariff,
    usage: MachineUsage,
    loss_percent: Sequence[Decimal],
    change: float = 0.0,
    years: int = 0,
) -> RentComparison:
    """Compare owning with renting, for the work in `usage`.

    Args:
        loss_percent: yearly loss of value of the hardware, lowest and highest guess. `hours_a_year` has one entry for
            each: with more rented hours in the first year, owning the hardware and then selling it is cheaper.
        change: of the rent a year, as a fraction.
        years: how many years of owning to compute.
    """
    work = OwnedWork(tariff.effective_usd_hour, usage.hours_a_day, change)
    own_hours, rented_hours = own_share(own, work)
    saved = tariff.effective_usd_hour * rented_hours - own.running_usd_day(own_hours)
    days = payback_days(own, work)
    return RentComparison(
        tariff=tariff,
        job_usd=tariff.effective_usd_hour * usage.job_hours,
        day_usd=tariff.effective_usd_hour * usage.hours_a_day,
        saved_usd_day=saved,
        payback_days=days,
        verdict=buy_verdict(days),
        hours_a_year=(_hours(own, work, min(loss_percent)), _hours(own, work, max(loss_percent))),
        years=tuple(years_of_owning(own, work, loss_percent, years)),
    )


def _hours(own: OwnedMachine, work: OwnedWork, loss_percent: Decimal) -> Decimal | None:
    """Rented hours in the first year that cost the same as a year of owning; None: there is no such number."""
    fixed = own.investment_usd * loss_percent / 100 + own.setup_usd + own.yearly_usd
    usd_hour = work.usd_hour * rented_days(YEAR_DAYS, work.change) / YEAR_DAYS
    saved = usd_hour - own.usd_hour * own.slower
    if saved <= 0:
        return None
    hours = fixed / saved
    return hours if hours * own.slower <= YEAR_DAYS * DAY_HOURS else None


def discounted(base: RentTariff, kind: str, percents: Sequence[Decimal]) -> list[RentTariff]:
    """The same machine at discounts: "reserved −40 %"."""
    return [
        msgspec.structs.replace(base, name=f"{kind} −{percent} %", usd_hour=base.usd_hour * (1 - percent / 100))
        for percent in percents
    ]


class UtilisationVerdict(StrEnum):
    """The rating of a utilisation."""

    BOTTLENECK = "bottleneck"
    WASTEFUL = "wasteful"
    GOOD = "good"


class UtilisedPrice(msgspec.Struct, frozen=True, kw_only=True):
    """A price at a utilisation."""

    percent: float
    useful_usd_hour: Decimal | None  # per hour of useful work; None: no work is done
    idle_usd_hour: Decimal  # share of each paid hour without work
    verdict: UtilisationVerdict


def useful_usd_hour(usd_hour: Decimal, percent: float) -> Decimal | None:
    """Price ÷ utilisation; None: no work is done.

    Args:
        percent: 0 to 100.
    """
    return usd_hour * 100 / Decimal(repr(percent)) if percent > 0 else None


def price_at_utilisation(
    usd_hour: Decimal, percent: float, low: float = LOW_UTILISATION_PERCENT, good: float = GOOD_UTILISATION_PERCENT
) -> UtilisedPrice:
    """A price at a utilisation, rated by two thresholds."""
    share = Decimal(repr(min(percent, 100.0))) / 100
    return UtilisedPrice(
        percent=percent,
        useful_usd_hour=useful_usd_hour(usd_hour, percent),
        idle_usd_hour=usd_hour * (1 - share),
        verdict=utilisation_verdict(percent, low, good),
    )


def utilisation_verdict(percent: float, low: float, good: float) -> UtilisationVerdict:
    """The rating of a utilisation by two thresholds in percent."""
    if percent < low:
        return UtilisationVerdict.BOTTLENECK
    return UtilisationVerdict.WASTEFUL if percent < good else UtilisationVerdict.GOOD
