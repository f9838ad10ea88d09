"""Compares scenarios step by step: the cost of each, and the savings of the others. Exact decimals. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

_MOST = Decimal(10**9)  # a larger figure is a typo
_WAYS = ("usd_gpu_hour", "usd_hour", "usd", "gpu", "percent")  # ways to state the cost of a step; exactly one
SCENARIO_METHOD_TEXT = "each step's hours × price, percentages of the steps they name; exact decimals"
PriceOf = Callable[[str, int], Decimal]  # GPU, how many → USD per GPU-hour


class ScenarioStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step, as in the file."""

    name: str
    hours: Decimal | None = None
    gpus: int = 1
    usd_gpu_hour: Decimal | None = None
    usd_hour: Decimal | None = None
    usd: Decimal | None = None
    gpu: str | None = None
    percent: Decimal | None = None
    of: str | tuple[str, ...] = ()

    @property
    def base(self) -> tuple[str, ...]:
        """The steps that a percentage refers to."""
        return (self.of,) if isinstance(self.of, str) else self.of


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way of working."""

    name: str
    step: tuple[ScenarioStep, ...]
    note: str = ""


class ScenarioFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a file; scenarios are compared with the first one."""

    scenario: tuple[Scenario, ...]
    title: str = ""


class StepCost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a step, and its computation."""

    name: str
    how: str
    usd: Decimal


class ScenarioCost(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario with its costs; savings relative to the first scenario."""

    name: str
    note: str
    costs: tuple[StepCost, ...]
    total_usd: Decimal
    saving_usd: Decimal
    saving_percent: Decimal | None  # None: the first scenario costs nothing

    def share_of(self, cost: StepCost) -> float | None:
        """The share of a step in the total, 0 to 1; None: the total is not above 0."""
        return float(cost.usd / self.total_usd) if self.total_usd > 0 else None


def parse_scenarios(raw: Mapping[str, Any]) -> ScenarioFile:
    """Parse the tables of a file. Raises ValueError: the key, and what was expected."""
    try:
        plan = msgspec.convert(raw, ScenarioFile)
    except msgspec.ValidationError as fault:
        raise ValueError(_plain(str(fault))) from fault
    if not plan.scenario:
        raise ValueError("expected at least one [[scenario]]")
    for way in plan.scenario:
        if not way.step:
            raise ValueError(f"scenario {way.name!r}: expected at least one [[scenario.step]]")
        for number, step in enumerate(way.step):
            wrong = _fault(step, [before.name for before in way.step[:number]])
            if wrong is not None:
                raise ValueError(f"scenario {way.name!r}, step {step.name!r}: {wrong}")
    return plan


def compare_scenarios(plan: ScenarioFile, price_of: PriceOf) -> list[ScenarioCost]:
    """The cost of each scenario, in the order of the file.

    Args:
        price_of: for steps that name a GPU instead of a price.
    """
    costs = [_costs(way, price_of) for way in plan.scenario]
    totals = [sum((cost.usd for cost in one), Decimal(0)) for one in costs]
    return [
        ScenarioCost(
            name=way.name,
            note=way.note,
            costs=cost,
            total_usd=total,
            saving_usd=totals[0] - total,
            saving_percent=(totals[0] - total) * 100 / totals[0] if totals[0] else None,
        )
        for way, cost, total in zip(plan.scenario, costs, totals, strict=True)
    ]


def _costs(way: Scenario, price_of: PriceOf) -> tuple[StepCost, ...]:
    found: list[StepCost] = []
    for step in way.step:
        found.append(_cost(step, found, price_of))
    return tuple(found)


def _cost(step: ScenarioStep, before: Sequence[StepCost], price_of: PriceOf) -> StepCost:
    if step.usd is not None:
        return StepCost(name=step.name, how="an amount", usd=step.usd)
    if step.percent is not None:
        base = sum((cost.usd for cost in before if cost.name in step.base), Decimal(0))
        return StepCost(
            name=step.name, how=f"{step.percent} % of {', '.join(step.base)}", usd=base * step.percent / 100
        )
    hours = step.hours or Decimal(0)
    if step.usd_hour is not None:
        return StepCost(name=step.name, how=f"${step.usd_hour} × {hours} h", usd=step.usd_hour * hours)
    price, gpu = step.usd_gpu_hour, step.gpu
    if price is None:
        price = price_of(gpu or "", step.gpus)
    what = f" {gpu}" if gpu else " GPUs" if step.gpus > 1 else " GPU"
    return StepCost(name=step.name, how=f"{step.gpus}{what} × ${price} × {hours} h", usd=price * step.gpus * hours)


def _fault(step: ScenarioStep, before: Sequence[str]) -> str | None:
    """The errors of a step, apart from types."""
    ways = [way for way in _WAYS if getattr(step, way) is not None]
    if len(ways) != 1:
        return f"expected one of {', '.join(_WAYS)}" + (f", not {' and '.join(ways)}" if ways else "")
    if fault := _figure_fault(step):
        return fault
    if ways[0] in ("usd", "percent"):
        if step.hours is not None:
            return f"hours cannot be combined with {ways[0]}"
    elif step.hours is None:
        return "hours are missing"
    if step.percent is None:
        return "`of` requires percent" if step.base else None
    unknown = [name for name in step.base if name not in before]
    if not step.base or unknown:
        return f"`of` must name earlier steps: {', '.join(before) or 'there are none'}"
    return None


def _figure_fault(step: ScenarioStep) -> str | None:
    for key in ("hours", "usd_gpu_hour", "usd_hour", "usd"):
        value: Decimal | None = getattr(step, key)
        least = -_MOST if key == "usd" else 0  # a credit is a negative amount
        if value is not None and not (value.is_finite() and least <= value <= _MOST):
            return f"{key}: expected a number from {least:,} to {_MOST:,}"
    if step.percent is not None and not (step.percent.is_finite() and -100 <= step.percent <= _MOST):
        return "percent: expected a number of at least -100"
    return None if 1 <= step.gpus <= 100_000 else "gpus: expected a number from 1 to 100,000"


def _plain(text: str) -> str:
    """The message of msgspec, with its path counted from 1."""
    words, _, path = text.partition(" - at `$.")
    for number in range(100, -1, -1):
        path = path.replace(f"[{number}]", f" {number + 1}")
    return f"{path.rstrip('`')}: {words}" if path else words
