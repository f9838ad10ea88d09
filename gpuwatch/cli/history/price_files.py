"""`gpuwatch store import` and `gpuwatch store export`: read and write files of price rows."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.bootstrap import real_now
from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
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
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.money import per_gpu_hour
from gpuwatch.domain.market.offer import OfferKind

if TYPE_CHECKING:
    from gpuwatch.app.history.price_files import FileImport
    from gpuwatch.settings import Settings

_KIND_WORDS = {"live": "live prices", "listed": "list prices"}
_SOURCE_KINDS = {"market": "live", "rate-card": "listed"}
_JUMPS_SHOWN = 5
_CLOCK_SLACK = timedelta(minutes=1)  # polls within one second are spread over the following seconds


@click.command(
    "import", cls=Command, examples=("gpuwatch store import prices.csv.gz", "gpuwatch store import --dry-run *.parquet")
)
@click.argument("files", nargs=-1, required=False, type=FILE)
@click.option("--recorded", is_flag=True, help="Also two weeks of public prices, moved to end now: to try things out.")
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
    files: tuple[Path, ...],
    recorded: bool,
    kind: str | None,
    source: str | None,
    dry_run: bool,
    as_json: bool,
    settings: Settings,
) -> int:
    """Load price rows recorded by others into the store.

    FILES are CSV (gzipped or not) or Parquet with the columns observed_at, provider, offer_key, region, gpu_name_raw,
    gpu_count, gpu_mem_gib, spot, price_usd_hour: see docs/data.md. Known rows are skipped. The daemon
    may be running; its own records do not change.
    """
    from gpuwatch.app.history.price_files import import_files, import_json, import_recorded

    if not files and not recorded:
        raise click.UsageError("name a FILE, or --recorded.")
    if source is not None and kind not in (None, _SOURCE_KINDS[source]):
        raise click.UsageError(f"--source {source} means --kind {_SOURCE_KINDS[source]}: use only one of them.")
    kind = kind or (None if source is None else _SOURCE_KINDS[source])
    offer_kind = None if kind is None else OfferKind(kind)
    imports = []
    once = [real_now()] if recorded else []
    public = (import_recorded(settings, now, dry_run=dry_run, progress=progress) for now in once)
    for file_import in chain(import_files(settings, files, offer_kind, dry_run=dry_run, progress=progress), public):
        imports.append(file_import)
        if not as_json:
            _print_import(file_import, settings.timezone)
        _print_notes(file_import, settings.timezone)
    if as_json:
        json_out(import_json(imports))
    return Exit.DONE if all(file_import.is_understood for file_import in imports) else Exit.FAILED


@click.command(
    cls=Command,
    examples=("gpuwatch store export prices.csv.gz --since 30d", "gpuwatch store export --lake s3://bucket/gpuwatch"),
)
@click.argument("target", metavar="[FILE]", required=False, type=click.Path(path_type=Path, allow_dash=True))
@value_option("--lake", click.STRING, "Instead of FILE: bring a lake of Parquet files up to date: a folder, or s3://….")
@gpu_option("--gpu", "GPU family or model; may be repeated. Default: all.", multiple=True)
@past_options("all", default_spot="any")
@click.option("--imported-too", is_flag=True, help="Include imported prices.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@json_option
@settings_option
def export(
    target: Path | None,
    lake: str | None,
    gpu: tuple[str, ...],
    past: PastOptions,
    imported_too: bool,
    force: bool,
    as_json: bool,
    settings: Settings,
) -> int:
    """Write the store's prices to FILE, for `gpuwatch store import` or any program that reads tables.

    FILE ends in .csv, .csv.gz or .parquet; - writes CSV to standard output. Writes one row per offer and poll, and one
    row without offer_key per poll: see docs/data.md. --lake writes all that is over and not there yet, whatever the
    other options are: see docs/lake.md.
    """
    from gpuwatch.app.history.price_files import ExportRequest, export_json, export_prices, known_names_of_all

    if (target is None) == (lake is None):
        raise click.UsageError("name either a FILE or --lake.")
    if lake is not None:
        return _export_lake(settings, lake, as_json=as_json)
    assert target is not None
    to_screen = str(target) == "-"
    if to_screen and as_json:
        raise click.UsageError("--json describes a file: pass a file name.")
    now = real_now()
    request = ExportRequest(
        scope=past.scope(known_names_of_all(settings, gpu, past.data)),
        since=moment(past.since, now),
        until=now + _CLOCK_SLACK if past.until is None else moment(past.until, now),
        data=past.data,
        imported_too=imported_too,
    )
    result = export_prices(settings, request, sys.stdout if to_screen else target, force=force)
    for reason, number in result.skipped.items():
        note(f"{past.data}: {count_text(number, 'row')} were skipped: {reason}")
    if result.why_none is not None:
        note(f"nothing was written: {result.why_none}")
        return Exit.CANNOT_TELL
    if past.count is not None:
        note("the file holds some offer sizes only; an import treats it as the whole market")
    if as_json:
        json_out(export_json(target, result))
    elif not to_screen:
        click.echo(f"{target}: {count_text(result.rows, 'row')}, {count_text(result.bytes, 'byte')}")
    return Exit.DONE


def _export_lake(settings: Settings, place: str, *, as_json: bool) -> int:
    from gpuwatch.app.history.lake_export import export_lake, lake_json

    with progress("lake: ") as report:
        result = export_lake(settings, place, report)
    if as_json:
        json_out(lake_json(result))
        return Exit.DONE
    until = f", complete until {local(result.verified_until, settings.timezone)}" if result.verified_until else ""
    click.echo(f"{result.url}: {count_text(result.files, 'new file')}, {count_text(result.rows, 'row')}{until}")
    return Exit.DONE


def _print_import(file_import: FileImport, timezone: str) -> None:
    from gpuwatch.domain.history.market_history import moment_of

    imported, new = file_import.report, "would be new" if file_import.dry_run else "new"
    click.echo(
        f"{file_import.path}: {count_text(imported.rows, 'row')}: {imported.new:,} {new}, {imported.known:,} known"
        + (f", {imported.duplicates:,} twice" if imported.duplicates else "")
        + (f", {sum(imported.skipped.values()):,} skipped" if imported.skipped else "")
    )
    for (provider, kind), rows in imported.sources.items():
        source_note = (
            "" if kind is not OfferKind.LISTED else f", stored separately: show them with --provider {provider}:listed"
        )
        click.echo(f"  {provider}, {_KIND_WORDS[kind.value]}: {count_text(rows, 'row')}{source_note}")
    first, last = moment_of(imported.first_s), moment_of(imported.last_s)
    if first and last:
        click.echo(f"  {local(first, timezone)} to {local(last, timezone)}, {count_text(imported.polls, 'poll')} {new}")
    for reason, rows in sorted(imported.skipped.items(), key=lambda entry: -entry[1]):
        lines = imported.skipped_lines[reason]
        more = ", …" if rows > len(lines) else ""
        line_text = f"line{'s' if rows > 1 else ''} {', '.join(map(str, lines))}{more}"
        click.echo(f"  skipped: {rows:,}: {reason} ({line_text})")


def _print_notes(file_import: FileImport, timezone: str) -> None:
    for provider in file_import.unknown:
        note(f"{file_import.path}: unknown provider {provider!r}; its prices are stored under that name")
    for provider in file_import.report.rate_cards:
        note(
            f"{file_import.path}: the prices of {provider} never change, as in a price list;"
            " use --source rate-card to keep them separate from offers for rent"
        )
    for jump in file_import.report.jumps[:_JUMPS_SHOWN]:
        at = local(datetime.fromtimestamp(jump.at_s, UTC), timezone)
        prices = f"{jump.gpu_family}{' spot' if jump.spot else ''} prices of {jump.provider}"
        note(
            f"{file_import.path}: all {prices} jump at {at}:"
            f" median {per_gpu_hour(jump.before / 1e6)} to {per_gpu_hour(jump.after / 1e6)}; check the unit"
        )
    if len(file_import.report.jumps) > _JUMPS_SHOWN:
        note(f"{file_import.path}: {len(file_import.report.jumps) - _JUMPS_SHOWN:,} more jumps; list them with --json")
    for overlap in file_import.overlaps:
        note(
            f"{file_import.path}: the store polled {overlap.provider} itself from {local(overlap.since, timezone)} to"
            f" {local(overlap.until, timezone)}: offers in both are counted twice"
        )
