"""`gpuwatch history`: price over time for a GPU, from the store or from a file of price rows."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli.command import Command
from gpuwatch.cli.options import Between, completes, config_option, json_option
from gpuwatch.cli.past import past_options
from gpuwatch.cli.png import png_option
from gpuwatch.cli.tables import left, right

if TYPE_CHECKING:
    from gpuwatch.app.price_history import PriceHistoryResult
    from gpuwatch.domain.analysis.summary import PeriodLength, PricePeriod

_BARS = "▁▂▃▄▅▆▇█"
_BY_HOUR_UP_TO = timedelta(days=3)
_BY_DAY_UP_TO = timedelta(days=120)
_DAY = timedelta(days=1)
_LEAST_OF_A_LINE = 3  # points; fewer are no chart
_NOBODY = "no data; nobody has looked (is `gpuwatch run` running, and is this GPU watched or recorded?)"
_COLUMNS = (
    left(""),
    right("lowest"),
    right("25 %", drop=3),
    right("median"),
    right("75 %", drop=3),
    right("listed", drop=2),
    right("offers", drop=4),
    right("known", drop=5),
)


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
@click.option("--every", type=click.Choice(["1h", "1d", "1w"]), default=None, help="How long a line's time is.")
@click.option(
    "--under",
    type=Between(min=0, min_open=True, max=1_000_000),
    multiple=True,
    metavar="USD",
    help="Also: how much of the time it was at or under this price. May be given several times.",
)
@click.option("--csv", "as_csv", is_flag=True, help="CSV on standard output.")
@png_option
@json_option
@config_option
def history(
    gpu: str | None,
    gpu_option: str | None,
    days: float | None,
    count: str | None,
    spot: str,
    provider: str | None,
    since: str,
    until: str | None,
    data: Path | None,
    every: str | None,
    under: tuple[float, ...],
    as_csv: bool,
    png: Path | None,
    as_json: bool,
    config: str | None,
) -> int:
    """Price over time for a GPU (a family or a model): USD per GPU-hour, commission included.

    The lowest price, and what a quarter, half and three quarters of the offers cost at most, by time on offer;
    "listed" is the lowest without commission. All with the marketplace's default disk. A line without prices says
    whether nothing was on offer, or nobody looked.
    """
    from zoneinfo import ZoneInfo

    from gpuwatch.app.price_history import PriceHistoryRequest, period_json, price_history, price_history_json
    from gpuwatch.bootstrap import real_now
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.cli import Exit
    from gpuwatch.cli.past import hint_at_older_prices, scope_of, span_of
    from gpuwatch.domain.market.text import clean

    named = gpu or gpu_option
    if named is None or (gpu and gpu_option):
        raise click.UsageError("name one GPU, as in: gpuwatch history H100.")
    if as_csv and as_json:
        raise click.UsageError("--csv and --json: one of them.")
    loaded, now = load_settings(config), real_now()
    start, end = span_of(f"{days}d" if days else since, until, now)
    zone = ZoneInfo(loaded.timezone)
    asked = PriceHistoryRequest(
        gpu=named,
        scope=scope_of(None, count, spot, provider),
        since=start,
        until=end,
        data=data,
        every=lambda span, apart: _every(every, span, apart, for_machines=as_csv or as_json),
        zone=zone,
        under_usd=under,
    )
    found = price_history(loaded, asked)
    title = f"{clean(named)}{f' × {count}' if count else ''}{_SPOT[spot]}"
    if as_json:
        from gpuwatch.cli.output import json_out

        points = [period_json(point) for point in found.track.points]
        json_out(points if gpu is None else price_history_json(found, points))  # --gpu answers as it always did
    elif as_csv:
        print_csv(found.track.points)
    else:
        print_track(found.track.points, title, zone, found.every.value == "1h")
        print_sums(found, zone)
    if not found.track.series.known:
        if data is None:
            hint_at_older_prices(loaded, found.gpus, provider, start)
        return Exit.CANNOT_TELL
    if png:
        save_picture(png, found, f"{title}: USD per GPU-hour, commission included", zone)
    return Exit.DONE


_SPOT = {"no": "", "only": ", spot", "any": ", spot or not"}


def _every(wanted: str | None, span: timedelta, apart: timedelta, *, for_machines: bool) -> PeriodLength:
    """As wanted; else hours for machines, and for people as many lines as one looks through."""
    from gpuwatch.domain.analysis.summary import PeriodLength

    if wanted:
        return PeriodLength(wanted)
    if for_machines or span <= _BY_HOUR_UP_TO:
        return PeriodLength.HOUR
    return PeriodLength.DAY if span <= _BY_DAY_UP_TO and apart <= _DAY else PeriodLength.WEEK


def print_track(points: Sequence[PricePeriod], title: str, zone: tzinfo, by_hour: bool) -> None:
    """A chart and a table."""
    from gpuwatch.cli.tables import table

    if not any(point.polled for point in points):
        click.echo(f"{title}: {_NOBODY}")
        return
    points = points[next(i for i, point in enumerate(points) if point.polled) :]  # before: nobody was there to look
    title += ": USD per GPU-hour, commission included"
    is_line = sum(point.min_microusd is not None for point in points) >= _LEAST_OF_A_LINE
    click.echo(f"{_chart(points, title, zone, by_hour)}\n" if is_line else title)
    shape = "%Y-%m-%d %H:%M" if by_hour else "%Y-%m-%d %a"
    table(_COLUMNS, [(point.starts_at.astimezone(zone).strftime(shape), *_cells(point)) for point in _folded(points)])


def _chart(points: Sequence[PricePeriod], title: str, zone: tzinfo, by_hour: bool) -> str:
    from gpuwatch.cli.chart import line_chart
    from gpuwatch.domain.market.money import usd_number

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


def _folded(points: Sequence[PricePeriod]) -> list[PricePeriod]:
    """Lines without prices that say the same, as one."""
    from msgspec.structs import replace

    folded: list[PricePeriod] = []
    for (is_empty, _), group in groupby(points, key=lambda point: (point.min_microusd is None, point.polled)):
        same = list(group)
        if is_empty:
            hours, known = sum(point.hours for point in same), sum(point.known_hours for point in same)
            same = [replace(same[0], hours=hours, known_hours=known)]
        folded += same
    return folded


def print_sums(found: PriceHistoryResult, zone: tzinfo) -> None:
    """What is known, and how long it was under the prices that were asked about."""
    from gpuwatch.domain.analysis.summary import unobserved_gaps

    series = found.track.series
    if not series.known:
        return
    gaps = unobserved_gaps(series)
    line = f"known: {series.known} of {len(series.polled)} h ({found.source})"
    if gaps:
        longest = max(gaps, key=lambda gap: gap.hours)
        at = longest.starts_at.astimezone(zone).strftime("%Y-%m-%d %H:%M")
        line += f"; {len(gaps)} gap{'s' if len(gaps) > 1 else ''}, the longest {longest.hours} h from {at}"
    click.echo(line)
    for usd, share in found.under:
        percent = "–" if share.share is None else f"{share.share:.1%}".replace("%", " %")
        click.echo(
            f"at or under {usd:.4f}: {percent} of the time that is known"
            f" ({share.under_s / 3600:.1f} of {share.known_s / 3600:.1f} h; gaps do not count)"
        )


def sparkline(prices: Sequence[int | None]) -> str:
    """One character a price, higher for dearer; a space where there is none."""
    known = [price for price in prices if price is not None]
    low, high = min(known, default=0), max(known, default=0)
    step = (high - low) / (len(_BARS) - 1) or 1
    return "".join(" " if price is None else _BARS[round((price - low) / step)] for price in prices)


def _cells(point: PricePeriod) -> tuple[str, ...]:
    known = "" if point.known_hours == point.hours else f"{point.known_hours} of {point.hours} h"
    if point.min_microusd is None:
        return ("no offers" if point.polled else "no data", "", "", "", "", "", known)
    prices = (
        point.min_with_commission_microusd,
        point.q1_with_commission_microusd,
        point.median_with_commission_microusd,
        point.q3_with_commission_microusd,
        point.min_microusd,
    )
    return (*("" if price is None else f"{price / 1e6:.4f}" for price in prices), str(point.offers), known)


def print_csv(points: Sequence[PricePeriod]) -> None:
    """CSV on standard output."""
    from gpuwatch.app.price_history import period_json

    rows = [period_json(point) for point in points]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(rows[0] if rows else ())
    for row in rows:
        writer.writerow([escape_formula(value) for value in row.values()])


def escape_formula(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula."""
    if isinstance(value, str) and value[:1] in {"=", "+", "-", "@", "\t", "\r", "\n", "|", "%"}:
        return "'" + value
    return value


def save_picture(path: Path, found: PriceHistoryResult, title: str, zone: tzinfo) -> None:
    """The same as a picture; grey where nobody looked."""
    from gpuwatch.cli.png import save_png
    from gpuwatch.domain.analysis.summary import unobserved_gaps

    def draw(axes: Any) -> None:
        from matplotlib import dates

        ticks: Any = dates  # only a part of it has types
        points = [*found.track.points, found.track.points[-1]]  # the last step reaches to its end
        times = [point.starts_at for point in points]
        times[-1] += timedelta(hours=points[-1].hours)
        nan = float("nan")
        low, q1, median, q3 = (
            [nan if (price := getattr(point, f"{name}_with_commission_microusd")) is None else price / 1e6
             for point in points]
            for name in ("min", "q1", "median", "q3")
        )  # fmt: skip
        axes.fill_between(times, q1, q3, step="post", alpha=0.2, label="25 – 75 %")
        axes.step(times, median, where="post", label="median")
        axes.step(times, low, where="post", label="lowest")
        for gap in unobserved_gaps(found.track.series):
            axes.axvspan(gap.starts_at, gap.starts_at + timedelta(hours=gap.hours), color="0.9", zorder=0)
        axes.set_title(title)
        locator = ticks.AutoDateLocator(tz=zone)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ticks.ConciseDateFormatter(locator, tz=zone))
        axes.set_xlabel(str(zone))
        axes.legend()

    save_png(path, draw)
