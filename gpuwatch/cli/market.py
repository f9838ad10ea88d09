"""`gpuwatch market`: each GPU on one page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.command import Command
from gpuwatch.cli.options import Between, completes, config_option, json_option
from gpuwatch.cli.past import past_options
from gpuwatch.cli.tables import left, right

if TYPE_CHECKING:
    from gpuwatch.app.market import MarketOverview
    from gpuwatch.domain.analysis.gpu_status import GpuStatus

_STALE = timedelta(hours=3)
_UNKNOWN = "–"
_COLUMNS = (
    left("GPU"),
    right("now"),
    right("24 h", drop=1),
    right("7 d", drop=2),
    right("30 d", drop=3),
    right("place", drop=4),
    right("offers", drop=5),
    right("under", drop=6),
    right("life", drop=7),
    left(""),  # how old, if it is
)


@click.command(
    cls=Command,
    examples=(
        "gpuwatch market",
        "gpuwatch market H100 A100 --since 7d --under 1.20",
    ),
)
@click.argument("gpus", nargs=-1, metavar="[GPU]...", shell_complete=completes("gpus"))
@click.option(
    "--gpu",
    "more",
    multiple=True,
    help="Only this GPU (family or model); may be given several times.",
    shell_complete=completes("gpus"),
)
@past_options("30d")
@click.option(
    "--under",
    type=Between(min=0, min_open=True, max=1_000_000),
    default=None,
    metavar="USD",
    help="How long do offers at or under this last? Default: each GPU's median price.",
)
@json_option
@config_option
def market(
    gpus: tuple[str, ...],
    more: tuple[str, ...],
    count: str | None,
    spot: str,
    provider: str | None,
    since: str,
    until: str | None,
    data: Path | None,
    under: float | None,
    as_json: bool,
    config: str | None,
) -> int:
    """Each GPU on one page: USD per GPU-hour, commission included.

    "now" is the cheapest at the newest look; then what that is against 24 hours, 7 and 30 days before. "place": in so
    many of the known hours since --since it was cheaper than now (0 %: it never was). "life": half of the offers that
    came to or under "under" stayed so at least so long. "–": not known.
    """
    from gpuwatch.app.market import MarketRequest, market_json, market_overview
    from gpuwatch.bootstrap import real_now
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.cli import Exit
    from gpuwatch.cli.past import hint_at_older_prices, scope_of, span_of

    loaded = load_settings(config)
    start, end = span_of(since, until, real_now())
    asked = MarketRequest(
        gpus=(*gpus, *more),
        scope=scope_of(None, count, spot, provider),
        since=start,
        until=end,
        data=data,
        under_usd=under,
    )
    page = market_overview(loaded, asked)
    if as_json:
        from gpuwatch.cli.output import json_out

        json_out(market_json(page, asked))
    else:
        print_page(page, asked.until, loaded.timezone)
    if not page.rows and data is None:
        hint_at_older_prices(loaded, None, provider, start)
    return Exit.DONE if page.rows else Exit.CANNOT_TELL


def print_page(page: MarketOverview, now: datetime, timezone: str) -> None:
    """A table, and what it is as of."""
    from gpuwatch.cli.output import local, note
    from gpuwatch.cli.tables import table

    if page.looked_at is None:
        click.echo("no data; nobody has looked (is `gpuwatch run` running, and is anything watched or recorded?)")
        return
    click.echo(f"USD per GPU-hour, commission included, as of {local(page.looked_at, timezone)} ({page.source})")
    rows = [_cells(row, page.looked_at, now) for row in page.rows]
    shown = len(_COLUMNS) if any(row[-1] for row in rows) else len(_COLUMNS) - 1
    table(_COLUMNS[:shown], [row[:shown] for row in rows])
    age = now - page.looked_at
    if age > _STALE:
        note(f"the newest look is {lasting(age.total_seconds())} old: what stands under now may be gone")


def _cells(row: GpuStatus, newest: datetime, now: datetime) -> tuple[str, ...]:
    looked_at = datetime.fromtimestamp(row.polled_s, UTC)
    return (
        row.gpu,
        _price(row.now),
        *(_change(change) for change in row.changes.values()),
        _UNKNOWN if row.percentile is None else f"{row.percentile:.0%}".replace("%", " %"),
        str(row.offers),
        _price(row.under),
        _life(row),
        f"{lasting((now - looked_at).total_seconds())} old" if newest - looked_at > _STALE else "",
    )


def _change(change: float | None) -> str:
    if change is None:
        return _UNKNOWN
    return f"{change:+.1%}".replace("%", " %") if round(change, 3) else "0.0 %"


def _life(row: GpuStatus) -> str:
    if not row.is_lifetime_known:
        return _UNKNOWN
    median_s = row.lifetime.median_s
    return f"> {lasting(row.lifetime.longest_s)}" if median_s is None else lasting(median_s)


def lasting(seconds: float) -> str:
    """A length of time in one unit, for a person."""
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86_400:.1f} d"


def _price(microusd: int | None) -> str:
    from gpuwatch.domain.market.money import price_text

    return _UNKNOWN if microusd is None else price_text(microusd / 1e6, least=4)
