"""Kinds of owners, and what each way to get GPU time costs them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import Final

import msgspec

from gpuwatch.domain.plan.ownership import DAY_HOURS, YEAR_DAYS, LoadStep, OwnedWork

# USD per card, from the articles; a card that is not here needs --card-price.
CARD_PRICES: Final = {"RTX 4090": Decimal(2000), "H100 SXM": Decimal(35_000)}
ASSUMED_DAYS: Final = 365  # of a credit whose expiry is not stated


class Way(StrEnum):
    """A way to get GPU time."""

    RENT = "rent"
    SPOT = "spot"
    CREDITS = "credits"
    RESERVE = "reserve"
    BUY = "buy"
    HYBRID = "hybrid"


class OwnerCase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kind of owner. Its figures are assumptions; `ways`: what it can use, `why_not`: why not another one."""

    name: str
    title: str
    hours_a_day: int
    years: int
    term_years: int
    ways: tuple[Way, ...]
    why_not: dict[Way, str]
    hint: str


class CreditProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A grant or credit. `usd` None: machine time; `days` None: its expiry is not stated; `open`: no review."""

    name: str
    provider: str
    cases: tuple[str, ...]
    usd: Decimal | None
    days: int | None
    open: bool
    who: str
    url: str
    looked_up: date
    page_date: date | None


class CreditUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a credit is worth for this work: the hours that it pays at its provider, at the rent that they save."""

    program: CreditProgram
    usd_hour: Decimal | None  # at its provider; None: unknown, the rent is used
    hours: Decimal
    saved_usd: Decimal


class Cloud(msgspec.Struct, frozen=True, kw_only=True):
    """A large cloud: for whom, and its largest published discount for a commitment."""

    provider: str
    for_whom: str
    url: str
    commitment: str
    up_to_percent: Decimal
    commitment_url: str


class WayCost(msgspec.Struct, frozen=True, kw_only=True):
    """A way over all years. `usd` None: it cannot be computed; `why_not`: why it is not advised, or not computed."""

    way: Way
    how: str
    usd: Decimal | None
    why_not: str | None = None


def cheapest_way(ways: Sequence[WayCost]) -> WayCost:
    """The cheapest way that is advised; renting always is."""
    return min((way for way in ways if way.why_not is None and way.usd is not None), key=lambda way: way.usd or 0)


def credit_use(program: CreditProgram, work: OwnedWork, usd_hour: Decimal | None, years: int) -> CreditUse:
    """What a credit saves until it expires.

    Args:
        usd_hour: of the machine at the provider of the credit; None: unknown.
        years: of work; what a credit would pay later does not count.
    """
    hours = work.hours * min(Decimal(program.days or ASSUMED_DAYS), years * YEAR_DAYS)
    if program.usd is not None:
        hours = min(hours, program.usd / (usd_hour or work.usd_hour))
    return CreditUse(program=program, usd_hour=usd_hour, hours=hours, saved_usd=hours * work.usd_hour)


def used_percent(work: OwnedWork, steps: Sequence[LoadStep], cards: int) -> Decimal:
    """The share of all hours in which a machine with so many cards would work; what is beyond it is rented.

    Args:
        steps: the load of an average day; empty: the hours of the work.
    """
    if not steps:
        return 100 * min(work.hours, DAY_HOURS) / DAY_HOURS
    return 100 * sum((min(step.gpus, cards) * step.hours for step in steps), Decimal(0)) / (cards * DAY_HOURS)


def a_month(usd: Decimal, years: int) -> Decimal:
    """The mean cost of a month."""
    return usd / (12 * years)
