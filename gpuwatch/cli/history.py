"""`gpuwatch history`: price over time for a GPU, from the store."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli.options import config_option, json_option

if TYPE_CHECKING:
    from gpuwatch.analysis.summary import TrackPoint

Wanted = tuple[str, int | None, str | None, bool]  # GPU, count, provider, spot

_BARS = "▁▂▃▄▅▆▇█"
_BY_HOUR_UP_TO_DAYS = 3
_COLUMNS = (
    ("", "right"),  # of one width: it must not wrap
    ("lowest", "right"),
    ("listed", "right"),
    ("25 %", "right"),
    ("median", "right"),
    ("75 %", "right"),
    ("offers", "right"),
)


@click.command()
@click.option("--gpu", required=True, help="A GPU family or model.")
@click.option("--count", type=click.IntRange(min=1), default=None, help="How many GPUs. Default: any.")
@click.option("--spot", is_flag=True, help="Interruptible offers.")
@click.option("--provider", default=None, help="Only this provider; NAME:listed for list prices.")
@click.option("--days", type=click.FloatRange(min=0.05, max=3660), default=30, show_default=True, help="How far back.")
@click.option("--csv", "as_csv", is_flag=True, help="CSV on standard output, hour by hour.")
@json_option
@config_option
def history(
    gpu: str,
    count: int | None,
    spot: bool,
    provider: str | None,
    days: float,
    as_csv: bool,
    as_json: bool,
    config: str | None,
) -> None:
    """Price over time for a GPU, from the store: USD per GPU-hour.

    "lowest" holds the commission; the others are listed prices with the marketplace's default disk: the lowest, and
    what a quarter, half and three quarters of the offers cost at most, by time on offer. A line without prices says
    whether nothing was on offer, or nobody looked.
    """
    from zoneinfo import ZoneInfo

    from gpuwatch.wiring import real_now
    from gpuwatch.wiring.loading import load_settings

    loaded = load_settings(config)
    now = real_now()
    by_hour = as_csv or as_json or days <= _BY_HOUR_UP_TO_DAYS
    zone = ZoneInfo(loaded.timezone)
    points = _track(loaded, (gpu, count, provider, spot), now - timedelta(days=days), now, None if by_hour else zone)
    if as_json:
        from gpuwatch.cli.screen import json_out

        json_out([_json(point) for point in points])
    elif as_csv:
        print_csv(points)
    else:
        print_track(points, f"{gpu}{f' × {count}' if count else ''}{', spot' if spot else ''}", zone, by_hour)


def _gpus(text: str, seen: frozenset[str]) -> tuple[str, ...]:
    """Canonical names that are meant; a spelling that no catalogue knows, but a marketplace used, stands for itself."""
    from gpuwatch.errors import UsageError
    from gpuwatch.market.gpu_names import catalog

    found = catalog().wanted(text)
    if not found and text not in seen:
        near = " or ".join(catalog().suggest(text))
        raise UsageError(f"no GPU is called {text!r}" + (f"; did you mean {near}?" if near else ""))
    return found or (text,)


def _track(loaded: Any, wanted: Wanted, since: datetime, now: datetime, day_in: tzinfo | None) -> list[TrackPoint]:
    from gpuwatch.storage.database import open_database
    from gpuwatch.storage.migrate import require_head
    from gpuwatch.storage.questions import Part, price_track, spellings_seen

    database = open_database(loaded.database_url)
    try:
        require_head(database)
        gpu, count, provider, spot = wanted
        part = Part(gpus=_gpus(gpu, spellings_seen(database)), provider=provider, gpu_count=count, spot=spot)
        commissions = {name: provider.commission for name, provider in loaded.providers.items()}
        return price_track(database, part, since, now, day_in=day_in, commissions=commissions)
    finally:
        database.close()


def print_track(points: Sequence[TrackPoint], title: str, zone: tzinfo, by_hour: bool) -> None:
    """A sparkline and a table."""
    from gpuwatch.cli.screen import table

    if not any(point.looked for point in points):
        click.echo(
            f"{title}: no data; nobody has looked (is `gpuwatch run` running, and is this GPU watched or recorded?)"
        )
        return
    points = points[next(i for i, point in enumerate(points) if point.looked) :]  # before: nobody was there to look
    click.echo(f"{title}, lowest listed price: {sparkline([point.min_microusd for point in points])}")
    shape = "%Y-%m-%d %H:%M" if by_hour else "%Y-%m-%d %a"
    table(_COLUMNS, [(point.starts_at.astimezone(zone).strftime(shape), *_cells(point)) for point in points])


def sparkline(prices: Sequence[int | None]) -> str:
    """One character a price, higher for dearer; a space where there is none."""
    known = [price for price in prices if price is not None]
    low, high = min(known, default=0), max(known, default=0)
    step = (high - low) / (len(_BARS) - 1) or 1
    return "".join(" " if price is None else _BARS[round((price - low) / step)] for price in prices)


def _cells(point: TrackPoint) -> tuple[str, ...]:
    if point.min_microusd is None:
        return ("no offers" if point.looked else "no data", "", "", "", "", "")
    prices = (
        point.min_with_commission_microusd,
        point.min_microusd,
        point.q1_microusd,
        point.median_microusd,
        point.q3_microusd,
    )
    return (*("" if price is None else f"{price / 1e6:.4f}" for price in prices), str(point.offers))


def _json(point: TrackPoint) -> dict[str, Any]:
    from gpuwatch.cli.screen import rfc3339

    return {
        "starts_at": rfc3339(point.starts_at),
        "looked": point.looked,
        "offers": point.offers,
        "min_price_usd_gpu_hour": _usd(point.min_with_commission_microusd),
        "min_listed_usd_gpu_hour": _usd(point.min_microusd),
        "q1_listed_usd_gpu_hour": _usd(point.q1_microusd),
        "median_listed_usd_gpu_hour": _usd(point.median_microusd),
        "q3_listed_usd_gpu_hour": _usd(point.q3_microusd),
    }


def print_csv(points: Sequence[TrackPoint]) -> None:
    """CSV on standard output."""
    rows = [_json(point) for point in points]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(rows[0] if rows else ())
    for row in rows:
        writer.writerow([neutral(value) for value in row.values()])


def neutral(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula."""
    if isinstance(value, str) and value[:1] in {"=", "+", "-", "@", "\t", "\r", "\n", "|", "%"}:
        return "'" + value
    return value


def _usd(microusd: int | None) -> float | None:
    return None if microusd is None else microusd / 1e6
