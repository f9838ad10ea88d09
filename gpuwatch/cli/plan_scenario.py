"""`gpuwatch plan scenario`: ways of working, compared step by step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command
from gpuwatch.cli.options import config_option, json_option
from gpuwatch.cli.tables import left, right, text
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from gpuwatch.domain.planning.scenario import ScenarioCost, ScenarioFile

_MOST_BYTES = 1_000_000
_SEED_WAYS = 2  # of the built-in file: what the source adds up


@click.command(
    cls=Command,
    examples=(
        "gpuwatch plan scenario --example > mine.toml",
        "gpuwatch plan scenario mine.toml",
    ),
)
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--seed", is_flag=True, help="Show only the source's own two scenarios, to the cent.")
@click.option("--example", is_flag=True, help="Print the built-in file as a start for your own.")
@json_option
@config_option
def scenario(file: Path | None, seed: bool, example: bool, as_json: bool, config: str | None) -> int:
    """Compare ways of working, step by step, from a TOML FILE; without one, the built-in example.

    A step costs hours × price (usd_hour, usd_gpu_hour × gpus, or the cheapest price of `gpu` in the store), an amount
    (usd), or a percentage of other steps. The first scenario is what the others are compared with.
    """
    from gpuwatch.app.plan_scenario import scenarios_json

    if file is not None and (seed or example):
        raise UsageError("--seed and --example use the built-in file: name no other")
    if example:
        click.echo(_built_in(), nl=False)
        return Exit.DONE
    plan = _read(file)
    found = _compared(plan, config)[: _SEED_WAYS if seed else None]
    if as_json:
        from gpuwatch.cli.output import json_out

        json_out(scenarios_json(plan, found, file))
    else:
        _print(plan, found)
    return Exit.DONE


def _built_in() -> str:
    from importlib.resources import files

    return (files("gpuwatch.domain.planning") / "scenarios" / "naive-or-smart.toml").read_text(encoding="utf-8")


def _read(file: Path | None) -> ScenarioFile:
    import tomllib
    from decimal import Decimal

    from gpuwatch.domain.market.text import clean
    from gpuwatch.domain.planning.scenario import parse_scenarios

    try:
        text = _built_in() if file is None else _text(file)
        return parse_scenarios(tomllib.loads(text, parse_float=Decimal))
    except OSError as fault:
        raise UsageError(f"{file}: {fault.strerror}") from fault
    except (ValueError, ArithmeticError, RecursionError) as fault:  # TOML's and UTF-8's own faults are ValueErrors
        raise UsageError(f"{file}: {clean(' '.join(str(fault).split()), 300)}") from fault


def _text(file: Path) -> str:
    """Raises UsageError, OSError, ValueError."""
    with file.open("rb") as opened:
        found = opened.read(_MOST_BYTES + 1)
    if len(found) > _MOST_BYTES:
        raise UsageError(f"{file}: larger than a scenario file can be (1 MB)")
    return found.decode("utf-8")


def _compared(plan: ScenarioFile, config: str | None) -> list[ScenarioCost]:
    from gpuwatch.domain.planning.scenario import compare_scenarios

    return compare_scenarios(plan, lambda gpu, count: _live(config, gpu, count))


def _live(config: str | None, gpu: str, count: int) -> Decimal:
    """The cheapest price per GPU-hour that the store knows for so many of a GPU."""
    from decimal import Decimal

    from gpuwatch.app.plan_fit import cheapest_gpu_hour
    from gpuwatch.bootstrap.settings_loading import load_settings

    found = cheapest_gpu_hour(load_settings(config), gpu, count)
    return Decimal(found).quantize(Decimal("0.0001")).normalize()


def _print(plan: ScenarioFile, found: Sequence[ScenarioCost]) -> None:
    from gpuwatch.app.plan_scenario import METHOD
    from gpuwatch.cli.output import note
    from gpuwatch.cli.tables import table
    from gpuwatch.domain.market.money import amount_text
    from gpuwatch.domain.market.text import clean

    if plan.title:
        click.echo(clean(plan.title, 200))
        click.echo()
    for one in found:
        rows = [(clean(cost.name, 100), clean(cost.how, 200), amount_text(cost.usd)) for cost in one.costs]
        rows.append(("in all", "", amount_text(one.total_usd)))
        table((left("step"), text("computed as", drop=1), right("$")), rows, title=clean(one.name, 100))
        if one.note:
            click.echo(f"({clean(one.note, 300)})")
        click.echo()
    for one in found[1:]:
        click.echo(_sentence(one, found[0]))
    note(METHOD)


def _sentence(one: ScenarioCost, first: ScenarioCost) -> str:
    from gpuwatch.domain.market.money import dollars
    from gpuwatch.domain.market.text import clean

    percent = "" if one.saving_percent is None else f" ({abs(one.saving_percent):.2f} %)"
    verb = "saves" if one.saving_usd >= 0 else "costs more by"
    amount = f"{dollars(abs(one.saving_usd))}{percent}"
    return f"{clean(one.name, 100)!r} {verb} {amount} against {clean(first.name, 100)!r}"
