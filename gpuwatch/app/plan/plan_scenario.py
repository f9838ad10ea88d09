"""Scenarios from a file, compared step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.plan.plan_fit import cheapest_stored
from gpuwatch.app.plan.plan_request import EXAMPLES, read_toml
from gpuwatch.domain.market.json_view import number
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.plan.scenario import SCENARIO_METHOD_TEXT, ScenarioCost, compare_scenarios, parse_scenarios
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

_BUILT_IN = "naive-or-smart.toml"


class ScenarioPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The scenarios of a file; savings are relative to the first."""

    title: str
    scenarios: Sequence[ScenarioCost]


def built_in_scenarios() -> str:
    """The TOML that is used without a file."""
    return (EXAMPLES / _BUILT_IN).read_text(encoding="utf-8")


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
        plan = parse_scenarios(read_toml(file or Path(_BUILT_IN), parse_float=Decimal))
    except ValueError as fault:
        raise UsageError(f"{file}: {clean(' '.join(str(fault).split()), 300)}") from fault
    return ScenarioPlan(title=plan.title, scenarios=compare_scenarios(plan, live))


def scenarios_json(plan: ScenarioPlan, file: Path | None) -> dict[str, Any]:
    """JSON of `gpuwatch plan scenario`."""
    return {
        "title": plan.title or None,
        "file": None if file is None else str(file),
        "method": SCENARIO_METHOD_TEXT,
        "samples": sum(len(scenario.costs) for scenario in plan.scenarios),
        "since": None,
        "until": None,
        "scenarios": [_scenario_json(scenario) for scenario in plan.scenarios],
    }


def _scenario_json(scenario: ScenarioCost) -> dict[str, Any]:
    return {
        "name": scenario.name,
        "note": scenario.note or None,
        "steps": [
            {
                "name": cost.name,
                "how": cost.how,
                "cost_usd": number(cost.usd),
                "share": scenario.share_of(cost),
            }
            for cost in scenario.costs
        ],
        "total_usd": number(scenario.total_usd),
        "saving_usd": number(scenario.saving_usd),
        "saving_percent": number(scenario.saving_percent),
    }
