"""What was spent, where the month is heading, and what the charges say: from the store, and on wish from providers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from gpuwatch import providers
from gpuwatch.bootstrap import (
    build_adapters,
    http_client,
    monotonic,
    open_store,
    real_now,
)
from gpuwatch.bootstrap.provider_access import has_credentials
from gpuwatch.domain.launches.calibration import Calibration, calibrate
from gpuwatch.domain.launches.costs import BurnRate, burn_rate, month_of
from gpuwatch.domain.launches.forecast import (
    BudgetUse,
    Forecast,
    budget_uses,
    forecast,
    past_uses,
)
from gpuwatch.domain.launches.invoices import (
    InvoiceLine,
    InvoiceSummary,
    invoice_lines,
    open_days,
    summarize,
    summarize_by,
)
from gpuwatch.domain.market.pricing import Commission
from gpuwatch.engine.invoices import InvoiceCollector
from gpuwatch.engine.periodic_task import PeriodicTask
from gpuwatch.errors import ProviderError, UsageError
from gpuwatch.storage.invoices import SqlInvoiceRepository
from gpuwatch.storage.launch_repository import SqlLaunchRepository

if TYPE_CHECKING:
    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.domain.watches.watch import Budget
    from gpuwatch.ports import Launcher
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.settings import Settings
    from gpuwatch.storage.database import Database

LOOK_EVERY_S = 300.0  # is an hour over? The collector itself counts it
_DAY = timedelta(days=1)

KEYS: Mapping[str, Callable[[InvoiceLine], str]] = {
    "watch": lambda cell: cell.launch.watch,
    "provider": lambda cell: cell.launch.provider,
    "day": lambda cell: cell.day.isoformat(),
    "launch": lambda cell: cell.launch.launch_id,
}


class CostReport(msgspec.Struct, frozen=True, kw_only=True):
    """A month's costs. `forecast` None: the month is not the one that runs."""

    now: datetime
    first: date
    lines: list[InvoiceSummary]
    total: InvoiceSummary
    burn: BurnRate
    forecast: Forecast | None
    budgets: list[BudgetUse]
    launches: dict[str, Launch]  # those of the lines, by id


def cost_report(settings: Settings, by: str, month: date | None = None) -> CostReport:
    """The costs of a month (its first day; None: this one, UTC), from the store alone. Raises StoreError."""
    now = real_now()
    with open_store(settings) as store:
        launches, charges = SqlLaunchRepository(store).all(), SqlInvoiceRepository(store).all()
    today = now.astimezone(UTC).date()
    first = today.replace(day=1) if month is None else month
    begin, end = month_of(first)
    found = invoice_lines(launches, charges, now, begin.date(), end.date() - _DAY)
    is_current = first == today.replace(day=1)
    return CostReport(
        now=now,
        first=first,
        lines=_sorted(summarize_by(found, KEYS[by]), by),
        total=summarize("total", found),
        burn=burn_rate(launches, now),
        forecast=forecast(launches, now) if is_current else None,
        budgets=list(_budgets(settings, launches, None if is_current else begin, now)),
        launches={cell.launch.launch_id: cell.launch for cell in found},
    )


def fetch_charges(settings: Settings, only: str | None = None) -> list[str]:
    """Ask the providers now what they charged, where something is not final yet. Returns a line for each trouble.

    Raises:
        UsageError: no provider of that name is known.
        StoreError: what was answered cannot be kept.
    """
    now = real_now()
    with open_store(settings) as store, http_client(settings) as http:
        repository, book = SqlLaunchRepository(store), SqlInvoiceRepository(store)
        launches = repository.all()
        told = (
            _refreshed(settings, http, name, launches, book, now)
            for name in _names(settings, launches, only)
            if open_days((one for one in launches if one.provider == name), book.final(name), now)
        )
        return [trouble for trouble in told if trouble is not None]


def calibrations(settings: Settings, only: str | None = None) -> list[Calibration]:
    """Which commission fits the stored charges of each provider that was rented at. Raises UsageError, StoreError."""
    now = real_now()
    with open_store(settings) as store:
        launches, charges = SqlLaunchRepository(store).all(), SqlInvoiceRepository(store).all()
    found = invoice_lines(launches, charges, now)
    return [calibrate(name, found, _commission(settings, name)) for name in _names(settings, launches, only)]


def budgets_used(settings: Settings, launches: Sequence[Launch]) -> list[BudgetUse]:
    """How much of each limit in dollars is used now: of the budget over everything first, then of each watch's."""
    return list(_budgets(settings, launches, None, real_now()))


def charge_tasks(store: Database, launchers: Mapping[str, Launcher]) -> list[PeriodicTask]:
    """One beat for each provider that rents: it fetches charges, at most once an hour."""
    repository, book = SqlLaunchRepository(store), SqlInvoiceRepository(store)

    def beat(name: str, launcher: Launcher) -> PeriodicTask:
        collector = InvoiceCollector(name, launcher, repository.all, book, monotonic)
        return PeriodicTask(name=f"charges {name}", run=lambda: collector.run_if_due(real_now()), every_s=LOOK_EVERY_S)

    return [beat(name, launcher) for name, launcher in launchers.items()]


def _sorted(found: list[InvoiceSummary], by: str) -> list[InvoiceSummary]:
    if by == "day":
        return sorted(found, key=lambda one: one.key)
    if by == "launch":
        return found  # cells come oldest launch first
    return sorted(found, key=lambda one: (-one.cost.effective, one.key))


def _budgets(
    settings: Settings, launches: Sequence[Launch], past: datetime | None, now: datetime
) -> Iterable[BudgetUse]:
    """Every budget that is set: the one over everything first. `past`: the beginning of a month that is over."""
    scopes: list[tuple[str | None, Budget, list[Launch]]] = [(None, settings.budget, list(launches))]
    scopes += [(watch.name, watch.budget, [o for o in launches if o.watch == watch.name]) for watch in settings.watches]
    for name, budget, mine in scopes:
        if past is None:
            yield from budget_uses(name, budget, mine, now)
        else:
            yield from past_uses(name, budget, mine, past, now)


def _names(settings: Settings, launches: Iterable[Launch], only: str | None) -> list[str]:
    """The provider that is meant, or each that was rented at."""
    rented = dict.fromkeys(one.provider for one in launches if not one.dry_run)
    if only is None:
        return sorted(rented)
    if only not in rented and only not in settings.providers:
        raise UsageError(f"no provider {only!r} is enabled, and nothing was rented there")
    return [only]


def _commission(settings: Settings, name: str) -> Commission:
    """As it is set; of a provider that left the settings, as gpuwatch knows it."""
    if name in settings.providers:
        return settings.providers[name].commission
    return providers.info(name).commission if name in providers.names() else Commission()


def _refreshed(
    settings: Settings,
    http: HttpClient,
    name: str,
    launches: Sequence[Launch],
    book: SqlInvoiceRepository,
    now: datetime,
) -> str | None:
    """Ask one provider; None: done. Else a line that says why not."""
    known = settings.providers.get(name)
    if known is None or not has_credentials(known):
        return f"{name}: there is no key for it; what it charged was not asked"
    launcher = build_adapters(settings, http, [name])[name].launcher
    if launcher is None:
        return f"{name}: gpuwatch cannot rent there; what it charged was not asked"
    try:
        kept = InvoiceCollector(name, launcher, lambda: launches, book, monotonic).collect(now)
    except ProviderError as error:
        return str(error)
    return f"{name} does not tell what it charged" if kept is None else None
