"""`gpuwatch check`: poll once, print the result, then store it, and `gpuwatch watches rehearse`.

A rehearsal checks everything that a launch needs, without placing the order.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from gpuwatch.cli import Exit, is_unwritten, report_unwritten
from gpuwatch.cli.base import Command
from gpuwatch.cli.market.offers import offer_columns
from gpuwatch.cli.options import (
    SPOT_CHOICES,
    as_struct,
    completes,
    config_option,
    gpu_option,
    json_option,
    provider_option,
    settings_option,
    value_option,
)
from gpuwatch.cli.output import displayable, json_out, local, note, print_finding
from gpuwatch.cli.terminal_tables import table
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.money import dollars, per_gpu_hour, per_unit_hour
from gpuwatch.errors import GpuwatchError, UsageError

if TYPE_CHECKING:
    from gpuwatch.app.watches.check import MarketCheck
    from gpuwatch.app.watches.current_limits import CurrentLimits
    from gpuwatch.app.watches.nearest import NearestView
    from gpuwatch.domain.launches.life.admission import WatchBlock
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.engine.watches.one_poll import ProviderCheck
    from gpuwatch.settings import Settings

_SIGNS = {"ok": "ok     ", "note": "note   ", "fault": "MISSING", "unknown": "unknown"}
_RESULT = {
    True: "{} is ready to rent.",
    False: "{} is not ready to rent.",
    None: "Cannot tell whether {} is ready to rent.",
}


class CheckedRule(msgspec.Struct, frozen=True):
    """A single rule that replaces the watches."""

    gpu: tuple[str, ...]
    max_price: str | None
    count: str | None
    spot: str | None


_rule_options = as_struct(
    "rule",
    CheckedRule,
    gpu_option(
        "--gpu", "Check a GPU family or model instead of the watches, such as H100; may be repeated.", multiple=True
    ),
    click.option("--max-price", help="With --gpu: threshold, USD per GPU-hour, commission included."),
    click.option("--count", default=None, help="With --gpu: number of GPUs, N or MIN-MAX. Default: 1."),
    value_option("--spot", click.Choice(SPOT_CHOICES), "With --gpu: spot (interruptible) offers. Default: no."),
)


@click.command(
    cls=Command,
    examples=(
        "gpuwatch check",
        "gpuwatch check h100-night --explain",
        "gpuwatch check --gpu H100 --max-price 3.50 --count 1-4 --json",
    ),
)
@click.argument("names", nargs=-1, metavar="[WATCH]...", shell_complete=completes("watches"))
@_rule_options
@provider_option("Poll only this provider; may be repeated.", multiple=True)
@click.option("--explain", is_flag=True, help="Show which condition the nearest offers fail, and by how much.")
@click.option("--no-store", is_flag=True, help="Do not store the result.")
@click.option(
    "--metrics-file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Write metrics for Prometheus' textfile collector after storing.",
)
@json_option
@config_option
def check(
    names: tuple[str, ...],
    rule: CheckedRule,
    provider: tuple[str, ...],
    explain: bool,
    no_store: bool,
    metrics_file: Path | None,
    as_json: bool,
    config: str | None,
) -> int:
    """Poll once: which watches have an offer at or under their threshold.

    With --gpu and --max-price, check a single rule instead of your watches. All other settings apply.

    Exit codes: 0 matched, 1 every provider answered and nothing matched, 2 usage or settings are wrong, 3 cannot tell.
    """
    from gpuwatch.app.watches.check import blocked_watches, explain_lines, nearest_offers
    from gpuwatch.app.watches.watch_selection import select_watches

    if names and rule.gpu:
        raise UsageError("use either a watch name or --gpu")
    settings = _settings(rule, provider, config)
    limits = _with_current_limits(settings, select_watches(settings, names), keep=not no_store)
    checked = _poll(settings, limits.watches, provider, quiet=as_json, keep=not no_store)
    unwritten = Exit.DONE
    try:
        blocks, nearest = blocked_watches(settings, limits, checked), nearest_offers(settings, limits, checked)
        _print_result(limits, checked, blocks, nearest, as_json)
        for line in explain_lines(settings, limits.watches, checked, provider) if explain else ():
            note(line)
        sys.stdout.flush()
    except OSError as error:  # the result is stored all the same
        if not is_unwritten(error):
            raise
        unwritten = report_unwritten(error)
    _store_result(settings, checked, no_store, metrics_file)
    if unwritten:
        return unwritten
    if any(checked.matches.values()):
        return Exit.DONE
    return Exit.FAILED if checked.is_complete else Exit.CANNOT_TELL


def _settings(rule: CheckedRule, providers: Sequence[str], config: str | None) -> Settings:
    from gpuwatch.app.watches.watch_selection import GPU_AND_PRICE, settings_with_rule
    from gpuwatch.bootstrap.settings_loading import load_settings

    if rule.gpu and rule.max_price is not None:
        return settings_with_rule(
            rule.gpu, rule.max_price, count=rule.count, spot=rule.spot, providers=providers or None, config=config
        )
    if rule.gpu or rule.max_price is not None:
        raise UsageError(GPU_AND_PRICE)
    if rule.count is not None or rule.spot is not None:
        raise UsageError("--count and --spot require --gpu and --max-price")
    return load_settings(config)


def _with_current_limits(settings: Settings, watches: Sequence[Watch], keep: bool) -> CurrentLimits:
    """The watches with their current limits. Prints the limits that come from the history."""
    from gpuwatch.app.watches.current_limits import current_limits

    limits = current_limits(settings, watches, keep)
    if limits.fault:
        note(f'max_price = "auto": the configured caps apply, because the history cannot be read: {limits.fault}')
    for name, auto_limit in limits.limits_by_watch.items():
        basis = (
            f"the history is too short: {auto_limit.why_none}"
            if auto_limit.why_none
            else f"from the history: {auto_limit.reason}"
        )
        until = local(auto_limit.deadline, settings.timezone)
        note(f"{name}: limit {per_gpu_hour(auto_limit.limit_usd_gpu_hour, most=6)} now ({basis}), until {until}")
    for watch in limits.watches:
        for limit in watch.past.limits if watch.past else ():
            note(f"{watch.name}: {limit.clause} for {limit.of}: {limit.basis}")
    return limits


def _poll(
    settings: Settings, watches: Sequence[Watch], provider_names: Sequence[str], *, quiet: bool, keep: bool
) -> MarketCheck:
    from gpuwatch.app.watches.check import check_markets

    for_person = sys.stdout.isatty()
    if quiet or not sys.stderr.isatty():
        return check_markets(settings, watches, provider_names, keep, for_person=for_person)
    click.echo("polling …", nl=False, err=True)
    try:
        return check_markets(settings, watches, provider_names, keep, for_person=for_person)
    finally:
        click.echo("\r\x1b[K", nl=False, err=True)


def _print_result(
    limits: CurrentLimits,
    checked: MarketCheck,
    blocks: Mapping[str, WatchBlock | None],
    nearest: Mapping[str, NearestView],
    as_json: bool,
) -> None:
    from gpuwatch.app.watches.check import check_view

    if as_json:
        json_out(check_view(limits, checked, blocks, nearest))
    else:
        _print_tables(limits.watches, checked, blocks, nearest)
    for part in checked.providers:
        if not as_json or part.report.skipped or part.report.error:
            note(_report_line(part))
        for name, offers in part.report.without_country.items():
            unplaced = f"{count_text(offers, 'offer')} without a country"
            note(f"{part.report.provider}: {unplaced} that watch {name!r} would accept without `regions`")


def _limit_text(watch: Watch) -> str:
    if watch.unlimited:
        return "any price"
    if watch.max_job_cost_usd is None:
        return per_unit_hour(watch.max_price_usd_gpu_hour, watch.gpu_count_max, most=6)
    return f"{dollars(watch.max_job_cost_usd)} for the job"


def _print_tables(
    watches: Sequence[Watch],
    checked: MarketCheck,
    blocks: Mapping[str, WatchBlock | None],
    nearest: Mapping[str, NearestView],
) -> None:
    from gpuwatch.app.watches.check import command_to_run
    from gpuwatch.app.watches.nearest import provider_title
    from gpuwatch.domain.market.resold import FoldedOffer
    from gpuwatch.domain.watches.watch import Action

    for watch in watches:
        matches = checked.matches[watch.name]
        at = "at" if watch.unlimited else "at or under"
        gpus = "machines without GPUs" if watch.wants_no_gpu else ", ".join(watch.gpu)
        subject = gpus if gpus.lower() == watch.name.lower() else f"{watch.name}: {gpus}"
        limit = f"{at} {_limit_text(watch)}"
        if matches:
            gpu_count = matches[0].offer.gpu_count
            best = per_unit_hour(matches[0].price.gpu_price_usd_hour(gpu_count), gpu_count)
            count = count_text(len(matches), "offer")
            title = f"{subject}: {count} {limit}, from {best} at {provider_title(matches[0].offer.provider)}"
            table(offer_columns(checked.at), map(FoldedOffer, matches[:10]), title=title)
        else:
            click.echo(f"{subject} {limit}: {_empty_reason(checked, watch)}")
            if (near := nearest.get(watch.name)) is not None:
                click.echo(f"  {displayable(near.sentence)}")
        if len(matches) > 10:
            click.echo(f"  … and {len(matches) - 10} more (--json shows all)")
        if (block := blocks.get(watch.name)) is not None:
            click.echo(f"  {'no alert' if watch.action is Action.ALERT else 'not rented'}: {displayable(block.text)}")
        if words := command_to_run(watch, matches):
            click.echo(f"  would run: {displayable(shlex.join(words))}")


def _empty_reason(checked: MarketCheck, watch: Watch) -> str:
    """State "no offers", "no data" and "could not be seen" as different results."""
    from gpuwatch.engine.market.browse import Coverage, empty_text

    reports = [part.report for part in checked.providers if watch.name in part.matches or not part.answers]
    if checked.is_complete:
        seen = [Coverage(provider=one.provider, not_listed=one.not_listed, skipped=one.skipped) for one in reports]
        return empty_text(seen, watch.gpu_names, watch.gpu)
    return "cannot tell: " + "; ".join(f"{report.provider}: {report.error}" for report in reports if not report.ok)


def _report_line(part: ProviderCheck) -> str:
    from gpuwatch.engine.watches.one_poll import NONE_USABLE

    report = part.report
    skipped = sorted((reason, rows) for reason, rows in report.skipped.items() if reason != NONE_USABLE)
    reasons = ", ".join(f"{count_text(rows, 'row')} not understood ({reason})" for reason, rows in skipped)
    problems = "; ".join(text for text in (reasons, report.error) if text)
    return f"{report.provider}: {count_text(report.offers, 'offer')} in {report.elapsed_s:.1f} s" + (
        f" – {problems}" if problems else ""
    )


def _store(settings: Settings, checked: MarketCheck) -> None:
    from gpuwatch.app.watches.check import store_check

    try:
        store_check(settings, checked)
    except GpuwatchError as fault:  # the result is printed and correct; only the history lacks it
        note(f"not stored: {fault}")


def _store_result(settings: Settings, checked: MarketCheck, no_store: bool, metrics_file: Path | None) -> None:
    """Store the result, then write the metrics of the check and of the store."""
    if not no_store:
        _store(settings, checked)
    if metrics_file is not None:
        from gpuwatch.app.setup.metrics import MetricsReader, with_check, write_textfile
        from gpuwatch.bootstrap import real_now

        write_textfile(metrics_file, with_check(settings, MetricsReader().read(settings, real_now()), checked))


@click.command(
    cls=Command, examples=("gpuwatch watches rehearse h100-night", "gpuwatch watches rehearse h100-night --json")
)
@click.argument("watch", shell_complete=completes("watches"))
@json_option
@settings_option
def rehearse(watch: str, as_json: bool, settings: Settings) -> int:
    """Check everything a launch needs, but do not order: settings, limits, offers, keys, quotas, network, image.

    If the provider can validate an order without placing it, gpuwatch requests that. Rents, changes and stores nothing.

    Exit codes: 0 ready, 1 something is missing (one line each), 2 usage or settings are wrong, 3 cannot tell.
    """
    from gpuwatch.app.watches.rehearse import rehearsal_view
    from gpuwatch.app.watches.rehearse import rehearse as run_rehearsal

    rehearsal = run_rehearsal(settings, watch)
    if as_json:
        json_out(rehearsal_view(rehearsal))
    else:
        for line in rehearsal.lines:
            print_finding(line, _SIGNS)
        click.echo(_RESULT[rehearsal.ready].format(watch))
    return {True: Exit.DONE, False: Exit.FAILED, None: Exit.CANNOT_TELL}[rehearsal.ready]
