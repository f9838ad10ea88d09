"""`gpuwatch db`: the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli.command import Group
from gpuwatch.cli.options import Between, config_option, json_option
from gpuwatch.cli.output import local

if TYPE_CHECKING:
    from gpuwatch.storage.database import Database


@click.group(
    cls=Group,
    examples=(
        "gpuwatch db stats",
        "gpuwatch db backup gpuwatch-backup.db",
    ),
)
def db() -> None:
    """Upgrade, back up, prune or measure the store."""


@db.command(examples=("gpuwatch db upgrade",))
@json_option
@config_option
def upgrade(as_json: bool, config: str | None) -> None:
    """Upgrade the database to this program's schema, or create it. `gpuwatch run` does so by itself."""
    from gpuwatch.storage.migrate import upgrade as bring_up

    with _database(config, any_schema=True) as database:
        steps = bring_up(database)
        if as_json:
            _json({"database": database.place, "steps": steps})
        else:
            click.echo(f"{database.place}: {'upgraded through ' + ', '.join(steps) if steps else 'nothing to do'}")


@db.command(examples=("gpuwatch db backup gpuwatch-backup.db --force",))
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Replace TARGET if it exists.")
@json_option
@config_option
def backup(target: Path, force: bool, as_json: bool, config: str | None) -> None:
    """Copy the database to TARGET while it is in use, and check the copy.

    To restore it, stop gpuwatch and replace the database with the copy.
    """
    from gpuwatch.storage.backup import backup as copy

    with _database(config, any_schema=True, read_only=True) as database:
        report = copy(database, target, force=force)
    if as_json:
        _json({"path": report.path, "bytes": report.bytes, "rows": report.rows, "verified": True})
    else:
        click.echo(f"{report.path}: {_size(report.bytes)}, {sum(report.rows.values()):,} rows, verified")


@db.command(examples=("gpuwatch db prune --keep-days 90",))
@click.option("--keep-days", type=Between(min=0.25, max=36_500), required=True, help="Days of exact prices to keep.")
@json_option
@config_option
def prune(keep_days: float, as_json: bool, config: str | None) -> None:
    """Delete exact prices, polls and sent alerts older than --keep-days; hourly prices stay. The daemon may run."""
    from datetime import timedelta

    from gpuwatch.bootstrap import real_now
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.domain.market.json_values import rfc3339
    from gpuwatch.storage.prune import prune as drop

    with _database(config) as database:
        done = drop(database, timedelta(days=keep_days), real_now())
    if as_json:
        _json(
            {
                "kept_from": rfc3339(done.kept_from),
                "intervals": done.intervals,
                "series": done.series,
                "polls": done.polls,
                "alerts": done.alerts,
            }
        )
    else:
        click.echo(
            f"dropped {done.intervals:,} prices, {done.polls:,} polls, {done.alerts:,} sent alerts;"
            f" kept from {local(done.kept_from, load_settings(config).timezone)} on"
        )


@db.command(examples=("gpuwatch db stats",))
@json_option
@config_option
def stats(as_json: bool, config: str | None) -> None:
    """Show the size of the store and what it holds."""
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.storage.store_stats import read_store_stats as count

    with _database(config, read_only=True) as database:
        found = count(database)
    if as_json:
        import msgspec

        _json(msgspec.to_builtins(found))
        return
    for label, value in _lines(found, load_settings(config).timezone):
        click.echo(f"{label:<22} {value}")


def _lines(found: Any, timezone: str) -> Iterator[tuple[str, str]]:
    def shown(moment: datetime | None) -> str:
        return local(moment, timezone)

    yield "database", found.place
    yield "engine", found.engine
    yield "schema", found.schema or "none"
    yield "size", f"{_size(found.bytes)}" + (f", {_size(found.free_bytes)} of it free" if found.free_bytes else "")
    span = f", {shown(found.first_poll_at)} to {shown(found.last_poll_at)}" if found.first_poll_at else ""
    yield "polls", f"{found.rows.get('poll', 0):,}{span}"
    yield "offers", f"{found.rows.get('series', 0):,}, {found.on_offer:,} on sale now"
    yield "prices", f"{found.rows.get('price_interval', 0):,}"
    if found.prices_kept_from:
        yield "", f"exact since {shown(found.prices_kept_from)}; hourly before that"
    rolled = f", up to {shown(found.rolled_up_to)}" if found.rolled_up_to else ""
    yield "hourly figures", f"{found.rows.get('hourly', 0):,}{rolled}"
    yield "alerts, launches", f"{found.rows.get('alert', 0):,}, {found.rows.get('launch', 0):,}"
    if found.bytes_per_offer_and_poll is not None:
        yield "bytes", f"{found.bytes_per_offer_and_poll:.2f} for each offer of each poll ({found.rows_received:,})"


@contextmanager
def _database(config: str | None, *, any_schema: bool = False, read_only: bool = False) -> Iterator[Database]:
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.storage.database import open_database
    from gpuwatch.storage.migrate import require_head

    database = open_database(load_settings(config).database_url, read_only=read_only)
    try:
        if not any_schema:
            require_head(database)
        yield database
    finally:
        database.close()


def _json(value: Any) -> None:
    from gpuwatch.cli.output import json_out

    json_out(value)


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.4g} {unit}"
        size /= 1000
    return f"{size:.4g} GB"
