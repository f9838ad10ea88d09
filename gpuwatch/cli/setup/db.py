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
from gpuwatch.domain.market.figure_text import count_text

if TYPE_CHECKING:
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.store_stats import StoreStats


@click.command(cls=Command, examples=("gpuwatch store upgrade",))
@json_option
@settings_option
def upgrade(as_json: bool, settings: Settings) -> None:
    """Create the database, or upgrade it to this program's schema. `gpuwatch run` does this automatically.

    Stop a running daemon first: it is an older version. With SQLite, gpuwatch checks this.
    """
    from gpuwatch.app.setup.store import upgrade_store

    report = upgrade_store(settings)
    if as_json:
        json_out(report)
    else:
        click.echo(
            f"{report.database}: {'upgraded through ' + ', '.join(report.steps) if report.steps else 'nothing to do'}"
        )


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
        click.echo(f"{report.path}: {_size(report.bytes)}, {count_text(sum(report.rows.values()), 'row')}, verified")


@click.command(cls=Command, examples=("gpuwatch store prune --keep-days 90",))
@click.option("--keep-days", type=Between(min=0.25, max=36_500), required=True, help="Days of exact prices to keep.")
@json_option
@settings_option
def prune(keep_days: float, as_json: bool, settings: Settings) -> None:
    """Delete prices, polls, sent alerts and ended jobs older than --keep-days; keep hourly prices. A daemon may run."""
    from gpuwatch.app.setup.store import prune_json, prune_store

    report = prune_store(settings, timedelta(days=keep_days))
    if as_json:
        json_out(prune_json(report))
    else:
        dropped = (
            f"dropped {count_text(report.intervals, 'price')}, {count_text(report.polls, 'poll')}, "
            f"{report.alerts:,} sent alerts"
        )
        dropped += f", {count_text(report.jobs, 'job')}" if report.jobs else ""
        click.echo(f"{dropped}; kept from {local(report.kept_from, settings.timezone)} on")


@click.command(cls=Command, examples=("gpuwatch store stats",))
@json_option
@settings_option
def stats(as_json: bool, settings: Settings) -> None:
    """Show the size and contents of the store."""
    from gpuwatch.app.setup.store import store_stats

    statistics = store_stats(settings)
    if as_json:
        json_out(statistics)
        return
    for label, value in _lines(statistics, settings.timezone):
        click.echo(f"{label:<22} {value}")


def _lines(stats: StoreStats, timezone: str) -> Iterator[tuple[str, str]]:
    rows = stats.rows
    yield "database", stats.place
    yield "engine", stats.engine
    yield "schema", stats.schema or "none"
    yield "size", _size(stats.bytes) + (f", {_size(stats.free_bytes)} of it free" if stats.free_bytes else "")
    span = f", {local(stats.first_poll_at, timezone)} to {local(stats.last_poll_at, timezone)}"
    yield "polls", f"{rows.get('poll', 0):,}{span if stats.first_poll_at else ''}"
    yield "offers", f"{rows.get('series', 0):,}, {stats.on_offer:,} on sale now"
    yield "prices", f"{rows.get('price_interval', 0):,}"
    if stats.prices_kept_from:
        yield "", f"exact since {local(stats.prices_kept_from, timezone)}; hourly before that"
    rolled = f", up to {local(stats.rolled_up_to, timezone)}" if stats.rolled_up_to else ""
    yield "hourly figures", f"{rows.get('hourly', 0):,}{rolled}"
    yield "alerts, launches", f"{rows.get('alert', 0):,}, {rows.get('launch', 0):,}"
    if stats.bytes_per_offer_and_poll is not None:
        yield "bytes", f"{stats.bytes_per_offer_and_poll:.2f} for each offer of each poll ({stats.rows_received:,})"


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.4g} {unit}"
        size /= 1000
    return f"{size:.4g} GB"
