"""Scenarios of the planner, as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuwatch.domain.market.json_values import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuwatch.domain.planning.scenario import ScenarioCost, ScenarioFile


METHOD = "each step's hours × price, percentages of the steps they name; exact decimals"


def scenarios_json(plan: ScenarioFile, found: Sequence[ScenarioCost], file: Path | None) -> dict[str, Any]:
    """JSON of `gpuwatch plan scenario`."""

    return {
        "title": plan.title or None,
        "file": None if file is None else str(file),
        "method": METHOD,
        "samples": sum(len(one.costs) for one in found),
        "since": None,
        "until": None,
        "scenarios": [_scenario_json(one) for one in found],
    }


def _scenario_json(one: ScenarioCost) -> dict[str, Any]:

    return {
        "name": one.name,
        "note": one.note or None,
        "steps": [{"name": cost.name, "how": cost.how, "cost_usd": number(cost.usd)} for cost in one.costs],
        "total_usd": number(one.total_usd),
        "saving_usd": number(one.saving_usd),
        "saving_percent": number(one.saving_percent),
    }
