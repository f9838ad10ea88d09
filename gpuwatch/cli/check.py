"""`gpuwatch check`: one poll now. The answer is printed first, then stored."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command
from gpuwatch.cli.options import completes, config_option, json_option
from gpuwatch.errors import GpuwatchError, UsageError

if TYPE_CHECKING:
    from gpuwatch.app.auto_prices import LimitsInForce
    from gpuwatch.domain.watches.decide import Match
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.engine.check import ProviderCheck
    from gpuwatch.settings import Settings


@click.command(
    cls=Command,
    examples=(
        "gpuwatch check",
        "gpuwatch check h100-night --explain",
        "gpuwatch check --gpu H100 --max-price 3.50 --count 1-4 --json",
    ),
)
@click.argument("names", nargs=-1, metavar="[WATCH]...", shell_complete=completes("watches"))
@click.option(
    "--gpu",
    multiple=True,
    help="Instead of the watches: a GPU family or model, such as H100; may be repeated.",
    shell_complete=completes("gpus"),
)
@click.option("--max-price", help="With --gpu: threshold, USD per GPU-hour, commission included.")
@click.option("--count", default=None, help="With --gpu: number of GPUs, N or MIN-MAX. Default: 1.")
@click.option(
    "--spot",
    type=click.Choice(["no", "only", "any"]),
    default=None,
    help="With --gpu: spot (interruptible) offers. Default: no.",
)
@click.option(
    "--provider", multiple=True, help="Poll only this provider; may be repeated.", shell_complete=completes("providers")
)
@click.option("--explain", is_flag=True, help="Explain for the nearest offers which clause failed, and by how much.")
@click.option("--no-store", is_flag=True, help="Do not store the answer.")
@json_option
@config_option
def check(
    names: tuple[str, ...],
    gpu: tuple[str, ...],
    max_price: str | None,
    count: str | None,
    spot: str | None,
    provider: tuple[str, ...],
    explain: bool,
    no_store: bool,
    as_json: bool,
    config: str | None,
) -> int:
    """Poll once: which watches have an offer at or under their threshold.

    With --gpu and --max-price it checks that one rule instead of your watches; all other settings count.

    Exit codes: 0 matched, 1 every provider answered and nothing matched, 2 usage or settings are wrong, 3 cannot tell.
    """
    from gpuwatch.app.check import check_json, matches_of
    from gpuwatch.app.watch_selection import select_watches
    from gpuwatch.bootstrap import real_now
    from gpuwatch.cli.output import json_out

    settings = _settings(gpu, max_price, count, spot, provider, config)
    limits = _with_current_limits(settings, select_watches(settings, names), keep=not no_store)
    watches = limits.watches

    checked = _ask(settings, watches, provider, as_json)
    now = real_now()
    matches = {watch.name: matches_of(watch.name, checked) for watch in watches}
    if as_json:
        json_out(check_json(limits, checked, matches, now))
    else:
        _print_tables(watches, checked, matches, now)
    for part in checked:
        if not as_json or part.report.skipped or part.report.error:
            click.echo(_report_line(part), err=True)
    if explain:
        _explain(settings, watches, checked, provider)
    sys.stdout.flush()
    if not no_store:
        _store(settings, checked)
    if any(matches.values()):
        return Exit.DONE
    return Exit.FAILED if all(part.report.ok for part in checked) else Exit.CANNOT_TELL


def _settings(
    gpu: Sequence[str],
    max_price: str | None,
    count: str | None,
    spot: str | None,
    providers: Sequence[str],
    config: str | None,
) -> Settings:
    from gpuwatch import settings
    from gpuwatch.app.watch_selection import GPU_AND_PRICE
    from gpuwatch.bootstrap.settings_loading import load_settings

    if not gpu and max_price is None:
        if count is not None or spot is not None:
            raise UsageError("--count and --spot go with --gpu and --max-price")
        return load_settings(config)
    if not gpu or max_price is None:
        raise UsageError(GPU_AND_PRICE)
    return settings.from_flags(gpu, max_price, count=count, spot=spot, providers=providers or None, config=config)


def _with_current_limits(settings: Settings, watches: Sequence[Watch], keep: bool) -> LimitsInForce:
    """The watches with their current limits; prints where limits come from the history."""
    from gpuwatch.app.auto_prices import limits_in_force
    from gpuwatch.cli.output import local

    found = limits_in_force(settings, watches, keep)
    if found.fault:
        click.echo(f'max_price = "auto": the caps apply, because the history cannot be read: {found.fault}', err=True)
    for name, standing in found.standing.items():
        why = f"the history is too short: {standing.why_none}" if standing.why_none else "from the history"
        until = local(standing.deadline, settings.timezone)
        click.echo(f"{name}: at or under {standing.limit_usd_gpu_hour:f} $/GPU-h now ({why}), until {until}", err=True)
    return found


def _ask(settings: Settings, watches: Sequence[Watch], only: Sequence[str], as_json: bool) -> Sequence[ProviderCheck]:
    from gpuwatch.app.check import check_markets

    if as_json or not sys.stderr.isatty():
        return check_markets(settings, watches, only)
    click.echo("polling …", nl=False, err=True)
    try:
        return check_markets(settings, watches, only)
    finally:
        click.echo("\r\x1b[K", nl=False, err=True)


def _limit_text(watch: Watch) -> str:
    if watch.max_job_cost_usd is None:
        return f"{watch.max_price_usd_gpu_hour:f} $/GPU-h"
    return f"{watch.max_job_cost_usd:f} $ for the job"


def _print_tables(
    watches: Sequence[Watch], checked: Sequence[ProviderCheck], matches: Mapping[str, Sequence[Match]], now: datetime
) -> None:
    from gpuwatch.cli.offers import offers_table
    from gpuwatch.cli.tables import table

    for watch in watches:
        found = matches[watch.name]
        headline = f"{watch.name}: {', '.join(watch.gpu)} at or under {_limit_text(watch)}"
        if found:
            table(*offers_table(found[:10], now), title=headline)
        else:
            click.echo(f"{headline}\n  {_why_none(checked)}")
        if len(found) > 10:
            click.echo(f"  … and {len(found) - 10} more (--json shows all)")


def _why_none(checked: Sequence[ProviderCheck]) -> str:
    """'No offers' and 'no data' are never the same thing."""
    if all(part.report.ok for part in checked):
        return "no offer (every provider answered)"
    return "cannot tell: " + "; ".join(f"{p.report.provider}: {p.report.error}" for p in checked if not p.report.ok)


def _report_line(part: ProviderCheck) -> str:
    report = part.report
    reasons = ", ".join(f"{rows} rows not understood ({reason})" for reason, rows in sorted(report.skipped.items()))
    problems = "; ".join(text for text in (reasons, report.error) if text)
    return f"{report.provider}: {report.offers} offers in {report.elapsed_s:.1f} s" + (
        f" – {problems}" if problems else ""
    )


def _explain(
    settings: Settings, watches: Sequence[Watch], checked: Sequence[ProviderCheck], only: Sequence[str]
) -> None:
    from gpuwatch.app.check import explain_lines

    for line in explain_lines(settings, watches, checked, only):
        click.echo(line, err=True)


def _store(settings: Settings, checked: Sequence[ProviderCheck]) -> None:
    from gpuwatch.app.check import store_check

    try:
        store_check(settings, checked)
    except GpuwatchError as fault:  # the answer is printed and true; only the history misses it
        click.echo(f"not stored: {fault}", err=True)
