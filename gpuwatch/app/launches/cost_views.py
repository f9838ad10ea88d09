"""JSON of the costs of a month and of the commission that fits, as commands, the page and other programs show them."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.domain.launches.money.charge_comparison import CHARGE_KINDS, Calibration, InvoiceSummary
from gpuwatch.domain.launches.money.month_forecast import LEAST_DAYS, BudgetUse, Forecast
from gpuwatch.domain.market.json_view import JsonView, Moment, usd_number
from gpuwatch.domain.market.money import MICRO
from gpuwatch.domain.market.offer import clean

if TYPE_CHECKING:
    from gpuwatch.app.launches.costs import CostDay, CostReport
    from gpuwatch.domain.launches.money.charge_comparison import CommissionCandidate
    from gpuwatch.domain.launches.money.reclaim import Reclaim

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


class CostDayView(JsonView, frozen=True, kw_only=True):
    """One day (UTC) of the month."""

    day: date
    effective_usd: float
    lines: Annotated[dict[str, float], Meta(description="The key of a line: its dollars on this day.")]
    forecast_usd: Annotated[float, Meta(description="Still to come: at the daily mean, and no less than what runs.")]


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


class ReclaimView(JsonView, frozen=True, kw_only=True):
    """What one bad machine took, to reclaim at its provider."""

    launch_id: str
    provider: str
    instance_id: str | None
    machine_id: str | None
    requested_at: Moment | None
    ended_at: Moment | None
    lasted_s: Annotated[float, Meta(description="From the order to the proven end.")]
    usd: Annotated[float, Meta(description="As billed: without the commission on top.")]
    why: str


class CostReportView(JsonView, frozen=True, kw_only=True):
    """`gpuwatch launches costs`, described in docs/costs.md."""

    at: Moment
    month: str
    timezone: str = "UTC"
    by: str
    lines: list[CostLineView]
    total: CostLineView
    days: list[CostDayView]
    burn: BurnRateView
    forecast: CostForecastView | None
    budgets: list[BudgetUseView]
    reclaims: Annotated[
        list[ReclaimView], Meta(description="Machines that did not pass their check, ended this month.")
    ]


def cost_report_view(report: CostReport, by: str) -> CostReportView:
    """The report as commands, the page and other programs show it."""
    burn = report.burn
    return CostReportView.of(
        at=report.now,
        month=f"{report.first:%Y-%m}",
        by=by,
        lines=[_line_view(line, **_name_of(report, line, by)) for line in report.lines],
        total=_line_view(report.total),
        days=[_day_view(day) for day in report.days],
        burn=BurnRateView.of(burn, **_usd(burn, "listed", "effective", unit="_usd_hour")),
        forecast=None if report.forecast is None else _forecast_view(report.forecast),
        budgets=list(map(budget_use_view, report.budgets)),
        reclaims=[_reclaim_view(one) for one in report.reclaims],
    )


def _reclaim_view(one: Reclaim) -> ReclaimView:
    return ReclaimView.of(
        one.launch, lasted_s=one.lasted.total_seconds(), usd=usd_number(one.microusd), why=clean(one.why)
    )


def _day_view(day: CostDay) -> CostDayView:
    return CostDayView(
        day=day.day,
        effective_usd=sum(day.costs.values()) / MICRO,
        lines={name: microusd / MICRO for name, microusd in day.costs.items()},
        forecast_usd=day.ahead / MICRO,
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
        "predicted_usd": usd_number(calibration.predicted),
        "charged_usd": usd_number(calibration.charged),
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
