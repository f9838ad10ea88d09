"""Scenarios from a file, compared step by step."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.plan_fit import cheapest_stored
from gpuwatch.domain.market.json_values import number
from gpuwatch.domain.market.text import clean
from gpuwatch.domain.planning.scenario import METHOD_TEXT, ScenarioCost, compare_scenarios, parse_scenarios
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

_MOST_BYTES = 1_000_000


class ScenarioPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The scenarios of a file; savings are relative to the first."""

    title: str
    scenarios: Sequence[ScenarioCost]


def built_in_scenarios() -> str:
    """The TOML that is used without a file."""
    return (files("gpuwatch.domain.planning") / "scenarios" / "naive-or-smart.toml").read_text(encoding="utf-8")


def plan_scenarios(file: Path | None, settings: Callable[[], Settings]) -> ScenarioPlan:
    """Compare the scenarios of a file, or the built-in ones.

    Args:
        settings: loads the settings, if a step takes its price from the store.

    Raises:
        UsageError: the file cannot be used, or the store has no price for a GPU.
        StoreError: the store cannot be read.
    """

    def live(gpu: str, count: int) -> Decimal:
        found = cheapest_stored(settings(), gpu, count)
        return (found.usd_hour / found.cards).quantize(Decimal("0.0001")).normalize()

    try:
        text = built_in_scenarios() if file is None else _text(file)
        plan = parse_scenarios(tomllib.loads(text, parse_float=Decimal))
    except OSError as fault:
        raise UsageError(f"{file}: {fault.strerror}") from fault
    except (ValueError, ArithmeticError, RecursionError) as fault:  # TOML and UTF-8 errors are ValueErrors
        raise UsageError(f"{file}: {clean(' '.join(str(fault).split()), 300)}") from fault
    return ScenarioPlan(title=plan.title, scenarios=compare_scenarios(plan, live))


def _text(file: Path) -> str:
    """Read and parse the file. Raises UsageError, OSError, ValueError."""
    with file.open("rb") as opened:
        found = opened.read(_MOST_BYTES + 1)
    if len(found) > _MOST_BYTES:
        raise UsageError(f"{file}: expected a scenario file of at most 1 MB")
    return found.decode("utf-8")


def scenarios_json(plan: ScenarioPlan, shown: Sequence[ScenarioCost], file: Path | None) -> dict[str, Any]:
    """JSON of `gpuwatch plan scenario`."""
    return {
        "title": plan.title or None,
        "file": None if file is None else str(file),
        "method": METHOD_TEXT,
        "samples": sum(len(one.costs) for one in shown),
        "since": None,
        "until": None,
        "scenarios": [_scenario_json(one) for one in shown],
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
