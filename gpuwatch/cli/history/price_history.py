"""`gpuwatch history`: the price of a GPU over time, from the store or from a file of price rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import click
import msgspec

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
from gpuwatch.cli.chart import line_chart
from gpuwatch.cli.html import html_option, png_option, recorded_page, refuse_html_with, save_page, save_picture
from gpuwatch.cli.options import (
    VERIFIED,
    Between,
    PastOptions,
    completes,
    csv_option,
    json_option,
    past_options,
    settings_option,
)
from gpuwatch.cli.output import echo, json_out, record_output
from gpuwatch.cli.terminal_tables import Column, csv_out, left, right, table
from gpuwatch.domain.history.price_series import unobserved_gaps
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.json_view import usd_number
from gpuwatch.domain.market.offer import clean

if TYPE_CHECKING:
    from gpuwatch.app.history.price_history import PriceHistoryResult
    from gpuwatch.domain.history.price_series import PricePeriod
    from gpuwatch.settings import Settings

_CHART_POINTS_MIN = 3
_NO_DATA = "no data: never polled. Is `gpuwatch run` running, and is this GPU in a watch or under [record]?"


@click.command(
    cls=Command,
    examples=(
        "gpuwatch history H100",
        "gpuwatch history 'RTX 4090' --since 7d --every 1h --under 0.35",
        "gpuwatch history H100 --data prices.csv.gz --png h100.png",
    ),
)
@click.argument("gpu", required=False, shell_complete=completes("gpus"))
@click.option("--gpu", "gpu_option", default=None, hidden=True, shell_complete=completes("gpus"))
@click.option("--days", type=Between(min=0.05, max=3660), default=None, hidden=True)
@past_options("30d")
@click.option("--every", type=click.Choice(["1h", "1d", "1w"]), default=None, help="Period of each line.")
@click.option(
    "--under",
    "under_usd",
    type=Between(min=0, min_open=True, max=1_000_000),
    multiple=True,
    metavar="USD",
    help="Show the share of time with a price at or under this; may be repeated.",
)
@VERIFIED
@csv_option()
@png_option
@html_option
@json_option
@settings_option
def history(
    gpu: str | None,
    gpu_option: str | None,
    days: float | None,
    past: PastOptions,
    verified: bool,
    as_csv: bool,
    png: Path | None,
    dark: bool,
    html: Path | None,
    as_json: bool,
    settings: Settings,
    **options: Any,
) -> int:
    """Show the price of a GPU (family or model) over time: USD per GPU-hour, commission included.

    The columns show the lowest price, and the price that 25, 50 and 75 % of the offers did not exceed, weighted by
    their time on sale; "listed" is the lowest without commission. Prices include the marketplace's default disk. A line
    without prices says whether there were no offers or the market was not polled.

    Exit codes: 0 done, 2 usage, 3 no data for that time.
    """
    from gpuwatch.app.history.price_history import PriceHistoryRequest, price_chart, price_history
    from gpuwatch.bootstrap import real_now

    refuse_html_with(html, as_data=as_csv or as_json)
    gpu_name, zone = gpu or gpu_option, ZoneInfo(settings.timezone)
    if gpu_name is None or (gpu and gpu_option):
        raise click.UsageError("expected one GPU, such as: gpuwatch history H100.")
    past = msgspec.structs.replace(past, since=f"{days}d") if days else past
    period = past.request(real_now(), verified=verified)
    request = PriceHistoryRequest(gpu=gpu_name, zone=zone, is_for_programs=as_csv or as_json, **period, **options)
    result = price_history(settings, request)
    title = past.title(clean(gpu_name)) + (", verified hosts" if verified else "")
    with record_output() as recording:
        if as_csv or as_json:
            _print_machine_readable(result, as_csv, is_list=gpu is None)
        else:
            print_periods(result.track.points, title, zone, result.every.value == "1h")
            _print_sums(result, zone)
    if not result.track.series.known:
        past.note_older_prices(settings, result.gpus, request.since)
        return Exit.CANNOT_TELL
    heading = f"{title}: USD per GPU-hour, commission included"
    charts = [price_chart(result, heading, zone)] if png or html else []
    verdict = _verdict(result.track.points)
    if png:
        save_picture(png, heading, charts, [verdict, f"times in {zone}"], dark=dark)
    if html:
        save_page(html, recorded_page(heading, [verdict], charts, recording))
    return Exit.DONE


def _verdict(points: Sequence[PricePeriod]) -> str:
    prices = [price for point in points if (price := usd_number(point.min_with_commission_microusd)) is not None]
    verdict = "no offers in that time"
    if prices:
        verdict = f"lowest price {min(prices):.4f} to {max(prices):.4f}, latest {prices[-1]:.4f}"
    return f"{verdict} ({len(prices)} of {count_text(len(points), 'period')} have a price)"


def _print_machine_readable(result: PriceHistoryResult, as_csv: bool, *, is_list: bool) -> None:
    """CSV or JSON; with the old option `--gpu` the JSON is a bare list, as in earlier versions."""
    from gpuwatch.app.history.price_history import period_views, price_history_json

    if as_csv:
        csv_out([point.json() for point in period_views(result)])
    else:
        json_out(period_views(result) if is_list else price_history_json(result))


def print_periods(points: Sequence[PricePeriod], title: str, zone: tzinfo, by_hour: bool) -> None:
    """A chart and a table."""
    if not any(point.polled for point in points):
        click.echo(f"{title}: {_NO_DATA}")
        return
    points = points[next(i for i, point in enumerate(points) if point.polled) :]  # the store begins there
    title += ": USD per GPU-hour, commission included"
    is_line = sum(point.min_microusd is not None for point in points) >= _CHART_POINTS_MIN
    click.echo(f"{_chart(points, title, zone, by_hour)}\n" if is_line else title)
    table(_columns(zone, "%Y-%m-%d %H:%M" if by_hour else "%Y-%m-%d %a"), _fold_empty(points))


def _chart(points: Sequence[PricePeriod], title: str, zone: tzinfo, by_hour: bool) -> str:
    shape = "%d %b %H:%M" if by_hour else "%Y-%m-%d"
    return line_chart(
        [point.starts_at.timestamp() for point in points],
        {
            "lowest": [usd_number(point.min_with_commission_microusd) for point in points],
            "median": [usd_number(point.median_with_commission_microusd) for point in points],
        },
        title,
        unknown=[not point.polled for point in points],
        x_text=lambda at_s: datetime.fromtimestamp(at_s, zone).strftime(shape),
    )


def _fold_empty(points: Sequence[PricePeriod]) -> list[PricePeriod]:
    """Consecutive periods without prices as one line."""
    folded: list[PricePeriod] = []
    for (is_empty, _), group in groupby(points, key=lambda point: (point.min_microusd is None, point.polled)):
        same = list(group)
        if is_empty:
            hours, known_hours = sum(point.hours for point in same), sum(point.known_hours for point in same)
            same = [msgspec.structs.replace(same[0], hours=hours, known_hours=known_hours)]
        folded += same
    return folded


def _columns(zone: tzinfo, shape: str) -> tuple[Column, ...]:
    def price(name: str) -> Callable[[PricePeriod], str]:
        return lambda point: "" if (microusd := getattr(point, name)) is None else f"{microusd / 1e6:.4f}"

    def lowest(point: PricePeriod) -> str:
        if point.min_microusd is None:
            return "no offers" if point.polled else "no data"
        return price("min_with_commission_microusd")(point)

    def coverage(point: PricePeriod) -> str:
        return "" if point.known_hours == point.hours else f"{point.known_hours} of {point.hours} h"

    return (
        left("", lambda point: point.starts_at.astimezone(zone).strftime(shape)),
        right("lowest", lowest),
        right("25 %", price("q1_with_commission_microusd"), drop=3),
        right("median", price("median_with_commission_microusd")),
        right("75 %", price("q3_with_commission_microusd"), drop=3),
        right("listed", price("min_microusd"), drop=2),
        right("offers", lambda point: "" if point.min_microusd is None else point.offers, drop=4),
        right("known", coverage, drop=5),
    )


def _print_sums(result: PriceHistoryResult, zone: tzinfo) -> None:
    """How much of the time is known, and how long the price was under each `--under`."""
    series = result.track.series
    if not series.known:
        return
    gaps = unobserved_gaps(series)
    line = f"known: {series.known} of {len(series.polled)} h ({result.source})"
    if gaps:
        longest = max(gaps, key=lambda gap: gap.hours)
        at = longest.starts_at.astimezone(zone).strftime("%Y-%m-%d %H:%M")
        line += f"; {len(gaps)} gap{'s' if len(gaps) > 1 else ''}, the longest {longest.hours} h from {at}"
    echo(line)
    for usd, share in result.under:
        percent = "–" if share.share is None else f"{share.share:.1%}".replace("%", " %")
        echo(
            f"at or under {usd:.4f}: {percent} of the known time"
            f" ({share.under_s / 3600:.1f} of {share.known_s / 3600:.1f} h; gaps excluded)"
        )
