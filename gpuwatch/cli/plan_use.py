"""`gpuwatch plan use`: what an hour of real work costs at a GPU's utilisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command
from gpuwatch.cli.options import Between, config_option, json_option
from gpuwatch.cli.tables import left, right, text
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from gpuwatch.app.plan_use import OwnUse
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
@click.option("--price", default=None, metavar="USD", help="USD per GPU-hour.")
@click.option(
    "--use",
    "uses",
    multiple=True,
    type=Between(0, 100),
    metavar="PERCENT",
    help="Utilisation in percent; may be repeated.",
)
@click.option("--low", type=Between(0, 100), default=70.0, show_default=True, help="Below this: a bottleneck.")
@click.option("--good", type=Between(0, 100), default=90.0, show_default=True, help="From this on: well used.")
@click.option("--launches", "own", is_flag=True, help="Judge your own launches by their measured utilisation.")
@click.option("--since", default="30d", show_default=True, help="With --launches: how far back to read.")
@json_option
@config_option
def use(
    price: str | None,
    uses: tuple[float, ...],
    low: float,
    good: float,
    own: bool,
    since: str,
    as_json: bool,
    config: str | None,
) -> int:
    """Show what an hour of real work costs: price ÷ utilisation."""
    if low > good:
        raise UsageError("--low is above --good")
    if own:
        if price is not None or uses:
            raise UsageError("--launches takes price and use from your own launches: omit --price and --use")
        return _own(since, low, good, as_json, config)
    if price is None:
        raise UsageError("use --price USD per GPU-hour, or --launches for your own")
    _asked(_usd(price), uses or _EXAMPLE, low, good, as_json)
    return Exit.DONE


def _usd(text: str) -> Decimal:
    from gpuwatch.cli.options import parse_usd

    return parse_usd("--price", text)


def _asked(price: Decimal, uses: Sequence[float], low: float, good: float, as_json: bool) -> None:
    from gpuwatch.app.plan_use import METHOD, plan_use_json
    from gpuwatch.cli.output import json_out, note
    from gpuwatch.cli.tables import table
    from gpuwatch.domain.planning.utilisation import price_at_utilisation

    found = [price_at_utilisation(price, percent, low, good) for percent in uses]
    if as_json:
        json_out(plan_use_json(price, found))
        return
    rows = [
        (f"{one.percent:g} %", _money(one.useful_usd_hour), _money(one.idle_usd_hour), _advice(one, low, good))
        for one in found
    ]
    table(_COLUMNS, rows, title=f"${price} per GPU-hour")
    note(METHOD)


def _own(since: str, low: float, good: float, as_json: bool, config: str | None) -> int:
    from gpuwatch.app.plan_use import own_use_json, own_uses
    from gpuwatch.bootstrap import real_now
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.cli.options import moment
    from gpuwatch.domain.planning.utilisation import price_at_utilisation

    now = real_now()
    start = moment(since, now)
    found = own_uses(load_settings(config), start)
    judged = [
        (one, None if one.percent is None else price_at_utilisation(one.usd_gpu_hour, one.percent, low, good))
        for one in found
    ]
    known = sum(judged_ is not None for _, judged_ in judged)
    if as_json:
        from gpuwatch.cli.output import json_out

        json_out(own_use_json(start, now, judged))
    else:
        _print_own(judged, low, good)
    return Exit.DONE if known else Exit.CANNOT_TELL


def _print_own(judged: Sequence[tuple[OwnUse, UtilisedPrice | None]], low: float, good: float) -> None:
    from gpuwatch.app.plan_use import METHOD, wasted_usd
    from gpuwatch.cli.output import note
    from gpuwatch.cli.tables import table
    from gpuwatch.domain.market.money import dollars

    if judged:
        table(_OWN_COLUMNS, [_own_row(one, found, low, good) for one, found in judged])
    if all(found is None for _, found in judged):
        note("not enough data: " + ("no provider said how its GPUs were used" if judged else "nothing was rented then"))
        return
    wasted = sum(wasted_usd(one) for one, found in judged if found is not None)
    note(f"{METHOD}, mean of the samples of each launch; in all {dollars(wasted)} bought no work")


def _own_row(one: OwnUse, found: UtilisedPrice | None, low: float, good: float) -> tuple[str, ...]:
    from gpuwatch.app.plan_use import wasted_usd

    launch = one.launch
    first = (
        launch.launch_id,
        f"{launch.gpu_count}× {launch.gpu}",
        f"{one.usd_gpu_hour:.3f}",
        f"{one.cost_usd:.2f}",
    )
    if found is None:
        return (*first, "–", "–", "–", "not measured")
    useful = _money(found.useful_usd_hour)
    return (*first, f"{found.percent:.0f} %", useful, f"{wasted_usd(one):.2f}", _advice(found, low, good))


def _advice(one: UtilisedPrice, low: float, good: float) -> str:
    from gpuwatch.domain.planning.utilisation import UtilisationVerdict

    return {
        UtilisationVerdict.BOTTLENECK: f"under {low:g} %: find what the GPU waits for before you rent more",
        UtilisationVerdict.WASTEFUL: f"under {good:g} %: a larger batch, or a smaller GPU",
        UtilisationVerdict.GOOD: "well used",
    }[one.verdict]


def _money(usd: Decimal | None) -> str:
    from gpuwatch.domain.market.money import amount_text

    return "–" if usd is None else amount_text(usd)
