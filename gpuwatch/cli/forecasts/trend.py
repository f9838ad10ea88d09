"""`gpuwatch forecasts trend`: how a GPU's rent changes over the years."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command, method_option, wants_method
from gpuwatch.cli.options import completes, json_option, settings_option
from gpuwatch.cli.output import echo, json_out, note
from gpuwatch.cli.terminal_tables import left, right, table, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuwatch.app.forecasts.trend import TrendResult
    from gpuwatch.settings import Settings

_TRENDS = (left("GPU"), right("a year"), right("95 % interval"), right("quarters", drop=2), text("sources", drop=1))
_PRICES = (left("source"), left("GPU"), right("first"), right("last"), right("change"), right("quarters", drop=1))


@click.command(cls=Command, examples=('gpuwatch forecasts trend "H100 SXM"', "gpuwatch forecasts trend --spot"))
@click.argument("gpu", required=False, shell_complete=completes("gpus"))
@click.option("--spot", is_flag=True, help="Spot prices instead of on-demand ones.")
@click.option("--own", is_flag=True, help="Only your own history, without the public series.")
@method_option
@json_option
@settings_option
def trend(gpu: str | None, spot: bool, own: bool, as_json: bool, settings: Settings) -> int:
    """Show how a GPU's rent changes over the years: percent a year, with a 95 % interval.

    Prices are quarterly medians: the public series that come with gpuwatch (mostly list prices of clouds), and the
    quarters of your own history. Without GPU: each GPU with at least four quarters.

    Exit codes: 0 done, 2 usage, 3 too few quarters.
    """
    from gpuwatch.app.forecasts.trend import LIST_PRICES_TEXT, long_trends, trend_json, trend_sentence
    from gpuwatch.domain.forecasts.long_trend import TREND_METHOD_TEXT

    found = long_trends(settings, gpu, spot=spot, own=own)
    if as_json:
        json_out(trend_json(found))
    elif gpu is not None:
        echo(trend_sentence(found[0]))
        _print_series(found[0])
    elif found:
        _print_all(found)
    else:
        echo("Too few prices: a trend needs four quarters.")
    if not (own or as_json) and any(one.trend for one in found):
        note(LIST_PRICES_TEXT)
    if wants_method() and not as_json:
        note(TREND_METHOD_TEXT)
    return Exit.DONE if any(one.trend for one in found) else Exit.CANNOT_TELL


def _print_all(found: Sequence[TrendResult]) -> None:
    from gpuwatch.app.forecasts.trend import interval_text

    fell = sum(one.trend is not None and one.trend.high < 0 for one in found)
    echo(f"Of {len(found)} GPUs, {fell} became cheaper over the years by more than chance.\n")
    rows = [
        (one.gpu, f"{100 * trend.a_year:+.1f} %", interval_text(trend), f"{trend.quarters}", ", ".join(trend.sources))
        for one in found
        if (trend := one.trend) is not None
    ]
    table(_TRENDS, rows)


def _print_series(result: TrendResult) -> None:
    """Each series by its first and its last quarter."""
    from gpuwatch.domain.forecasts.long_trend import quarter_text

    rows = []
    for source, gpu in dict.fromkeys((price.source, price.gpu) for price in result.prices):
        one = [price for price in result.prices if (price.source, price.gpu) == (source, gpu)]
        ends = [f"${price.usd_gpu_hour:.2f} ({quarter_text(price.quarter)})" for price in (one[0], one[-1])]
        change = f"{100 * (one[-1].usd_gpu_hour / one[0].usd_gpu_hour - 1):+.1f} %" if len(one) > 1 else "–"
        rows.append((source, gpu, *ends, change, f"{len(one)}"))
    if rows:
        echo("")
        table(_PRICES, rows)
