"""Scenarios from a file, compared step by step."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.plan.plan_fit import cheapest_stored
from gpuwatch.domain.market.money import number
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.plan.scenario import SCENARIO_METHOD_TEXT, ScenarioCost, compare_scenarios, parse_scenarios
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

_MAX_BYTES = 1_000_000


class ScenarioPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The scenarios of a file; savings are relative to the first."""

    title: str
    scenarios: Sequence[ScenarioCost]


def built_in_scenarios() -> str:
    """The TOML that is used without a file."""
    return (files("gpuwatch.domain.plan") / "scenarios" / "naive-or-smart.toml").read_text(encoding="utf-8")


def plan_scenarios(file: Path | None, settings: Callable[[], Settings]) -> ScenarioPlan:
    """Compare the scenarios of a file, or the built-in ones.

    Args:
        settings: loads the settings, if a step takes its price from the store.

    Raises:
        UsageError: the file cannot be used, or the store has no price for a GPU.
        StoreError: the store cannot be read.
    """

    def live(gpu: str, count: int) -> Decimal:
        price_class = cheapest_stored(settings(), gpu, count)
        return (price_class.usd_hour / price_class.cards).quantize(Decimal("0.0001")).normalize()

    try:
        text = built_in_scenarios() if file is None else _text(file)
        plan = parse_scenarios(tomllib.loads(text, parse_float=Decimal))
    except OSError as fault:
        raise UsageError(f"{file}: {fault.strerror}") from fault
    except (ValueError, ArithmeticError, RecursionError) as fault:  # TOML and UTF-8 errors are ValueErrors
        raise UsageError(f"{file}: {clean(' '.join(str(fault).split()), 300)}") from fault
    return ScenarioPlan(title=plan.title, scenarios=compare_scenarios(plan, live))


def _text(file: Path) -> str:
    """Read the file. Raises UsageError: it is too large; OSError, ValueError: it is not a text."""
    with file.open("rb") as opened:
        content = opened.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise UsageError(f"{file}: expected a scenario file of at most 1 MB")
    return content.decode("utf-8")


def scenarios_json(plan: ScenarioPlan, scenarios: Sequence[ScenarioCost], file: Path | None) -> dict[str, Any]:
    """JSON of `gpuwatch plan scenario`."""
    return {
        "title": plan.title or None,
        "file": None if file is None else str(file),
        "method": SCENARIO_METHOD_TEXT,
        "samples": sum(len(scenario.costs) for scenario in scenarios),
        "since": None,
        "until": None,
        "scenarios": [_scenario_json(scenario) for scenario in scenarios],
    }


def _scenario_json(scenario: ScenarioCost) -> dict[str, Any]:
    return {
        "name": scenario.name,
        "note": scenario.note or None,
        "steps": [{"name": cost.name, "how": cost.how, "cost_usd": number(cost.usd)} for cost in scenario.costs],
        "total_usd": number(scenario.total_usd),
        "saving_usd": number(scenario.saving_usd),
        "saving_percent": number(scenario.saving_percent),
    }
