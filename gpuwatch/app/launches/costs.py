"""Costs: spending, forecast and charges of a month, from the store or, on request, from the providers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gpuwatch import providers
from gpuwatch.app.launches.budget_uses import uses_of_budgets
from gpuwatch.bootstrap import build_adapters, http_client, monotonic, open_store, open_store_read_only, real_now
from gpuwatch.bootstrap.provider_access import has_credentials
from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.domain.launches.money.charge_comparison import (
    CHARGE_KINDS,
    Calibration,
    InvoiceLine,
    InvoiceSummary,
    calibrate,
    invoice_lines,
    open_days,
    summarize,
    summarize_by,
)
from gpuwatch.domain.launches.money.launch_costs import BurnRate, burn_rate, month_of
from gpuwatch.domain.launches.money.month_forecast import (
    LEAST_DAYS,
    BudgetUse,
    Forecast,
    forecast_costs,
)
from gpuwatch.domain.market.json_view import JsonView, Moment, usd_number
from gpuwatch.domain.market.money import Commission
from gpuwatch.engine.launches.guarding.invoice_fetcher import InvoiceFetcher
from gpuwatch.errors import ProviderError, ResourceNotFound, UsageError
from gpuwatch.storage.launches.invoice_rows import SqlInvoiceRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.launches.launch_totals import SqlLaunchTotals

if TYPE_CHECKING:
    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.domain.launches.money.charge_comparison import CommissionCandidate
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.settings import Settings

_DAY = timedelta(days=1)

KEYS: Mapping[str, Callable[[InvoiceLine], str]] = {
    "watch": lambda cell: cell.launch.watch,
    "provider": lambda cell: cell.launch.provider,
    "day": lambda cell: cell.day.isoformat(),
    "launch": lambda cell: cell.launch.launch_id,
}


class CostReport(msgspec.Struct, frozen=True, kw_only=True):
    """The costs of a month. `forecast` is None except for the current month."""

    now: datetime
    first: date
    lines: list[InvoiceSummary]
    total: InvoiceSummary
    burn: BurnRate
    forecast: Forecast | None
    budgets: list[BudgetUse]
    launches: dict[str, Launch]  # the launches in the lines, by id


def month_start(text: str) -> date:
    """The first day of a month such as "2026-11". Raises UsageError."""
    match = re.fullmatch(r"([0-9]{4})-([0-9]{2})", text)
    if match is None or not 1 <= int(match[2]) <= 12 or not 1970 <= int(match[1]) <= 9998:
        raise UsageError(f"month {text[:40]!r}: expected a month such as 2026-11")
    return date(int(match[1]), int(match[2]), 1)


def cost_report(settings: Settings, by: str, month: date | None = None) -> CostReport:
    """The costs of a month (its first day; None: the current one, UTC), from the store only. Raises StoreError."""
    now = real_now()
    today = now.astimezone(UTC).date()
    first = today.replace(day=1) if month is None else month
    begin, end = month_of(first)
    with open_store_read_only(settings) as store:
        totals, charges = SqlLaunchTotals(store), SqlInvoiceRepository(store).between(begin.date(), end.date())
        launches, began = totals.billed_or_charged_since(begin), totals.first_orders()
    summaries = invoice_lines(launches, charges, now, begin.date(), end.date() - _DAY)
    is_current = first == today.replace(day=1)
    return CostReport(
        now=now,
        first=first,
        lines=_sorted(summarize_by(summaries, KEYS[by]), by),
        total=summarize("total", summaries),
        burn=burn_rate(launches, now),
        forecast=forecast_costs(launches, now, min(began.values(), default=None)) if is_current else None,
        budgets=list(uses_of_budgets(settings, launches, began, None if is_current else begin, now)),
        launches={cell.launch.launch_id: cell.launch for cell in summaries},
    )


def fetch_charges(settings: Settings, provider: str | None = None) -> list[str]:
    """Fetch the charges that are not final yet from the providers. Returns one line per problem.

    Raises:
        UsageError: there is no provider of that name.
        StoreError: the answers cannot be stored.
    """
    now = real_now()
    with open_store(settings) as store, http_client(settings) as http:
        repository, invoice_repository = SqlLaunchRepository(store), SqlInvoiceRepository(store)
        launches = repository.all()
        problems = (
            _refreshed(settings, http, name, launches, invoice_repository, now)
            for name in _names(settings, launches, provider)
            if open_days(
                (launch for launch in launches if launch.provider == name), invoice_repository.final_days(name), now
            )
        )
        return [problem for problem in problems if problem is not None]


def calibrations(settings: Settings, provider: str | None = None) -> list[Calibration]:
    """The commission that fits the stored charges best, per provider with launches. Raises UsageError, StoreError."""
    now = real_now()
    with open_store_read_only(settings) as store:
        launches, charges = SqlLaunchRepository(store).all(), SqlInvoiceRepository(store).all()
    summaries = invoice_lines(launches, charges, now)
    return [calibrate(name, summaries, _commission(settings, name)) for name in _names(settings, launches, provider)]


def _sorted(summaries: list[InvoiceSummary], by: str) -> list[InvoiceSummary]:
    if by == "day":
        return sorted(summaries, key=lambda summary: summary.key)
    if by == "launch":
        return summaries  # the lines are sorted by launch, oldest first
    return sorted(summaries, key=lambda summary: (-summary.cost.effective, summary.key))


def _names(settings: Settings, launches: Iterable[Launch], provider: str | None) -> list[str]:
    """The named provider, or every provider with launches."""
    rented = dict.fromkeys(launch.provider for launch in launches if not launch.dry_run)
    if provider is None:
        return sorted(rented)
    if provider not in rented and provider not in settings.providers:
        raise ResourceNotFound(f"no provider {provider!r} is enabled, and no launch used it")
    return [provider]


def _commission(settings: Settings, name: str) -> Commission:
    """The commission as configured; the default for a provider that is no longer in the settings."""
    if name in settings.providers:
        return settings.providers[name].commission
    return providers.info(name).commission if name in providers.names() else Commission()


def _refreshed(
    settings: Settings,
    http: HttpClient,
    name: str,
    launches: Sequence[Launch],
    invoice_repository: SqlInvoiceRepository,
    now: datetime,
) -> str | None:
    """Fetch the charges of one provider. Returns None, or one line with the cause of a failure."""
    options = settings.providers.get(name)
    if options is None or not has_credentials(options):
        return f"{name}: no key, so its charges were not fetched"
    launcher = build_adapters(settings, http, [name])[name].launcher
    if launcher is None:
        return f"{name}: gpuwatch cannot rent there, so its charges were not fetched"
    try:
        problem = InvoiceFetcher(name, launcher, lambda: launches, invoice_repository, monotonic).collect(now)
    except ProviderError as error:
        return str(error)
    return f"{name} does not report charges" if problem is None else None


RUNNING_METHOD = "what runs goes on, to its max_runtime at most; nothing new is rented"
MEAN_METHOD = "each day that is left costs the mean of the days so far"


class CostLineView(JsonView, frozen=True, kw_only=True):
    """The costs of one watch, provider, day or launch, or (without such a key) of all. Null: unknown, not 0."""

    launch_id: str | UnsetType = UNSET
    day: str | UnsetType = UNSET
    watch: str | UnsetType = UNSET
    provider: str | UnsetType = UNSET
    instance_id: str | UnsetType | None = UNSET
    gpu: str | UnsetType = UNSET
    gpu_count: int | UnsetType = UNSET
    state: LaunchState | UnsetType = UNSET
    launches: int
    billed_hours: float
    gpu_usd: float
    disk_usd: float
    listed_usd: float
    commission_usd: float
    effective_usd: Annotated[float, Meta(description="Commission included; counts against budgets.")]
    traffic_estimate_usd: float
    predicted_usd: float
    charged_usd: Annotated[float | None, Meta(description="From the provider's invoices.")]
    charged_gpu_usd: float | None
    charged_disk_usd: float | None
    charged_download_usd: float | None
    charged_upload_usd: float | None
    charged_other_usd: float | None
    charged_launches: int
    charges_final_to: date | None
    compared_predicted_usd: float | None
    compared_charged_usd: float | None
    difference_usd: float | None
    difference_percent: float | None


class BurnRateView(JsonView, frozen=True, kw_only=True):
    """What runs now."""

    launches: int
    listed_usd_hour: float
    effective_usd_hour: float


class ForecastSumView(JsonView, frozen=True, kw_only=True):
    """The sum at the end of the month, and how it is computed; null: there were too few days."""

    method: str
    listed_usd: float | None
    effective_usd: float | None
    sample_days: float | UnsetType = UNSET
    least_days: float | UnsetType = UNSET


class CostForecastView(JsonView, frozen=True, kw_only=True):
    """The end of the month."""

    month_end: Moment
    running: ForecastSumView
    mean: ForecastSumView


class BudgetUseView(JsonView, frozen=True, kw_only=True):
    """One limit of a budget."""

    watch: Annotated[str | None, Meta(description="Null: the budget of all watches.")]
    limit: str
    limit_usd: float | None
    used_usd: float | None
    used_percent: float | None
    ends_at: Annotated[Moment | None, Meta(description="When the day or month is over; null: an hourly limit.")]
    forecast_running_usd: Annotated[
        float | None, Meta(description="At `ends_at`, if what runs goes on to its own end; null: an hourly limit.")
    ]
    forecast_running_percent: float | None
    forecast_mean_usd: Annotated[
        float | None, Meta(description="At `ends_at`, at the mean of the days so far; only of a month.")
    ]
    forecast_mean_percent: float | None


class CostReportView(JsonView, frozen=True, kw_only=True):
    """`gpuwatch launches costs`, described in docs/costs.md."""

    at: Moment
    month: str
    timezone: str = "UTC"
    by: str
    lines: list[CostLineView]
    total: CostLineView
    burn: BurnRateView
    forecast: CostForecastView | None
    budgets: list[BudgetUseView]


def cost_report_view(report: CostReport, by: str) -> CostReportView:
    """The report as commands, the page and other programs show it."""
    burn = report.burn
    return CostReportView.of(
        at=report.now,
        month=f"{report.first:%Y-%m}",
        by=by,
        lines=[_line_view(line, **_name_of(report, line, by)) for line in report.lines],
        total=_line_view(report.total),
        burn=BurnRateView.of(burn, **_usd(burn, "listed", "effective", unit="_usd_hour")),
        forecast=None if report.forecast is None else _forecast_view(report.forecast),
        budgets=list(map(budget_use_view, report.budgets)),
    )


def _name_of(report: CostReport, line: InvoiceSummary, by: str) -> dict[str, Any]:
    """The keys that identify a line."""
    if by != "launch":
        return {by: line.key}
    launch = report.launches[line.key]
    return {
        name: getattr(launch, name)
        for name in ("launch_id", "watch", "provider", "instance_id", "gpu", "gpu_count", "state")
    }


def _line_view(line: InvoiceSummary, **name: Any) -> CostLineView:
    compared = line.compared_charged
    return CostLineView.of(
        line,
        **name,
        billed_hours=round(line.cost.billed_hours, 6),
        **_usd(line.cost, "gpu", "disk", "listed", "commission", "effective"),
        traffic_estimate_usd=usd_number(line.cost.traffic),
        predicted_usd=usd_number(line.cost.total),
        charged_usd=None if line.charged is None else usd_number(line.charged.total),
        **_usd(line.charged, *CHARGE_KINDS, prefix="charged_"),
        charges_final_to=line.final_to,
        compared_predicted_usd=None if compared is None else usd_number(line.compared_cost.total),
        compared_charged_usd=None if compared is None else usd_number(compared.total),
        difference_usd=usd_number(line.difference),
        difference_percent=_percent(line.difference_percent),
    )


def _usd(amounts: object | None, *names: str, prefix: str = "", unit: str = "_usd") -> dict[str, float | None]:
    """Amounts in micro-dollars as dollars, under their names with a unit; unknown without amounts."""
    return {f"{prefix}{name}{unit}": usd_number(getattr(amounts, name, None)) for name in names}


def _forecast_view(ahead: Forecast) -> CostForecastView:
    return CostForecastView.of(
        ahead,
        running=ForecastSumView(
            method=RUNNING_METHOD,
            listed_usd=usd_number(ahead.running_listed),
            effective_usd=usd_number(ahead.running_effective),
        ),
        mean=ForecastSumView(
            method=MEAN_METHOD,
            listed_usd=usd_number(ahead.mean_listed),
            effective_usd=usd_number(ahead.mean_effective),
            sample_days=round(ahead.sample_days, 3),
            least_days=LEAST_DAYS,
        ),
    )


def budget_use_view(use: BudgetUse) -> BudgetUseView:
    """One limit as other programs see it."""
    return BudgetUseView(
        watch=use.watch,
        limit=use.limit_name,
        limit_usd=usd_number(use.limit),
        used_usd=usd_number(use.used),
        used_percent=_percent(use.percent(use.used)),
        ends_at=use.ends_at,
        forecast_running_usd=usd_number(use.forecast_running),
        forecast_mean_usd=usd_number(use.forecast_mean),
        forecast_running_percent=_percent(use.percent(use.forecast_running)),
        forecast_mean_percent=_percent(use.percent(use.forecast_mean)),
    )


def _percent(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def calibration_json(calibration: Calibration) -> dict[str, Any]:
    """JSON of one provider of `gpuwatch launches costs --calibrate`."""
    return {
        "provider": calibration.provider,
        "launches": calibration.launches,
        "launches_left_out": calibration.left_out,
        "billed_hours": round(calibration.billed_hours, 3),
        "first_day": calibration.first_day,
        "last_day": calibration.last_day,
        "not_enough_data": calibration.why_not,
        "candidates": [_candidate_json(candidate) for candidate in calibration.candidates],
        "best": None if calibration.best is None else _candidate_json(calibration.best),
        "best_is_poor": calibration.is_poor,
        "settings": calibration.advice,
    }


def _candidate_json(candidate: CommissionCandidate) -> dict[str, Any]:
    return {
        "name": candidate.name,
        "mode": candidate.mode,
        "rate": candidate.rate,
        "median_error_percent": round(candidate.error_percent, 4),
    }
