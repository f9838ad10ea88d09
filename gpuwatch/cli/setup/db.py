"""`gpuwatch store`: the store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.base import Command
from gpuwatch.cli.options import Between, json_option, settings_option
from gpuwatch.cli.output import json_out, local
from gpuwatch.domain.market.figure_text import count_text, size_text

if TYPE_CHECKING:
    from gpuwatch.settings import Settings
    from gpuwatch.storage.history.store_growth import StoreGrowth
    from gpuwatch.storage.setup.store_stats import StoreStats

_MUCH_FREE = 0.2  # of the file


@click.command(cls=Command, examples=("gpuwatch store backup gpuwatch-backup.db --force",))
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Replace TARGET if it exists.")
@json_option
@settings_option
def backup(target: Path, force: bool, as_json: bool, settings: Settings) -> None:
    """Copy the database to TARGET while it is in use, and check the copy.

    To restore it, stop gpuwatch and replace the database with the copy.
    """
    from gpuwatch.app.setup.store import back_up_store, backup_json

    report = back_up_store(settings, target, force=force)
    if as_json:
        json_out(backup_json(report))
    else:
        click.echo(
            f"{report.path}: {size_text(report.bytes)}, {count_text(sum(report.rows.values()), 'row')}, verified"
        )


@click.command(cls=Command, examples=("gpuwatch store prune --keep-days 90", "gpuwatch store prune --vacuum"))
@click.option("--keep-days", type=Between(min=0.25, max=36_500), help="Days to keep; default: [history] keep.")
@click.option("--vacuum", is_flag=True, help="Then rewrite SQLite's file without free space. Stop the daemon first.")
@json_option
@settings_option
def prune(keep_days: float | None, vacuum: bool, as_json: bool, settings: Settings) -> None:
    """Delete what [history] keep no longer keeps, now and at once; the daemon does it a little every minute.

    With --keep-days: prices, polls, sent alerts and ended jobs that are older; hourly prices stay. A daemon may run.
    """
    from gpuwatch.app.setup.store import prune_json, prune_store, rebuild_store

    report = prune_store(settings, None if keep_days is None else timedelta(days=keep_days))
    size = rebuild_store(settings) if vacuum else None
    if as_json:
        json_out(prune_json(report) | ({"bytes": size} if vacuum else {}))
        return
    dropped = (
        f"dropped {count_text(report.intervals, 'price')}, {count_text(report.polls, 'poll')}, "
        f"{report.alerts:,} sent alerts"
    )
    dropped += f", {count_text(report.jobs, 'job')}" if report.jobs else ""
    kept = f"kept from {local(report.kept_from, settings.timezone)} on" if report.kept_from else "all prices are kept"
    click.echo(f"{dropped}; {kept}{'' if size is None else f'; the file has {size_text(size)}'}")


@click.command(cls=Command, examples=("gpuwatch store stats",))
@json_option
@settings_option
def stats(as_json: bool, settings: Settings) -> None:
    """Show the size, contents and growth of the store, and what is deleted next."""
    from gpuwatch.app.setup.store import stats_json, store_stats

    statistics, growth = store_stats(settings)
    if as_json:
        json_out(stats_json(statistics, growth))
        return
    for label, value in (*_lines(statistics, settings.timezone), *_growth_lines(growth)):
        click.echo(f"{label:<22} {value}".rstrip())


def _growth_lines(growth: StoreGrowth) -> Iterator[tuple[str, str]]:
    yield (
        "growth",
        f"{size_text(growth.bytes_a_month)} a month; in a year the store has {size_text(growth.bytes_in_a_year)}",
    )
    spans = ", ".join(f"{name} {span}" for name, span in growth.keep.items())
    if growth.is_in_force:
        yield "kept", f"{spans}; next {size_text(growth.bytes_over)} are deleted"
    else:
        yield "kept", f"all, as [history] keep is not set; {spans} would delete {size_text(growth.bytes_over)}"
    yield "", ""
    about = "about " if growth.are_bytes_estimated else ""
    yield "table", f"{'rows':>13} {about + 'size':>12} {'a month':>10} {'in a year':>10} {'over':>11}"
    for one in growth.tables:
        if one.rows:
            month = "-" if one.bytes_a_month is None else size_text(one.bytes_a_month)
            figures = f"{one.rows:>13,} {size_text(one.bytes):>12} {month:>10} {size_text(one.bytes_in_a_year):>10}"
            yield one.table, f"{figures} {one.rows_over:>11,}"


def _lines(stats: StoreStats, timezone: str) -> Iterator[tuple[str, str]]:
    rows = stats.rows
    yield "database", stats.place
    yield "engine", stats.engine
    yield "schema", stats.schema or "none"
    yield "size", size_text(stats.bytes) + (f", {size_text(stats.free_bytes)} of it free" if stats.free_bytes else "")
    if stats.free_bytes > _MUCH_FREE * stats.bytes:
        yield "", "to give it back: stop the daemon, then gpuwatch store prune --vacuum"
    span = f", {local(stats.first_poll_at, timezone)} to {local(stats.last_poll_at, timezone)}"
    yield "polls", f"{rows.get('poll', 0):,}{span if stats.first_poll_at else ''}"
    yield "offers", f"{rows.get('series', 0):,}, {stats.on_offer:,} on sale now"
    yield "prices", f"{rows.get('price_interval', 0):,}"
    if stats.prices_kept_from:
        yield "", f"exact since {local(stats.prices_kept_from, timezone)}; hourly before that"
    rolled = f", up to {local(stats.rolled_up_to, timezone)}" if stats.rolled_up_to else ""
    yield "hourly figures", f"{rows.get('hourly', 0):,}{rolled}"
    for url, verified_until in stats.lakes.items():
        yield "lake", f"{url}, complete until {local(verified_until, timezone)}" if verified_until else f"{url}, empty"
    yield "alerts, launches", f"{rows.get('alert', 0):,}, {rows.get('launch', 0):,}"
    if stats.bytes_per_offer_and_poll is not None:
        yield "bytes", f"{stats.bytes_per_offer_and_poll:.2f} for each offer of each poll ({stats.rows_received:,})"
