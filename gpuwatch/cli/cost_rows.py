"""How costs look: a table with a summary below, JSON, CSV. Money leaves as decimals exact to a micro-dollar."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli.history import escape_formula
from gpuwatch.cli.output import rfc3339
from gpuwatch.cli.tables import left, right, table
from gpuwatch.domain.launches.forecast import LEAST_DAYS
from gpuwatch.domain.launches.invoices import CHARGE_KINDS
from gpuwatch.domain.market.money import amount_text, usd_number
from gpuwatch.domain.market.pricing import usd

if TYPE_CHECKING:
    from gpuwatch.app.costs import CostReport
    from gpuwatch.domain.launches.forecast import BudgetUse, Forecast
    from gpuwatch.domain.launches.invoices import InvoiceSummary

RUNNING_METHOD = "what runs goes on, to its max_runtime at most; nothing new is rented"
MEAN_METHOD = "each day that is left costs the mean of the days so far"
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


def report_json(report: CostReport, by: str) -> dict[str, Any]:
    """The shape of docs/costs.md."""
    return {
        "at": rfc3339(report.now),
        "month": f"{report.first:%Y-%m}",
        "timezone": "UTC",
        "by": by,
        "lines": [_named(report, one, by) | _line_values(one) for one in report.lines],
        "total": _line_values(report.total),
        "burn": {
            "launches": report.burn.launches,
            "listed_usd_hour": usd_number(report.burn.listed),
            "effective_usd_hour": usd_number(report.burn.effective),
        },
        "forecast": None if report.forecast is None else _forecast_json(report.forecast),
        "budgets": [_budget_json(use) for use in report.budgets],
    }


def print_csv(report: CostReport, by: str) -> None:
    """The lines alone; money with six decimals. Text that a spreadsheet would take for a formula is neutralised."""
    rows = [_named(report, one, by) | _line_values(one) for one in report.lines]
    headings = rows[0] if rows else {by: None} | _line_values(report.total)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows([_plain(name, value) for name, value in row.items()] for row in rows)


def _named(report: CostReport, one: InvoiceSummary, by: str) -> dict[str, Any]:
    """What the line is of."""
    if by != "launch":
        return {by: one.key}
    launch = report.launches[one.key]
    return {
        "launch_id": one.key,
        "watch": launch.watch,
        "provider": launch.provider,
        "instance_id": launch.instance_id,
        "gpu": launch.gpu,
        "gpu_count": launch.gpu_count,
        "state": launch.state.value,
    }


def _line_values(one: InvoiceSummary) -> dict[str, Any]:
    cost, charged, compared = one.cost, one.charged, one.compared_charged
    return {
        "launches": one.launches,
        "billed_hours": round(cost.billed_hours, 6),
        "gpu_usd": usd_number(cost.gpu),
        "disk_usd": usd_number(cost.disk),
        "listed_usd": usd_number(cost.listed),
        "commission_usd": usd_number(cost.commission),
        "effective_usd": usd_number(cost.effective),
        "traffic_estimate_usd": usd_number(cost.traffic),
        "predicted_usd": usd_number(cost.total),
        "charged_usd": None if charged is None else usd_number(charged.total),
        **{
            f"charged_{kind}_usd": None if charged is None else usd_number(getattr(charged, kind))
            for kind in CHARGE_KINDS
        },
        "charged_launches": one.charged_launches,
        "charges_final_to": None if one.final_to is None else one.final_to.isoformat(),
        "compared_predicted_usd": None if compared is None else usd_number(one.compared_cost.total),
        "compared_charged_usd": None if compared is None else usd_number(compared.total),
        "difference_usd": usd_number(one.difference),
        "difference_percent": _percent(one.difference_percent),
    }


def _forecast_json(ahead: Forecast) -> dict[str, Any]:
    return {
        "month_end": rfc3339(ahead.month_end),
        "running": {
            "method": RUNNING_METHOD,
            "listed_usd": usd_number(ahead.running_listed),
            "effective_usd": usd_number(ahead.running_effective),
        },
        "mean": {
            "method": MEAN_METHOD,
            "listed_usd": usd_number(ahead.mean_listed),
            "effective_usd": usd_number(ahead.mean_effective),
            "sample_days": round(ahead.sample_days, 3),
            "least_days": LEAST_DAYS,
        },
    }


def _budget_json(use: BudgetUse) -> dict[str, Any]:
    return {
        "watch": use.watch,
        "limit": use.limit_name,
        "limit_usd": usd_number(use.limit),
        "used_usd": usd_number(use.used),
        "used_percent": _percent(use.percent(use.used)),
        "forecast_running_percent": _percent(use.percent(use.forecast_running)),
        "forecast_mean_percent": _percent(use.percent(use.forecast_mean)),
    }


def _plain(name: str, value: Any) -> Any:
    if value is None:
        return ""
    return f"{value:.6f}" if name.endswith("_usd") else escape_formula(value)


def _percent(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
