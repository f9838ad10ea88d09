"""`gpuwatch plan pilot`: extrapolate a job from a run on 1 % of the data, and `plan scenario`: compare workflows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command, verbose_option, wants_method
from gpuwatch.cli.options import (
    Between,
    config_option,
    json_option,
)
from gpuwatch.cli.output import json_out, note
from gpuwatch.cli.plan.plan import Figure, PlanCommand
from gpuwatch.cli.terminal_tables import left, right, table, text
from gpuwatch.domain.market.figure_text import percent_text
from gpuwatch.domain.market.money import dollars
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.plan.figures import FigureRange, parse_range
from gpuwatch.domain.plan.job_comparison import Feasibility, parse_hardware
from gpuwatch.domain.plan.job_hours import PILOT_METHOD_TEXT, PilotPlan, plan_pilot
from gpuwatch.domain.plan.scenario import SCENARIO_METHOD_TEXT
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuwatch.domain.plan.scenario import ScenarioCost

_PILOT_COLUMNS = (left(""), right("hours"), right("cost"))
_STEP_COLUMNS = (left("step"), text("computed as", drop=1), right("cost"), right("share", drop=2))


class Speed(click.ParamType[Any]):
    """Tokens per second: "412tok/s", "380-430"."""

    name = "speed"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> FigureRange:
        """Parse the value."""
        try:
            return parse_range(str(value).strip().removesuffix("/s").removesuffix("tok").strip())
        except ValueError:
            self.fail(f'{value!r}: expected tokens per second, such as "412tok/s" or "380-430tok/s"', param, ctx)


def _losses(_ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[float, ...]:
    if text is None:
        return ()
    try:
        losses = tuple(float(part) for part in text.replace(" ", ",").split(",") if part)
    except ValueError:
        losses = ()
    if len(losses) < 2 or not all(0 <= loss < 1e6 for loss in losses):
        raise UsageError(
            f'{param.opts[0]} {text!r}: expected at least two values, first to last, such as "2.31,2.12,2.05"'
        )
    return losses


@click.command(
    cls=Command,
    examples=("gpuwatch plan pilot '2x H100 @ 2.10' --tokens 100M --measured 412tok/s --loss 2.31,2.12,2.05",),
)
@click.argument("candidate")
@click.option("--tokens", type=Figure(), required=True, help='Tokens of the whole job: "100M".')
@click.option("--measured", type=Speed(), required=True, help='Speed of the pilot: "412tok/s", "380-430tok/s".')
@click.option(
    "--share", type=Between(0.001, 99), default=1.0, show_default=True, help="Percent of the data in the pilot."
)
@click.option("--loss", "losses", callback=_losses, help='Losses of the pilot, first to last: "2.31,2.12,2.05".')
@click.option(
    "--max-cost", "max_usd", type=Between(min=0, min_open=True), metavar="USD", help="Maximum cost of the whole job."
)
@verbose_option
@json_option
def pilot(
    candidate: str,
    tokens: float,
    measured: FigureRange,
    share: float,
    losses: tuple[float, ...],
    max_usd: float | None,
    as_json: bool,
) -> int:
    """Extrapolate a pilot on CANDIDATE, such as "2x H100 @ 2.10", to the whole job's time, cost and loss.

    Run the pilot on 1 % of the data first, and do not start the rest if its loss does not fall.

    Exit codes: 0 continue, 1 the loss does not fall or the cost is not feasible, 2 usage.
    """
    try:
        hardware = parse_hardware(candidate)
    except ValueError as fault:
        raise UsageError(str(fault)) from fault
    if hardware.hours is not None:
        raise UsageError(f"{candidate!r}: omit the hours; they follow from the pilot")
    plan = plan_pilot(tokens, measured, share / 100, losses)
    usd_hour = float(hardware.usd_gpu_hour * hardware.count)
    verdict = _verdict(plan, usd_hour, max_usd)
    if as_json:
        json_out(_json(plan, usd_hour, verdict))
    else:
        _print_pilot(plan, usd_hour, share)
    _note(plan, verdict, max_usd, losses)
    return Exit.FAILED if plan.falls is False or verdict is Feasibility.NOT_FEASIBLE else Exit.DONE


def _verdict(plan: PilotPlan, usd_hour: float, max_usd: float | None) -> Feasibility | None:
    if max_usd is None:
        return None
    if plan.hours.high * usd_hour <= max_usd:
        return Feasibility.FEASIBLE
    return Feasibility.UNCERTAIN if plan.hours.low * usd_hour <= max_usd else Feasibility.NOT_FEASIBLE


def _print_pilot(plan: PilotPlan, usd_hour: float, share: float) -> None:
    low, high = plan.hours
    rows = [
        (f"the pilot, {share:g} %", f"{plan.pilot_hours:,.2f}", dollars(plan.pilot_hours * usd_hour)),
        ("the whole", f"{low:,.1f}–{high:,.1f}", f"{dollars(low * usd_hour)}–{dollars(high * usd_hour)}"),
    ]
    hours, amount = f"{low:,.1f} to {high:,.1f} h", f"{dollars(low * usd_hour)} to {dollars(high * usd_hour)}"
    click.echo(f"The whole job takes {hours} and costs {amount}.\n")
    table(_PILOT_COLUMNS, rows)
    if wants_method():
        note(PILOT_METHOD_TEXT)


def _note(plan: PilotPlan, verdict: Feasibility | None, max_usd: float | None, losses: tuple[float, ...]) -> None:
    if verdict is not None:
        note(f"{verdict.value} for {dollars(max_usd or 0)}")
    if plan.falls is False:
        note(f"the loss does not fall ({losses[0]:g} to {losses[-1]:g}): check data and learning rate before you rent")
    elif plan.loss is not None:
        note(f"the loss falls; extrapolated, it ends near {plan.loss:.2f} (a rough estimate)")


def _json(plan: PilotPlan, usd_hour: float, verdict: Feasibility | None) -> dict[str, Any]:
    return {
        "method": PILOT_METHOD_TEXT,
        "hours": plan.hours.high,
        "hours_low": plan.hours.low,
        "job_cost_usd": plan.hours.high * usd_hour,
        "job_cost_low_usd": plan.hours.low * usd_hour,
        "pilot_hours": plan.pilot_hours,
        "pilot_cost_usd": plan.pilot_hours * usd_hour,
        "loss_falls": plan.falls,
        "loss_at_the_end": plan.loss,
        "feasible": verdict,
    }


@click.command(
    cls=PlanCommand,
    example="articles-scenario.toml",
    examples=(
        "gpuwatch plan scenario --example > mine.toml",
        "gpuwatch plan scenario mine.toml",
    ),
)
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--example", is_flag=True, help="Print the built-in file as a template.")
@verbose_option
@json_option
@config_option
def scenario(file: Path | None, example: bool, as_json: bool, config: str | None) -> int:
    """Compare workflows step by step, from a TOML FILE; without FILE, the built-in example.

    A step costs hours × price (usd_hour, usd_gpu_hour × gpus, or the cheapest price of `gpu` in the store), an amount
    (usd), or a percentage of other steps. The first scenario is the baseline.
    """
    from gpuwatch.app.plan.plan_scenario import built_in_scenarios, plan_scenarios, scenarios_json
    from gpuwatch.bootstrap.settings_loading import load_settings

    if file is not None and example:
        raise UsageError("--example prints the built-in file: omit FILE")
    if example:
        click.echo(built_in_scenarios(), nl=False)
        return Exit.DONE
    plan = plan_scenarios(file, lambda: load_settings(config))
    if as_json:
        json_out(scenarios_json(plan, file))
    else:
        _print_scenarios(clean(plan.title, 200), plan.scenarios)
    return Exit.DONE


def _print_scenarios(title: str, scenarios: Sequence[ScenarioCost]) -> None:
    for scenario in scenarios[1:]:
        percent = "" if scenario.saving_percent is None else f" ({abs(scenario.saving_percent):.2f} %)"
        verb = "saves" if scenario.saving_usd >= 0 else "costs more by"
        amount = f"{dollars(abs(scenario.saving_usd))}{percent}"
        click.echo(f"{clean(scenario.name, 100)!r} {verb} {amount} against {clean(scenarios[0].name, 100)!r}")
    click.echo("\n" * (len(scenarios) > 1) + title)
    for scenario in scenarios:
        rows = [
            (clean(cost.name, 100), clean(cost.how, 200), dollars(cost.usd), percent_text(scenario.share_of(cost), 0))
            for cost in scenario.costs
        ]
        click.echo()
        table(_STEP_COLUMNS, [*rows, ("in all", "", dollars(scenario.total_usd), "")], title=clean(scenario.name, 100))
        if scenario.note:
            click.echo(f"({clean(scenario.note, 300)})")
    if wants_method():
        note(SCENARIO_METHOD_TEXT)
