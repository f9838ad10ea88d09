"""`gpuwatch launches costs`: spending, current rate, monthly forecast, and the commission that fits the bill."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
from gpuwatch.cli.options import config_option, csv_option, json_option, provider_option, value_option
from gpuwatch.cli.output import json_out, note
from gpuwatch.cli.terminal_tables import csv_out, left, right, table, text
from gpuwatch.domain.launches.money.month_forecast import LEAST_DAYS
from gpuwatch.domain.launches.money.reclaim import reclaim_sums
from gpuwatch.domain.market.figure_text import count_text, decimal_text
from gpuwatch.domain.market.money import dollars, per_hour, usd
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.setup.durations import format_duration
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.app.launches.costs import CostReport
    from gpuwatch.domain.launches.money.charge_comparison import Calibration, CommissionCandidate, InvoiceSummary
    from gpuwatch.domain.launches.money.month_forecast import BudgetUse, Forecast
    from gpuwatch.settings import Settings


def _more_or_less(amount: Decimal) -> str:
    return f"{'+' if amount > 0 else ''}{dollars(amount)}"


_ONE_SECOND = timedelta(seconds=1)
_COLUMNS = (
    right("hours", lambda line: line.cost.billed_hours, ".1f", drop=5),
    right("GPU", lambda line: dollars(usd(line.cost.gpu)), drop=4),
    right("disk", lambda line: dollars(usd(line.cost.disk)), drop=7),
    right("listed", lambda line: dollars(usd(line.cost.listed)), drop=3),
    right("commission", lambda line: dollars(usd(line.cost.commission)), drop=8),
    right("effective", lambda line: dollars(usd(line.cost.effective))),
    right("traffic, about", lambda line: dollars(usd(line.cost.traffic)), drop=9),
    right("charged", lambda line: None if line.charged is None else dollars(usd(line.charged.total))),
    right(
        "difference",
        lambda line: None if line.difference is None else _more_or_less(usd(line.difference)),
        drop=1,
    ),
    right("%", lambda line: decimal_text(line.difference_percent, 1, "+"), drop=2),
)


_RECLAIMS = (
    left("launch", lambda one: one.launch.launch_id),
    left("provider", lambda one: one.launch.provider, drop=2),
    left("instance", lambda one: one.launch.instance_id),
    left("machine", lambda one: one.launch.machine_id, drop=3),
    left("ordered", lambda one: one.launch.requested_at, drop=4),
    left("ended", lambda one: one.ended_at),
    right("lasted", lambda one: format_duration(round(one.lasted.total_seconds()))),
    right("billed", lambda one: dollars(usd(one.microusd))),
    text("why", lambda one: clean(one.why), drop=1),
)


@click.command(
    cls=Command,
    examples=(
        "gpuwatch launches costs",
        "gpuwatch launches costs --reclaim",
        "gpuwatch launches costs --by day --month 2026-10 --csv",
        "gpuwatch launches costs --calibrate",
    ),
)
@value_option("--by", click.Choice(["watch", "provider", "gpu", "day", "launch"]), "Group lines by. Default: watch.")
@click.option("--month", metavar="YYYY-MM", default=None, help="Month to report (UTC). Default: this one.")
@click.option("--refresh", is_flag=True, help="Fetch the charges from the providers first.")
@click.option("--reclaim", is_flag=True, help="List what bad machines took until they were ended.")
@click.option("--calibrate", is_flag=True, help="Fetch the charges and fit the commission to them. Changes nothing.")
@provider_option("With --calibrate or --refresh: only this one.")
@csv_option("Print the lines as CSV.")
@json_option
@config_option
def costs(
    by: str | None,
    month: str | None,
    refresh: bool,
    reclaim: bool,
    calibrate: bool,
    provider: str | None,
    as_csv: bool,
    as_json: bool,
    config: str | None,
) -> int:
    """Show this month's spending, the current rate, and the forecast for the month.

    Months and days are UTC, as in budgets. "listed" is the provider's price. "effective" includes the commission and
    counts against budgets. "charged" comes from the provider's invoices. "–" means unknown, not 0.

    Exit codes: 0 done, 2 settings are wrong, 3 a provider did not return its charges.
    """
    from gpuwatch.app.launches.costs import month_start
    from gpuwatch.bootstrap.settings_loading import load_settings

    if reclaim and (calibrate or by is not None or as_csv or as_json):
        raise UsageError("--reclaim lists bad machines; omit --by, --calibrate and --csv. --json: see its `reclaims`")
    if calibrate and (by is not None or month is not None or as_csv):
        raise UsageError("--calibrate compares all final days; omit --by, --month and --csv")
    if provider is not None and not (calibrate or refresh):
        raise UsageError("--provider requires --calibrate or --refresh; see also: --by provider")
    first = None if month is None else month_start(month)
    settings = load_settings(config, for_stopping=not (calibrate or refresh))
    errors = _refresh_charges(settings, provider) if calibrate or refresh else []
    if calibrate:
        _show_calibration(settings, provider, errors, as_json)
    elif reclaim:
        _show_reclaims(settings, first)
    else:
        _show_report(settings, by or "watch", first, as_json, as_csv)
    return Exit.CANNOT_TELL if errors else Exit.DONE


def _refresh_charges(settings: Settings, provider: str | None) -> list[str]:
    from gpuwatch.app.launches.costs import fetch_charges

    errors = fetch_charges(settings, provider)
    for error in errors:
        note(f"gpuwatch: {error}")
    return errors


def _show_report(settings: Settings, by: str, first: date | None, as_json: bool, as_csv: bool) -> None:
    from gpuwatch.app.launches.cost_views import cost_report_view
    from gpuwatch.app.launches.costs import cost_report

    report = cost_report(settings, by, first)
    if as_json:
        json_out(cost_report_view(report, by))
    elif as_csv:
        _print_csv(report, by)
    else:
        _print_report(report, by)


def _show_reclaims(settings: Settings, first: date | None) -> None:
    from gpuwatch.app.launches.costs import cost_report

    report = cost_report(settings, "launch", first)
    if report.reclaims:
        table(_RECLAIMS, report.reclaims, timezone=settings.timezone)
    for line in _reclaim_lines(report):
        click.echo(line)
    if not report.reclaims:
        click.echo(f"{report.first:%B %Y} (UTC): no bad machine was ended")


def _reclaim_lines(report: CostReport) -> Iterator[str]:
    for one in reclaim_sums(report.reclaims):
        machines = count_text(one.machines, "machine")
        yield f"to reclaim: {dollars(usd(one.microusd))} at {one.provider}, {machines} ended for not passing the check"


def _show_calibration(settings: Settings, provider: str | None, errors: list[str], as_json: bool) -> None:
    from gpuwatch.app.launches.cost_views import calibration_json
    from gpuwatch.app.launches.costs import calibrations

    fits = calibrations(settings, provider)
    if as_json:
        json_out({"providers": [calibration_json(fit) for fit in fits], "troubles": errors})
        return
    if not fits:
        click.echo("no launches yet")
    for fit in fits:
        _print_calibration(fit)


def _print_report(report: CostReport, by: str) -> None:
    """The table, followed by the current rate, the forecast and the budgets."""
    title = f"{report.first:%B %Y} (UTC)"
    if not report.lines:
        click.echo(f"{title}: nothing was billed")
    else:
        second = right("launches", "launches", drop=6)
        if by == "launch":
            second = left("watch", lambda line: _watch_of(report, line), drop=6)
        table((left(by, "key"), second, *_COLUMNS), (*report.lines, report.total), title=title)
        click.echo(_coverage_text(report.total))
    for line in _summary(report):
        click.echo(line)


def _watch_of(report: CostReport, line: InvoiceSummary) -> str:
    """The watch of a launch; of the total, the number of launches."""
    launch = report.launches.get(line.key)
    return str(line.launches) if launch is None else launch.watch


def _coverage_text(total: InvoiceSummary) -> str:
    """What the columns "charged" and "difference" cover."""
    if total.charged is None:
        return "charged: unknown yet (gpuwatch launches costs --refresh fetches it)"
    final = "no day is final yet" if total.final_to is None else f"final up to {total.final_to}"
    return (
        f"charged: known for {total.charged_launches} of "
        f"{count_text(total.launches, 'launch', 'launches')}, {final}; the difference is charged"
        " minus predicted (effective + traffic), on final days only"
    )


def _summary(report: CostReport) -> Iterator[str]:
    burn = report.burn
    yield (
        f"now: {burn.launches} billed, {per_hour(usd(burn.effective), most=2)} effective,"
        f" {per_hour(usd(burn.listed), most=2)} listed"
        if burn.launches
        else "now: nothing is billed"
    )
    yield from _reclaim_lines(report)
    if report.forecast is not None:
        yield from _forecast_lines(report.forecast)
    yield from (_budget_line(use) for use in report.budgets)


def _forecast_lines(ahead: Forecast) -> Iterator[str]:
    from gpuwatch.app.launches.cost_views import MEAN_METHOD, RUNNING_METHOD

    yield f"forecast for the end of the month ({ahead.month_end - _ONE_SECOND:%Y-%m-%d}), excluding traffic:"
    yield f"  {_amounts_text(ahead.running_effective, ahead.running_listed)}: {RUNNING_METHOD}"
    if ahead.mean_effective is None or ahead.mean_listed is None:
        days = f"{ahead.sample_days:.1f} days so far, {LEAST_DAYS} required"
        yield f"  not enough data ({days}): {MEAN_METHOD}"
    else:
        amounts = _amounts_text(ahead.mean_effective, ahead.mean_listed)
        yield f"  {amounts}: {MEAN_METHOD} ({ahead.sample_days:.1f} days)"


def _amounts_text(effective: int, listed: int) -> str:
    return f"{dollars(usd(effective))} effective, {dollars(usd(listed))} listed"


def _budget_line(use: BudgetUse) -> str:
    budget_name = "budget" if use.watch is None else f"budget of {use.watch}"
    ahead = [
        f"{name} {use.percent(amount):.0f} %"
        for name, amount in (
            ("if running launches continue", use.forecast_running),
            ("at the daily mean", use.forecast_mean),
        )
        if amount is not None and use.limit
    ]
    used = f"{dollars(usd(use.used))} of {dollars(usd(use.limit))}"
    percent = use.percent(use.used)
    share = "" if percent is None else f", {percent:.0f} %"
    return f"{budget_name}, {use.limit_name}: {used}{share}" + (f"; {', '.join(ahead)}" if ahead else "")


def _print_csv(report: CostReport, by: str) -> None:
    """Only the lines; money with six decimals."""
    from gpuwatch.app.launches.cost_views import cost_report_view

    view = cost_report_view(report, by)
    rows = [line.json() for line in view.lines]
    headings = {by: None} | view.total.json()
    csv_out([{name: _csv_value(name, value) for name, value in row.items()} for row in rows], headings)


def _csv_value(name: str, value: Any) -> Any:
    if value is None:
        return ""
    return Decimal(f"{value:.6f}") if name.endswith("_usd") else value


def _print_calibration(calibration: Calibration) -> None:
    """One provider: the sample, the candidates, the advice."""
    if calibration.why_not is not None:
        click.echo(f"{calibration.provider}: {calibration.why_not}")
        return
    best = calibration.best
    columns = (
        text("commission", lambda candidate: _title(candidate) + (" ← fits best" if candidate == best else "")),
        left("as a setting", lambda candidate: candidate.text if candidate.rate >= 0 else None),
        right("off by, median", lambda candidate: f"{candidate.error_percent:.2f} %"),
    )
    table(columns, calibration.candidates, title=_sample(calibration))
    if calibration.is_poor:
        click.echo("no commission predicts the bill well; see: gpuwatch launches costs --by launch")
    if calibration.advice is None:
        click.echo("the configured commission fits best; no change needed")
    else:
        click.echo(f"nothing was changed; to apply it, add this to the settings:\n\n{calibration.advice}\n")


def _title(candidate: CommissionCandidate) -> str:
    if candidate.name == "set":
        return "current setting"
    if candidate.name == "included":
        return "included: the listed price equals the bill"
    if candidate.name == "on_top":
        return "configured rate, on top"
    return "fitted by least squares" if candidate.rate >= 0 else "fitted: the bill is below the listed price"


def _sample(calibration: Calibration) -> str:
    left_out = f"; {calibration.left_out} excluded: nothing charged" if calibration.left_out else ""
    return (
        f"{calibration.provider}: {count_text(calibration.launches, 'launch', 'launches')}, "
        f"{calibration.billed_hours:.1f} billed hours,"
        f" final days {calibration.first_day} to {calibration.last_day} (UTC), excluding traffic{left_out}"
    )
