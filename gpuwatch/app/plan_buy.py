"""Owning against renting, as JSON; the arithmetic is in the domain's planning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.domain.market.json_values import number, rfc3339
from gpuwatch.domain.planning.buy import source_payback_corrected

if TYPE_CHECKING:
    from decimal import Decimal

    from gpuwatch.app.plan_use import OwnRent
    from gpuwatch.domain.planning.buy import (
        MachineUsage,
        OwnedMachine,
        RentComparison,
        SimplePayback,
        SourceCalculation,
    )


METHOD = (
    "pays back: investment ÷ (rent saved a day − own running cost a day), for the work the own machine does in a day"
)


def plan_buy_json(
    own: OwnedMachine,
    found: Sequence[RentComparison],
    usage: MachineUsage,
    lost: Sequence[Decimal],
    log: OwnRent | None,
) -> dict[str, Any]:
    """JSON of `gpuwatch plan buy`."""

    return {
        "method": METHOD,
        "samples": 0 if log is None else log.launches,
        "since": None if log is None else rfc3339(log.since),
        "until": None if log is None else rfc3339(log.until),
        "own": {
            "card": own.card,
            "cards": own.cards,
            "investment_usd": number(own.investment_usd),
            "kilowatts": number(own.kilowatts),
            "running_usd_hour": number(own.usd_hour),
            "yearly_usd": number(own.yearly_usd),
            "times_slower": number(own.slower),
            "job_days": number(usage.job_hours * own.slower / 24),
        },
        "loss_percent_a_year": [number(one) for one in lost],
        "tariffs": [_tariff_json(one) for one in found],
        "log": None if log is None else _log_json(log),
    }


def _tariff_json(one: RentComparison) -> dict[str, Any]:

    return {
        "name": one.tariff.name,
        "price_usd_hour": number(one.tariff.usd_hour),
        "with_extra_usd_hour": number(one.tariff.effective_usd_hour),
        "job_usd": number(one.job_usd),
        "day_usd": number(one.day_usd),
        "saved_day_usd": number(one.saved_usd_day),
        "payback_days": number(one.payback_days),
        "verdict": one.verdict.value,
        "rented_hours_year_one": [number(hours) for hours in one.hours_a_year],
    }


def _log_json(log: OwnRent) -> dict[str, Any]:

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
