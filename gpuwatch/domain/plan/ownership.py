"""Owning cards for years: what it costs by then, with resale, falling rents, people, and peaks that stay rented. Pure.

The work of a day is stated in hours of the rented machine. Rents change at a constant rate; every sum of rents is the
integral of that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from gpuwatch.domain.plan.plan_schema import OwnedMachine

YEAR_DAYS = Decimal(365)
WEEK_DAYS = Decimal(7)
DAY_HOURS = Decimal(24)
_LONGEST_DAYS = 36_500.0  # a pay-back later than that is none
OWNING_METHOD_TEXT = (
    "owned: price + set-up + running cost + people − resale; while it is set up, and beyond its capacity, the work is "
    "rented; rents change at a constant rate"
)


class OwnedWork(NamedTuple):
    """The daily work that an own machine would take over, at a rent.

    Attributes:
        usd_hour: rent of the whole machine.
        hours: of the rented machine a day; those beyond the own machine's capacity stay rented.
        change: of the rent a year, as a fraction; negative: it falls.
    """

    usd_hour: Decimal
    hours: Decimal
    change: float = 0.0

    def rent_usd(self, days: Decimal) -> Decimal:
        """The rent of all its work over the first days."""
        return self.usd_hour * self.hours * rented_days(days, self.change)


class OwnershipYear(msgspec.Struct, frozen=True, kw_only=True):
    """Owning until the end of a year, then selling, against renting until then. Owned: at each loss of value."""

    year: int
    owned_usd: tuple[Decimal, Decimal]
    rented_usd: Decimal


def rented_days(days: Decimal, change: float) -> Decimal:
    """Days at today's rent that cost as much as the first `days` at a rent that changes."""
    if not change:
        return days
    rate = math.log1p(change) / float(YEAR_DAYS)
    return Decimal(repr(math.expm1(rate * float(days)) / rate))


def payback_days(own: OwnedMachine, work: OwnedWork) -> Decimal | None:
    """Days of work after which owning has cost what renting has, set-up included; None: never.

    Only the work that the machine can do counts.
    """
    own_hours, done = own_share(own, work)
    rent, running = work.usd_hour * done, own.running_usd_day(own_hours)
    spent = own.investment_usd + own.setup_usd
    if not work.change:
        return spent / (rent - running) + own.setup_weeks * WEEK_DAYS if rent > running else None
    start = own.setup_weeks * WEEK_DAYS

    def saved(days: float) -> Decimal:
        until = Decimal(repr(days))
        rents = rented_days(until + start, work.change) - rented_days(start, work.change)
        return rent * rents - running * until - spent

    rate = math.log1p(work.change) / float(YEAR_DAYS)
    best = _LONGEST_DAYS
    if work.change < 0:  # from then on the rent is under the running cost
        best = max(0.0, math.log(float(running / rent)) / rate - float(start)) if running and rent else best
        best = min(best, _LONGEST_DAYS)
    if not rent or saved(best) < 0:
        return None
    low, high = 0.0, best
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if saved(middle) < 0 else (low, middle)
    return Decimal(repr(round(high, 6))) + start


def own_share(own: OwnedMachine, work: OwnedWork) -> tuple[Decimal, Decimal]:
    """Hours a day of the own machine, and the hours of the rented one that they replace."""
    hours = min(work.hours * own.slower, DAY_HOURS)
    return hours, hours / own.slower


def years_of_owning(
    own: OwnedMachine, work: OwnedWork, loss_percent: Sequence[Decimal], years: int
) -> list[OwnershipYear]:
    """Owning compared with renting at the end of each year.

    Args:
        loss_percent: yearly loss of value of the hardware, of what it was worth a year before.
    """
    own_hours, done = own_share(own, work)
    found = []
    for year in range(1, years + 1):
        days = year * YEAR_DAYS
        setup_days = min(days, own.setup_weeks * WEEK_DAYS)
        at_work = days - setup_days
        rented = work.rent_usd(days)
        before = work.rent_usd(setup_days)
        beyond = (rented - before) * (1 - done / work.hours)
        spent = own.investment_usd + own.setup_usd + own.running_usd_day(own_hours) * at_work
        spent += own.yearly_usd * setup_days / YEAR_DAYS + before + beyond
        left = [own.investment_usd * (1 - percent / 100) ** year for percent in (min(loss_percent), max(loss_percent))]
        found.append(OwnershipYear(year=year, owned_usd=(spent - left[0], spent - left[1]), rented_usd=rented))
    return found


# --- a base of own cards, and peaks -----------------------------------------------------------------------------------


class LoadStep(NamedTuple):
    """So many rented GPUs at once, for so many hours of an average day."""

    gpus: int
    hours: Decimal


class BaseAndPeaks(msgspec.Struct, frozen=True, kw_only=True):
    """So many own cards for the base load, and the rest rented.

    Attributes:
        cards: own ones; 0: rent everything.
        busy_percent: of the own cards' time.
        peak_percent: share of the work that stays rented.
        usd: of all years, at the higher loss of value.
    """

    cards: int
    busy_percent: Decimal
    peak_percent: Decimal
    usd: Decimal
    rented_usd: Decimal


def base_and_peaks(
    own: OwnedMachine, load: Sequence[LoadStep], gpu: OwnedWork, loss_percent: Decimal, years: int
) -> list[BaseAndPeaks]:
    """The cost with each number of own cards, if the rest of the load is rented: from none to enough for all of it.

    Args:
        own: its cards are replaced by each number; the rest of its hardware is bought for each so many of them.
        load: an average day.
        gpu: the rent of one GPU; its hours do not count.
    """
    most = max((step.gpus for step in load), default=0)
    largest = int((most * own.slower).to_integral_value(ROUND_CEILING))
    rent = OwnedWork(gpu.usd_hour, sum((step.gpus * step.hours for step in load), Decimal(0)), gpu.change)
    return [_with_base(own, cards, load, rent, loss_percent, years) for cards in range(largest + 1)]


def _with_base(
    own: OwnedMachine, cards: int, load: Sequence[LoadStep], rent: OwnedWork, loss_percent: Decimal, years: int
) -> BaseAndPeaks:  # fmt: skip
    rented = rent.rent_usd(years * YEAR_DAYS)
    if not cards or not rent.hours:
        return BaseAndPeaks(cards=0, busy_percent=Decimal(0), peak_percent=Decimal(100), usd=rented, rented_usd=rented)
    done = sum((min(Decimal(step.gpus), cards / own.slower) * step.hours for step in load), Decimal(0))
    # the rented machine that does as much as the own cards: its hours are theirs
    machines = -(-cards // own.cards)
    rest = {"other": own.other * machines, "system_watts": own.system_watts * machines}
    machine = own.model_copy(update={"cards": cards, "slower": Decimal(1)} | rest)
    base = OwnedWork(rent.usd_hour * cards / own.slower, done * own.slower / cards, rent.change)
    year = years_of_owning(machine, base, (loss_percent,), years)[-1]
    peaks = rented * (1 - done / rent.hours)
    return BaseAndPeaks(
        cards=cards,
        busy_percent=100 * done * own.slower / (cards * DAY_HOURS),
        peak_percent=100 * (1 - done / rent.hours),
        usd=year.owned_usd[1] + peaks,
        rented_usd=rented,
    )


# --- commitments ------------------------------------------------------------------------------------------------------


class Commitment(NamedTuple):
    """A reservation or savings plan: every hour of the term is paid, used or not."""

    discount_percent: Decimal
    term_years: int

    def usd(self, usd_hour: Decimal, change: float, years: int) -> Decimal:
        """The cost until the end of the last term that begins within the years; each term at the price of its start."""
        total, price = Decimal(0), usd_hour * (1 - self.discount_percent / 100)
        for start in range(0, years, self.term_years):
            total += price * Decimal(repr((1 + change) ** start)) * self.term_years * YEAR_DAYS * DAY_HOURS
        return total

    def break_even_percent(self, change: float) -> Decimal:
        """The share of the term's hours from which it is cheaper than on demand; over 100: never."""
        days = self.term_years * YEAR_DAYS
        return (100 - self.discount_percent) * days / rented_days(days, change)
