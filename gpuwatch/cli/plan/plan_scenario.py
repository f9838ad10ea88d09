"""`gpuwatch plan scenario`: compare workflows step by step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
from gpuwatch.cli.options import FILE, config_option, json_option
from gpuwatch.cli.output import json_out, note
from gpuwatch.cli.terminal_tables import left, right, table, text
from gpuwatch.domain.market.money import amount_text, dollars
from gpuwatch.domain.market.text import clean
from gpuwatch.domain.plan.scenario import SCENARIO_METHOD_TEXT
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuwatch.domain.plan.scenario import ScenarioCost

_SEED_WAYS = 2  # scenarios of the built-in file that come from the source
_STEP_COLUMNS = (left("step"), text("computed as", drop=1), right("$"))


@click.command(
    cls=Command,
    examples=(
        "gpuwatch plan scenario --example > mine.toml",
        "gpuwatch plan scenario mine.toml",
    ),
)
@click.argument("file", required=False, type=FILE)
@click.option("--seed", is_flag=True, help="Show only the source's two scenarios, to the cent.")
@click.option("--example", is_flag=True, help="Print the built-in file as a template.")
@json_option
@config_option
def scenario(file: Path | None, seed: bool, example: bool, as_json: bool, config: str | None) -> int:
    """Compare workflows step by step, from a TOML FILE; without FILE, the built-in example.

    A step costs hours × price (usd_hour, usd_gpu_hour × gpus, or the cheapest price of `gpu` in the store), an amount
    (usd), or a percentage of other steps. The first scenario is the baseline.
    """
    from gpuwatch.app.plan.plan_scenario import built_in_scenarios, plan_scenarios, scenarios_json
    from gpuwatch.bootstrap.settings_loading import load_settings

    if file is not None and (seed or example):
        raise UsageError("--seed and --example use the built-in file: omit FILE")
    if example:
        click.echo(built_in_scenarios(), nl=False)
        return Exit.DONE
    plan = plan_scenarios(file, lambda: load_settings(config))
    scenarios = plan.scenarios[: _SEED_WAYS if seed else None]
    if as_json:
        json_out(scenarios_json(plan, scenarios, file))
    else:
        _print_scenarios(clean(plan.title, 200), scenarios)
    return Exit.DONE


def _print_scenarios(title: str, scenarios: Sequence[ScenarioCost]) -> None:
    if title:
        click.echo(f"{title}\n")
    for scenario in scenarios:
        rows = [(clean(cost.name, 100), clean(cost.how, 200), amount_text(cost.usd)) for cost in scenario.costs]
        table(_STEP_COLUMNS, [*rows, ("in all", "", amount_text(scenario.total_usd))], title=clean(scenario.name, 100))
        if scenario.note:
            click.echo(f"({clean(scenario.note, 300)})")
        click.echo()
    for scenario in scenarios[1:]:
        percent = "" if scenario.saving_percent is None else f" ({abs(scenario.saving_percent):.2f} %)"
        verb = "saves" if scenario.saving_usd >= 0 else "costs more by"
        amount = f"{dollars(abs(scenario.saving_usd))}{percent}"
        click.echo(f"{clean(scenario.name, 100)!r} {verb} {amount} against {clean(scenarios[0].name, 100)!r}")
    note(SCENARIO_METHOD_TEXT)
