"""`gpuwatch market`: one line per GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
from gpuwatch.cli.options import VERIFIED, Between, PastOptions, completes, json_option, past_options, settings_option
from gpuwatch.cli.output import json_out, local, note
from gpuwatch.cli.terminal_tables import Column, cell_width, left, right, table, terminal_width
from gpuwatch.domain.history.market_history import COVERAGE_S
from gpuwatch.domain.market.figure_text import duration_text, percent_text
from gpuwatch.domain.market.money import per_gpu_hour

if TYPE_CHECKING:
    from gpuwatch.app.market.market import MarketOverview
    from gpuwatch.domain.history.gpu_status import GpuStatus
    from gpuwatch.settings import Settings


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
    help="Only this GPU (family or model); may be repeated.",
    shell_complete=completes("gpus"),
)
@past_options("30d")
@click.option(
    "--under",
    type=Between(min=0, min_open=True, max=1_000_000),
    default=None,
    metavar="USD",
    help='Price for the column "life". Default: each GPU\'s median price.',
)
@VERIFIED
@json_option
@settings_option
def market(
    gpus: tuple[str, ...],
    more: tuple[str, ...],
    past: PastOptions,
    under: float | None,
    verified: bool,
    as_json: bool,
    settings: Settings,
) -> int:
    """Summarise each GPU on one line: USD per GPU-hour, commission included.

    "now" is the cheapest offer of the newest poll, followed by its change over 24 hours, 7 and 30 days; an old poll, or
    an import, is marked with its age. "rank" is the share of known hours since --since that were cheaper than now
    (0 %: never cheaper). "life" means that half of the offers at or under "under" stayed there at least that long.
    "away": share of the time between the first and last sight of each offer in which it was not on offer, so rented or
    off the market. "new/gone a day": offers that appeared and vanished. "–" means unknown.

    Exit codes: 0 done, 2 usage, 3 no data for that time.
    """
    from gpuwatch.app.market.market import MarketRequest, age_text_of, market_overview, market_view
    from gpuwatch.bootstrap import real_now

    request = MarketRequest(gpus=(*gpus, *more), under_usd=under, **past.request(real_now(), verified=verified))
    page = market_overview(settings, request)
    if as_json:
        json_out(market_view(page, request))
    else:
        newest = None if request.data is None else page.polled_at
        ages = [age_text_of(settings, row, request.until, newest) for row in page.rows]
        _print_overview(page, ages, request.until, settings.timezone)
    if not page.rows:
        past.note_older_prices(settings, None, request.since)
    return Exit.DONE if page.rows else Exit.CANNOT_TELL


def _print_overview(page: MarketOverview, ages: Sequence[str], now: datetime, timezone: str) -> None:
    """A sentence, and a table with the time of its poll."""
    from gpuwatch.app.market.market import market_sentence

    if page.polled_at is None:
        click.echo("no data: never polled. Is `gpuwatch run` running, and is anything in a watch or under [record]?")
        return
    click.echo(f"{market_sentence(page)}\n")
    click.echo(heading(local(page.polled_at, timezone), page.source, terminal_width()))
    table(_columns(dict(zip((row.gpu for row in page.rows), ages, strict=True))), page.rows)
    age = now - page.polled_at
    if age.total_seconds() > COVERAGE_S:
        note(f"the newest poll is {duration_text(age.total_seconds())} old: its offers may be gone")


def heading(as_of: str, source: str, width: int | None) -> str:
    """What the prices are, and where they come from; on two lines if the terminal is too narrow for one."""
    prices, origin = f"Prices per GPU-hour, commission included, as of {as_of}", f"({source})"
    fits = width is None or len(prices) + 1 + cell_width(origin) <= width
    return (" " if fits else "\n").join((prices, origin))


def _columns(ages: Mapping[str, str]) -> tuple[Column, ...]:
    """The columns. `ages`: GPU → the age of an old poll."""

    def change(hours: int) -> Callable[[GpuStatus], str]:
        return lambda row: percent_text(row.changes[hours], sign="+")

    return (
        left("GPU", "gpu"),
        right("now", lambda row: _price(row.now)),
        right("24 h", change(24), drop=1),
        right("7 d", change(7 * 24), drop=2),
        right("30 d", change(30 * 24), drop=3),
        right("rank", lambda row: percent_text(row.percentile, 0), drop=4),
        right("offers", "offers", drop=5),
        right("under", lambda row: _price(row.under), drop=6),
        right("life", _life, drop=7),
        right("away", lambda row: percent_text(row.turnover.away, 0), drop=8),
        right("new/gone a day", _turnover, drop=9),
        left("", lambda row: ages[row.gpu], optional=True),
    )


def _turnover(row: GpuStatus) -> str | None:
    new, gone = row.turnover.new_a_day, row.turnover.gone_a_day
    return None if new is None or gone is None else f"{new:.1f} / {gone:.1f}"


def _life(row: GpuStatus) -> str | None:
    if not row.is_lifetime_known:
        return None
    median_s = row.lifetime.median_s
    return f"> {duration_text(row.lifetime.longest_s)}" if median_s is None else duration_text(median_s)


def _price(microusd: int | None) -> str | None:
    return None if microusd is None else per_gpu_hour(microusd / 1e6, least=4)
