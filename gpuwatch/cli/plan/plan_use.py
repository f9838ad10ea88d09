"""`gpuwatch plan use`: the cost of a useful hour at a given utilisation, of own launches, or of own machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command, refuse_given, verbose_option, wants_method
from gpuwatch.cli.options import (
    FILE,
    Between,
    Usd,
    as_struct,
    config_option,
    duration_option,
    json_option,
    moment,
    value_option,
)
from gpuwatch.cli.output import json_out, note
from gpuwatch.cli.plan.plan_use_machines import MachineOptions, advice_text, use_of_machines
from gpuwatch.cli.terminal_tables import left, right, table, text
from gpuwatch.domain.market.money import dollars, per_gpu_hour, per_hour
from gpuwatch.domain.plan.buy import UTILISATION_METHOD_TEXT, price_at_utilisation
from gpuwatch.domain.plan.machines.machine_use import Thresholds
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from gpuwatch.app.plan.plan_use import LaunchUtilisation
    from gpuwatch.domain.plan.buy import UtilisedPrice

_EXAMPLE = (15.0, 70.0, 90.0, 100.0)
_COLUMNS = (right("use"), right("a useful hour"), right("idle", drop=1), text(""))
_OWN_COLUMNS = (
    left("launch"),
    left("GPU"),
    right("GPU price"),
    right("cost", drop=2),
    right("use"),
    right("a useful hour"),
    right("wasted", drop=3),
    text("", drop=4),
)


@click.command(
    cls=Command,
    examples=(
        "gpuwatch plan use --price 4.00 --use 15",
        "gpuwatch plan use --launches",
        "gpuwatch use --ssh gpu1 --ssh root@10.0.0.7:2222 --for 10m",
        "gpuwatch use --machines --price 1.10",
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
@as_struct(
    "machines",
    MachineOptions,
    click.option("--ssh", "hosts", metavar="HOST", multiple=True, help="Read the GPUs of a machine; may be repeated."),
    click.option("--machines", "listed", is_flag=True, help="Read the machines in [own_machines] of the settings."),
    value_option("--key", FILE, "With --ssh: private key. Default: your own keys and agent.", name="key"),
    duration_option("--for", "for_s", "With --ssh: read for so long. Default: once."),
    duration_option("--every", "every_s", "With --for: time between two readings.", "10s"),
)
@verbose_option
@json_option
@config_option
def use(
    price: Decimal | None,
    uses: tuple[float, ...],
    low: float,
    good: float,
    own: bool,
    since: str,
    machines: MachineOptions,
    as_json: bool,
    config: str | None,
) -> int:
    """Compute the cost of a useful hour: price ÷ utilisation.

    With --ssh or --machines: how busy the GPUs of machines are that gpuwatch did not rent, what their idle hours cost,
    and which smaller card would do their work. No password is asked for.

    Exit codes: 0 done, 2 usage, 3 a machine could not be read, or no launch was measured.
    """
    from gpuwatch.app.plan.plan_use import own_use_json, own_uses, plan_use_json
    from gpuwatch.bootstrap import real_now
    from gpuwatch.bootstrap.settings_loading import load_settings

    if low > good:
        raise UsageError("--low must be at or below --good")
    if machines.are_meant:
        return use_of_machines(machines, price, Thresholds(low, good), config, as_json=as_json)
    refuse_given("requires --ssh or --machines", "key", "for_s", "every_s")
    if not own:
        refuse_given("requires --launches", "since", "config")
    if own and (price is not None or uses):
        raise UsageError("--launches takes price and utilisation from your own launches: omit --price and --use")
    if own:
        now = real_now()
        start = moment(since, now)
        utilisations = own_uses(load_settings(config), start, low, good)
        if as_json:
            json_out(own_use_json(start, now, utilisations))
        else:
            _print_own(utilisations, low, good)
        return Exit.DONE if any(utilisation.price for utilisation in utilisations) else Exit.CANNOT_TELL
    if price is None:
        raise UsageError("expected --price USD per GPU-hour, or --launches")
    prices = [price_at_utilisation(price, percent, low, good) for percent in uses or _EXAMPLE]
    if as_json:
        json_out(plan_use_json(price, prices))
    else:
        _print(price, prices, low, good)
    return Exit.DONE


def _print(price: Decimal, prices: Sequence[UtilisedPrice], low: float, good: float) -> None:
    rows = [
        (
            f"{price.percent:g} %",
            _useful_text(price),
            per_hour(price.idle_usd_hour, most=2),
            advice_text(price.verdict, low, good),
        )
        for price in prices
    ]
    table(_COLUMNS, rows, title=f"Each useful hour, at {per_gpu_hour(price)}:")
    if wants_method():
        note(UTILISATION_METHOD_TEXT)


def _print_own(utilisations: Sequence[LaunchUtilisation], low: float, good: float) -> None:
    if utilisations:
        table(_OWN_COLUMNS, [_own_cells(utilisation, low, good) for utilisation in utilisations])
    if any(utilisation.price for utilisation in utilisations):
        wasted = sum(utilisation.wasted_usd for utilisation in utilisations if utilisation.price)
        note(f"{UTILISATION_METHOD_TEXT}, mean of each launch's samples; {dollars(wasted)} in total paid for idle time")
    else:
        note(
            "not enough data: "
            + ("no provider reported GPU utilisation" if utilisations else "no launches in that time")
        )


def _own_cells(utilisation: LaunchUtilisation, low: float, good: float) -> tuple[str, ...]:
    launch, price = utilisation.launch, utilisation.price
    cells = (
        launch.launch_id,
        f"{launch.gpu_count}× {launch.gpu}",
        per_gpu_hour(utilisation.usd_gpu_hour, least=3, most=3),
        dollars(utilisation.cost_usd),
    )
    if price is None:
        return (*cells, "–", "–", "–", "not measured")
    return (
        *cells,
        f"{price.percent:.0f} %",
        _useful_text(price),
        dollars(utilisation.wasted_usd),
        advice_text(price.verdict, low, good),
    )


def _useful_text(price: UtilisedPrice) -> str:
    return "–" if price.useful_usd_hour is None else dollars(price.useful_usd_hour)
