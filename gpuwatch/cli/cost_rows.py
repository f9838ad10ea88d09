"""How costs look: a table with a summary below, JSON, CSV. Money leaves as decimals exact to a micro-dollar."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli.tables import left, right, table
from gpuwatch.domain.launches.forecast import LEAST_DAYS
from gpuwatch.domain.market.money import amount_text
from gpuwatch.domain.market.pricing import usd
from gpuwatch.storage.csv_escaping import escape_formula

if TYPE_CHECKING:
    from gpuwatch.app.costs import CostReport
    from gpuwatch.domain.launches.forecast import BudgetUse, Forecast
    from gpuwatch.domain.launches.invoices import InvoiceSummary

_SOON = timedelta(seconds=1)
_COLUMNS = (
    right("hours", drop=5),
    right("GPU $", drop=4),
    right("disk $", drop=7),
    right("listed $", drop=3),
    right("commission $", drop=8),
    right("effective $"),
    right("traffic ~$", drop=9),
    right("charged $"),
    right("difference $", drop=1),
    right("%", drop=2),
)


# --- for people -------------------------------------------------------------------------------------------------------


def print_report(report: CostReport, by: str) -> None:
    """The table, and below it what it comes to."""
    title = f"{report.first:%B %Y} (UTC)"
    if not report.lines:
        click.echo(f"{title}: nothing was billed")
    else:
        second = left("watch", drop=6) if by == "launch" else right("launches", drop=6)
        rows = [(one.key, _second(report, one, by), *_cells(one)) for one in (*report.lines, report.total)]
        table((left(by), second, *_COLUMNS), rows, title=title)
        click.echo(_known(report.total))
    for text in _summary(report):
        click.echo(text)


def _second(report: CostReport, one: InvoiceSummary, by: str) -> str:
    """How many launches a line is of; where it is of one, its watch."""
    launch = report.launches.get(one.key) if by == "launch" else None
    return str(one.launches) if launch is None else launch.watch


def _cells(one: InvoiceSummary) -> tuple[str, ...]:
    cost, percent = one.cost, one.difference_percent
    return (
        f"{cost.billed_hours:.1f}",
        *(amount_text(usd(amount)) for amount in (cost.gpu, cost.disk, cost.listed, cost.commission)),
        amount_text(usd(cost.effective)),
        amount_text(usd(cost.traffic)),
        "–" if one.charged is None else amount_text(usd(one.charged.total)),
        "–" if one.difference is None else amount_text(usd(one.difference), "+"),
        "–" if percent is None else f"{percent:+.1f}",
    )


def _known(total: InvoiceSummary) -> str:
    """What the columns "charged" and "difference" are of."""
    if total.charged is None:
        return "charged: not known yet (gpuwatch costs --refresh asks)"
    final = "no day is final yet" if total.final_to is None else f"final up to {total.final_to}"
    return (
        f"charged: known of {total.charged_launches} of {total.launches} launches, {final}; the difference is charged"
        " less predicted (effective + traffic), on final days alone"
    )


def _summary(report: CostReport) -> Iterator[str]:
    burn = report.burn
    yield (
        f"now: {burn.launches} billed, {amount_text(usd(burn.effective))} $/h effective,"
        f" {amount_text(usd(burn.listed))} $/h listed"
        if burn.launches
        else "now: nothing is billed"
    )
    if report.forecast is not None:
        yield from _forecast_lines(report.forecast)
    yield from (_budget_line(use) for use in report.budgets)


def _forecast_lines(ahead: Forecast) -> Iterator[str]:
    from gpuwatch.app.costs import MEAN_METHOD, RUNNING_METHOD

    yield f"the month by its end ({ahead.month_end - _SOON:%Y-%m-%d}), without traffic:"
    yield f"  {_both(ahead.running_effective, ahead.running_listed)}: {RUNNING_METHOD}"
    if ahead.mean_effective is None or ahead.mean_listed is None:
        days = f"{ahead.sample_days:.1f} days so far, it takes {LEAST_DAYS}"
        yield f"  not enough data ({days}): {MEAN_METHOD}"
    else:
        yield f"  {_both(ahead.mean_effective, ahead.mean_listed)}: {MEAN_METHOD} ({ahead.sample_days:.1f} days)"


def _both(effective: int, listed: int) -> str:
    return f"{amount_text(usd(effective))} $ effective, {amount_text(usd(listed))} $ listed"


def _budget_line(use: BudgetUse) -> str:
    whose = "budget" if use.watch is None else f"budget of {use.watch}"
    ahead = [
        f"{name} {use.percent(amount):.0f} %"
        for name, amount in (("if what runs goes on", use.forecast_running), ("by the mean", use.forecast_mean))
        if amount is not None and use.limit
    ]
    used = f"{amount_text(usd(use.used))} of {amount_text(usd(use.limit))} $"
    percent = use.percent(use.used)
    share = "" if percent is None else f", {percent:.0f} %"
    return f"{whose}, {use.limit_name}: {used}{share}" + (f"; {', '.join(ahead)}" if ahead else "")


# --- for programs -----------------------------------------------------------------------------------------------------


def print_csv(report: CostReport, by: str) -> None:
    """The lines alone; money with six decimals. Text that a spreadsheet would take for a formula is neutralised."""
    from gpuwatch.app.costs import line_name, line_values

    rows = [line_name(report, one, by) | line_values(one) for one in report.lines]
    headings = rows[0] if rows else {by: None} | line_values(report.total)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows([_plain(name, value) for name, value in row.items()] for row in rows)


def _plain(name: str, value: Any) -> Any:
    if value is None:
        return ""
    return f"{value:.6f}" if name.endswith("_usd") else escape_formula(value)
