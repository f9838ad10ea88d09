"""Costs: spending, forecast and charges of a month, from the store or, on request, from the providers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from gpuwatch import providers
from gpuwatch.app.launches.budget_uses import machines_at_once, uses_of_budgets
from gpuwatch.bootstrap import build_adapters, http_client, monotonic, open_store, open_store_read_only, real_now
from gpuwatch.bootstrap.provider_access import has_credentials
from gpuwatch.domain.launches.money.charge_comparison import (
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
from gpuwatch.domain.launches.money.month_forecast import BudgetUse, Forecast, forecast_costs, forecast_days
from gpuwatch.domain.launches.money.reclaim import Reclaim, reclaims
from gpuwatch.domain.market.money import Commission
from gpuwatch.engine.launches.guarding.invoice_fetcher import InvoiceFetcher
from gpuwatch.errors import ProviderError, ResourceNotFound, UsageError
from gpuwatch.storage.launches.invoice_rows import SqlInvoiceRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.launches.launch_totals import SqlLaunchTotals

if TYPE_CHECKING:
    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.settings import Settings

_DAY = timedelta(days=1)

KEYS: Mapping[str, Callable[[InvoiceLine], str]] = {
    "watch": lambda cell: cell.launch.watch,
    "provider": lambda cell: cell.launch.provider,
    "gpu": lambda cell: cell.launch.gpu,
    "day": lambda cell: cell.day.isoformat(),
    "launch": lambda cell: cell.launch.launch_id,
}


class CostDay(msgspec.Struct, frozen=True, kw_only=True):
    """The costs of a day (UTC), commission included, in micro-dollars.

    Attributes:
        costs: by the key of the line, so that the days of a line add up to it.
        ahead: what the day still costs by the forecast of the month; 0 if it is over.
    """

    day: date
    costs: Mapping[str, int]
    ahead: int = 0


class CostReport(msgspec.Struct, frozen=True, kw_only=True):
    """The costs of a month. `forecast` is None except for the current month.

    Attributes:
        days: every day of the month, also those to come.
        began: when gpuwatch first rented; None: never.
        machines: those that now count against the limit of machines at once.
        providers: the same costs by provider.
    """

    now: datetime
    first: date
    began: datetime | None
    lines: list[InvoiceSummary]
    days: list[CostDay]
    total: InvoiceSummary
    providers: list[InvoiceSummary]
    burn: BurnRate
    machines: int
    forecast: Forecast | None
    budgets: list[BudgetUse]
    launches: dict[str, Launch]  # the launches in the lines, by id
    reclaims: list[Reclaim]  # of machines that did not pass their check and were ended in the month


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
    is_current, first_order = first == today.replace(day=1), min(began.values(), default=None)
    forecast = forecast_costs(launches, now, first_order) if is_current else None
    return CostReport(
        now=now,
        first=first,
        began=first_order,
        lines=_sorted(summarize_by(summaries, KEYS[by]), by),
        days=_days(summaries, KEYS[by], first, {} if forecast is None else forecast_days(launches, now, forecast)),
        total=summarize("total", summaries),
        providers=_sorted(summarize_by(summaries, KEYS["provider"]), "provider"),
        burn=burn_rate(launches, now),
        machines=machines_at_once(launches),
        forecast=forecast,
        budgets=list(uses_of_budgets(settings, launches, began, None if is_current else begin, now)),
        launches={cell.launch.launch_id: cell.launch for cell in summaries},
        reclaims=reclaims(launches, begin, end),
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


def _days(
    lines: Iterable[InvoiceLine], key: Callable[[InvoiceLine], str], first: date, ahead: Mapping[date, int]
) -> list[CostDay]:
    begin, end = month_of(first)
    costs: dict[date, dict[str, int]] = {}
    for line in lines:
        of_day, name = costs.setdefault(line.day, {}), key(line)
        of_day[name] = of_day.get(name, 0) + line.cost.effective
    days = [begin.date() + number * _DAY for number in range((end - begin).days)]
    return [CostDay(day=day, costs=costs.get(day, {}), ahead=ahead.get(day, 0)) for day in days]


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
