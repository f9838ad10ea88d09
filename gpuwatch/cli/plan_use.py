"""`gpuwatch plan use`: the cost of a useful hour at a given GPU utilisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command
from gpuwatch.cli.options import Between, Usd, config_option, json_option, moment, value_option
from gpuwatch.cli.output import json_out, note
from gpuwatch.cli.plan_options import refuse_given
from gpuwatch.cli.tables import left, right, table, text
from gpuwatch.domain.market.money import amount_text, dollars
from gpuwatch.domain.planning.utilisation import METHOD_TEXT, UtilisationVerdict, price_at_utilisation
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from gpuwatch.app.plan_use import LaunchUtilisation
    from gpuwatch.domain.planning.utilisation import UtilisedPrice

_EXAMPLE = (15.0, 70.0, 90.0, 100.0)
_COLUMNS = (right("use"), right("$ a useful hour"), right("idle $/h", drop=1), text(""))
_OWN_COLUMNS = (
    left("launch"),
    left("GPU"),
    right("$/GPU-h"),
    right("cost $", drop=2),
    right("use"),
    right("$ a useful hour"),
    right("wasted $", drop=3),
    text("", drop=4),
)


@click.command(
    cls=Command,
    examples=(
        "gpuwatch plan use --price 4.00 --use 15",
        "gpuwatch plan use --launches",
    ),
)
@value_option("--price", Usd(), "USD per GPU-hour.", metavar="USD")
@value_option(
    "--use",
    Between(0, 100),
    "Utilisation in percent; may be repeated.",
    name="uses",
    multiple=True,
    metavar="PERCENT",
)
@value_option("--low", Between(0, 100), "Utilisation under this is a bottleneck.", 70.0)
@value_option("--good", Between(0, 100), "Utilisation from this on is good.", 90.0)
@click.option("--launches", "own", is_flag=True, help="Judge your own launches by their measured utilisation.")
@value_option("--since", click.STRING, "With --launches: start of the period.", "30d")
@json_option
@config_option
def use(
    price: Decimal | None,
    uses: tuple[float, ...],
    low: float,
    good: float,
    own: bool,
    since: str,
    as_json: bool,
    config: str | None,
) -> int:
    """Compute the cost of a useful hour: price ÷ utilisation."""
    from gpuwatch.app.plan_use import own_use_json, own_uses, plan_use_json
    from gpuwatch.bootstrap import real_now
    from gpuwatch.bootstrap.settings_loading import load_settings

    if not own:
        refuse_given("requires --launches", "since", "config")
    if low > good:
        raise UsageError("--low must be at or below --good")
    if own and (price is not None or uses):
        raise UsageError("--launches takes price and utilisation from your own launches: omit --price and --use")
    if own:
        now = real_now()
        start = moment(since, now)
        mine = own_uses(load_settings(config), start, low, good)
        if as_json:
            json_out(own_use_json(start, now, mine))
        else:
            _print_own(mine, low, good)
        return Exit.DONE if any(one.price for one in mine) else Exit.CANNOT_TELL
    if price is None:
        raise UsageError("expected --price USD per GPU-hour, or --launches")
    found = [price_at_utilisation(price, percent, low, good) for percent in uses or _EXAMPLE]
    if as_json:
        json_out(plan_use_json(price, found))
    else:
        _print(price, found, low, good)
    return Exit.DONE


def _print(price: Decimal, found: Sequence[UtilisedPrice], low: float, good: float) -> None:
    rows = [
        (f"{one.percent:g} %", _useful(one), amount_text(one.idle_usd_hour), _advice(one, low, good)) for one in found
    ]
    table(_COLUMNS, rows, title=f"${price} per GPU-hour")
    note(METHOD_TEXT)


def _print_own(mine: Sequence[LaunchUtilisation], low: float, good: float) -> None:
    if mine:
        table(_OWN_COLUMNS, [_own_cells(one, low, good) for one in mine])
    if any(one.price for one in mine):
        wasted = sum(one.wasted_usd for one in mine if one.price)
        note(f"{METHOD_TEXT}, mean of each launch's samples; {dollars(wasted)} in total paid for idle time")
    else:
        note("not enough data: " + ("no provider reported GPU utilisation" if mine else "no launches in that time"))


def _own_cells(one: LaunchUtilisation, low: float, good: float) -> tuple[str, ...]:
    launch, price = one.launch, one.price
    cells = launch.launch_id, f"{launch.gpu_count}× {launch.gpu}", f"{one.usd_gpu_hour:.3f}", f"{one.cost_usd:.2f}"
    if price is None:
        return (*cells, "–", "–", "–", "not measured")
    return (*cells, f"{price.percent:.0f} %", _useful(price), f"{one.wasted_usd:.2f}", _advice(price, low, good))


def _useful(one: UtilisedPrice) -> str:
    return "–" if one.useful_usd_hour is None else amount_text(one.useful_usd_hour)


def _advice(one: UtilisedPrice, low: float, good: float) -> str:
    return {
        UtilisationVerdict.BOTTLENECK: f"under {low:g} %: find what the GPU waits for before you rent more",
        UtilisationVerdict.WASTEFUL: f"under {good:g} %: use a larger batch, or a smaller GPU",
        UtilisationVerdict.GOOD: "well used",
    }[one.verdict]
