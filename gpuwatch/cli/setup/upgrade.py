"""`gpuwatch upgrade`: what a new version changes, the backup before it, and the upgrade; the way back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.base import Command, refuse_given
from gpuwatch.cli.options import json_option, settings_option
from gpuwatch.cli.output import echo, json_out
from gpuwatch.domain.market.figure_text import count_text, size_text

if TYPE_CHECKING:
    from gpuwatch.app.setup.maintenance.downgrade import StoreDowngrade
    from gpuwatch.app.setup.maintenance.upgrade import StoreUpgrade
    from gpuwatch.settings import Settings


@click.command(cls=Command, examples=("gpuwatch upgrade --check", "gpuwatch upgrade"))
@click.option("--check", is_flag=True, help="Say what would change, and change nothing.")
@click.option("--backed-up", is_flag=True, help="You have a backup: write none. PostgreSQL requires it.")
@json_option
@settings_option
def upgrade(check: bool, backed_up: bool, as_json: bool, settings: Settings) -> None:
    """Upgrade the database to this program's schema, or create it. Backs it up first.

    After an update of gpuwatch; `gpuwatch run` does the same without a backup. Stop a running daemon first: it is an
    older version. With SQLite, gpuwatch checks this. To go back: gpuwatch store downgrade.
    """
    from gpuwatch.app.setup.maintenance.upgrade import planned_upgrade, upgrade_store

    if check:
        refuse_given("cannot be combined with --check", "backed_up")
    report = planned_upgrade(settings) if check else upgrade_store(settings, is_backed_up=backed_up)
    if as_json:
        json_out(report)
        return
    if not report.steps:
        echo("Nothing to upgrade: the database and the settings fit this version.")
    for label, value in _lines(report):
        echo(f"{label:<10} {value}".rstrip())
    if check and report.steps:
        echo("nothing was changed; to upgrade: gpuwatch upgrade")


def _lines(report: StoreUpgrade) -> Iterator[tuple[str, str]]:
    yield "database", report.database
    if not report.steps:
        yield "schema", f"{report.schema_to}: nothing to do"
    elif report.schema_from is None:
        yield "schema", f"{report.schema_to}: {'created' if report.is_done else 'there is no database yet'}"
    else:
        steps = count_text(len(report.steps), "migration")
        yield "schema", f"{report.schema_from} → {report.schema_to}, {steps}{' done' if report.is_done else ''}"
        yield from ((f"  {revision}", text) for revision, text in report.changes.items())
    yield "settings", f"{report.settings_file or 'no file'}: valid for this version; no key has a new name"
    if report.backup is not None:
        size = "is written first" if report.backup_bytes is None else f"{size_text(report.backup_bytes)}, verified"
        yield "backup", f"{report.backup}: {size}"
    if report.backup_command is not None:
        yield "backup", report.backup_command


@click.command(cls=Command, examples=("gpuwatch store downgrade --check", "gpuwatch store downgrade"))
@click.option("--check", is_flag=True, help="Say what would change, and change nothing.")
@json_option
@settings_option
def downgrade(check: bool, as_json: bool, settings: Settings) -> None:
    """Put back the database as it was before the last upgrade, for an older version of gpuwatch.

    It takes the backup that the upgrade wrote, and copies the database of today beside it first. Stop the daemon
    before, and install the older version after: this version would upgrade the database again. PostgreSQL: pg_restore.
    """
    from gpuwatch.app.setup.maintenance.downgrade import downgrade_store, planned_downgrade

    report = planned_downgrade(settings) if check else downgrade_store(settings)
    if as_json:
        json_out(report)
        return
    for label, value in _downgrade_lines(report):
        echo(f"{label:<10} {value}".rstrip())
    echo(
        "now install the older version of gpuwatch; this one would upgrade the database again"
        if report.is_done
        else "nothing was changed; to go back: gpuwatch store downgrade"
    )


def _downgrade_lines(report: StoreDowngrade) -> Iterator[tuple[str, str]]:
    yield "database", report.database
    yield "schema", f"{report.schema_from} → {report.schema_to}{', done' if report.is_done else ''}"
    yield "backup", f"{report.backup}, written {report.written_at}"
    yield "kept as", f"{report.kept}{'' if report.is_done else ': is written first'}"
    lost = count_text(report.launches_lost, "launch") if report.launches_lost else "no launch"
    yield "missing", f"{lost} and everything else that was recorded after {report.written_at}"
