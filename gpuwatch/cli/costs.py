"""`gpuwatch costs`: what was spent, what is billed now, where the month is heading; which commission fits the bill."""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command
from gpuwatch.cli.options import completes, config_option, json_option
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.settings import Settings


@click.command(
    cls=Command,
    examples=(
        "gpuwatch costs",
        "gpuwatch costs --by day --month 2026-10 --csv",
        "gpuwatch costs --calibrate",
    ),
)
@click.option(
    "--by",
    type=click.Choice(["watch", "provider", "day", "launch"]),
    default=None,
    help="One line for each. Default: watch.",
)
@click.option("--month", metavar="YYYY-MM", default=None, help="Another month than this one (UTC).")
@click.option("--refresh", is_flag=True, help="Ask the providers first what they charged.")
@click.option("--calibrate", is_flag=True, help="Ask, and say which commission fits the charges. Changes nothing.")
@click.option(
    "--provider",
    metavar="NAME",
    default=None,
    help="With --calibrate or --refresh: only this one.",
    shell_complete=completes("providers"),
)
@click.option("--csv", "as_csv", is_flag=True, help="CSV on standard output, the lines alone.")
@json_option
@config_option
def costs(
    by: str | None,
    month: str | None,
    refresh: bool,
    calibrate: bool,
    provider: str | None,
    as_csv: bool,
    as_json: bool,
    config: str | None,
) -> int:
    """What was spent this month, what is billed now, and where the month is heading.

    Months and days are UTC, as budgets are. "listed" is what the provider shows, "effective" holds the commission, and
    is what budgets count; "charged" is what the provider says. A "–" is not known, which is not 0.

    Exit codes: 0 done, 2 settings are wrong, 3 a provider that was asked did not say what it charged.
    """
    from gpuwatch.bootstrap.settings_loading import load_settings

    _check_usage(by, month, as_csv, as_json, calibrate)
    if provider is not None and not (calibrate or refresh):
        raise UsageError("--provider goes with --calibrate or --refresh; see also: --by provider")
    first = None if month is None else _first_of(month)
    loaded = load_settings(config, for_stopping=not (calibrate or refresh))
    troubles = _asked(loaded, provider) if calibrate or refresh else []
    if calibrate:
        _show_calibration(loaded, provider, troubles, as_json)
    else:
        _show_report(loaded, by or "watch", first, as_json, as_csv)
    return Exit.CANNOT_TELL if troubles else Exit.DONE


def _check_usage(by: str | None, month: str | None, as_csv: bool, as_json: bool, calibrate: bool) -> None:
    if as_csv and as_json:
        raise UsageError("say either --csv or --json")
    if calibrate and (by is not None or month is not None or as_csv):
        raise UsageError("--calibrate compares all final days; it takes no --by, --month or --csv")


def _first_of(month: str) -> date:
    found = re.fullmatch(r"([0-9]{4})-([0-9]{2})", month)
    if found is None or not 1 <= int(found[2]) <= 12 or not 1970 <= int(found[1]) <= 9998:
        raise UsageError(f"--month {month!r}: expected a month such as 2026-11")
    return date(int(found[1]), int(found[2]), 1)


def _asked(loaded: Settings, provider: str | None) -> list[str]:
    from gpuwatch.app.costs import fetch_charges

    troubles = fetch_charges(loaded, provider)
    for trouble in troubles:
        click.echo(f"gpuwatch: {trouble}", err=True)
    return troubles


def _show_report(loaded: Settings, by: str, first: date | None, as_json: bool, as_csv: bool) -> None:
    from gpuwatch.app.costs import cost_report, cost_report_json
    from gpuwatch.cli import cost_rows

    found = cost_report(loaded, by, first)
    if as_json:
        from gpuwatch.cli.output import json_out

        json_out(cost_report_json(found, by))
    elif as_csv:
        cost_rows.print_csv(found, by)
    else:
        cost_rows.print_report(found, by)


def _show_calibration(loaded: Settings, provider: str | None, troubles: list[str], as_json: bool) -> None:
    from gpuwatch.app.costs import calibration_json, calibrations
    from gpuwatch.cli import cost_fit

    found = calibrations(loaded, provider)
    if as_json:
        from gpuwatch.cli.output import json_out

        json_out({"providers": [calibration_json(one) for one in found], "troubles": troubles})
        return
    if not found:
        click.echo("nothing was rented yet")
    for one in found:
        cost_fit.print_calibration(one)
