"""`gpuwatch import` and `gpuwatch export`: read and write files of price rows."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.bootstrap import real_now
from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command
from gpuwatch.cli.options import (
    FILE,
    PastOptions,
    gpu_option,
    json_option,
    moment,
    past_options,
    settings_option,
    value_option,
)
from gpuwatch.cli.output import json_out, local, note, progress
from gpuwatch.domain.market.offer import OfferKind

if TYPE_CHECKING:
    from gpuwatch.app.price_files import FileImport
    from gpuwatch.settings import Settings

_KIND_WORDS = {"live": "live prices", "listed": "list prices"}
_SOURCE_KINDS = {"market": "live", "rate-card": "listed"}
_JUMPS_SHOWN = 5
_JUST_NOW = timedelta(minutes=1)  # polls within one second are spread over the following seconds


@click.command("import", cls=Command, examples=("gpuwatch import prices.csv.gz", "gpuwatch import --dry-run *.parquet"))
@click.argument("files", nargs=-1, required=True, type=FILE)
@value_option(
    "--kind",
    click.Choice(["live", "listed"]),
    "Prices of rentable offers, or list prices. Default: the provider's usual kind.",
)
@value_option(
    "--source",
    click.Choice(["market", "rate-card"]),
    "Origin of the prices: offers for rent, or a price list (same as --kind live, --kind listed).",
)
@click.option("--dry-run", is_flag=True, help="Count the new rows and write nothing.")
@json_option
@settings_option
def import_(
    files: tuple[Path, ...], kind: str | None, source: str | None, dry_run: bool, as_json: bool, settings: Settings
) -> int:
    """Load price rows recorded by others into the store.

    FILES are CSV (gzipped or not) or Parquet with the columns observed_at, provider, offer_key, region, gpu_name_raw,
    gpu_count, gpu_mem_gib, spot, price_usd_hour: see docs/data.md. Known rows are skipped. The daemon
    may be running; its own records do not change.
    """
    from gpuwatch.app.price_files import import_files, import_json

    if source is not None and kind not in (None, _SOURCE_KINDS[source]):
        raise click.UsageError(f"--source {source} means --kind {_SOURCE_KINDS[source]}: use only one of them.")
    kind = kind or (None if source is None else _SOURCE_KINDS[source])
    wanted = None if kind is None else OfferKind(kind)
    made = []
    for done in import_files(settings, files, wanted, dry_run=dry_run, progress=progress):
        made.append(done)
        if not as_json:
            _print_import(done, settings.timezone)
        _print_notes(done, settings.timezone)
    if as_json:
        json_out(import_json(made))
    return Exit.DONE if all(done.is_understood for done in made) else Exit.FAILED


@click.command(
    cls=Command,
    examples=("gpuwatch export prices.csv.gz --since 30d", "gpuwatch export - --gpu H100 > h100.csv"),
)
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True))
@gpu_option("--gpu", "GPU family or model; may be repeated. Default: all.", multiple=True)
@past_options("all", default_spot="any")
@click.option("--imported-too", is_flag=True, help="Include imported prices.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@json_option
@settings_option
def export(
    target: Path,
    gpu: tuple[str, ...],
    past: PastOptions,
    imported_too: bool,
    force: bool,
    as_json: bool,
    settings: Settings,
) -> int:
    """Write the store's prices to FILE, for `gpuwatch import` or any program that reads tables.

    FILE ends in .csv, .csv.gz or .parquet; - writes CSV to standard output. Writes one row per offer and poll, and one
    row without offer_key per poll: see docs/data.md.
    """
    from gpuwatch.app.price_files import ExportRequest, export_json, export_prices, known_names_of_all

    to_screen = str(target) == "-"
    if to_screen and as_json:
        raise click.UsageError("--json describes a file: pass a file name.")
    now = real_now()
    wanted = ExportRequest(
        scope=past.scope(known_names_of_all(settings, gpu, past.data)),
        since=moment(past.since, now),
        until=now + _JUST_NOW if past.until is None else moment(past.until, now),
        data=past.data,
        imported_too=imported_too,
    )
    done = export_prices(settings, wanted, sys.stdout if to_screen else target, force=force)
    for reason, number in done.skipped.items():
        note(f"{past.data}: {number:,} rows were skipped: {reason}")
    if done.why_none is not None:
        note(f"nothing was written: {done.why_none}")
        return Exit.CANNOT_TELL
    if past.count is not None:
        note("the file holds some offer sizes only; an import treats it as the whole market")
    if as_json:
        json_out(export_json(target, done))
    elif not to_screen:
        click.echo(f"{target}: {done.rows:,} rows, {done.bytes:,} bytes")
    return Exit.DONE


def _print_import(done: FileImport, timezone: str) -> None:
    from gpuwatch.domain.analysis.market_history import moment_of

    found, new = done.found, "would be new" if done.dry_run else "new"
    click.echo(
        f"{done.path}: {found.rows:,} rows: {found.new:,} {new}, {found.known:,} known"
        + (f", {found.duplicates:,} twice" if found.duplicates else "")
        + (f", {sum(found.skipped.values()):,} skipped" if found.skipped else "")
    )
    for (provider, kind), rows in found.sources.items():
        apart = (
            "" if kind is not OfferKind.LISTED else f", stored separately: show them with --provider {provider}:listed"
        )
        click.echo(f"  {provider}, {_KIND_WORDS[kind.value]}: {rows:,} rows{apart}")
    first, last = moment_of(found.first_s), moment_of(found.last_s)
    if first and last:
        click.echo(f"  {local(first, timezone)} to {local(last, timezone)}, {found.polls:,} polls {new}")
    for reason, rows in sorted(found.skipped.items(), key=lambda one: -one[1]):
        lines = found.skipped_lines[reason]
        more = ", …" if rows > len(lines) else ""
        named = f"line{'s' if rows > 1 else ''} {', '.join(map(str, lines))}{more}"
        click.echo(f"  skipped: {rows:,}: {reason} ({named})")


def _print_notes(done: FileImport, timezone: str) -> None:
    for provider in done.unknown:
        note(f"{done.path}: unknown provider {provider!r}; its prices are stored under that name")
    for provider in done.found.rate_cards:
        note(
            f"{done.path}: the prices of {provider} never change, as in a price list;"
            " use --source rate-card to keep them separate from offers for rent"
        )
    for jump in done.found.jumps[:_JUMPS_SHOWN]:
        at = local(datetime.fromtimestamp(jump.at_s, UTC), timezone)
        note(
            f"{done.path}: all {jump.gpu_family}{' spot' if jump.spot else ''} prices of {jump.provider} jump at {at}:"
            f" median {jump.before / 1e6:.4g} to {jump.after / 1e6:.4g} $/GPU-h; check the unit"
        )
    if len(done.found.jumps) > _JUMPS_SHOWN:
        note(f"{done.path}: {len(done.found.jumps) - _JUMPS_SHOWN:,} more jumps; list them with --json")
    for one in done.overlaps:
        note(
            f"{done.path}: the store polled {one.provider} itself from {local(one.since, timezone)} to"
            f" {local(one.until, timezone)}: offers in both are counted twice"
        )
