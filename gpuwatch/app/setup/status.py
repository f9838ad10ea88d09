"""One screen of everything: what waits for the owner, what runs and costs, each watch, the providers that are down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta

from gpuwatch.app.alerts.alerts import silences
from gpuwatch.app.alerts.needs import NeedView, needs_of_owner
from gpuwatch.app.jobs.jobs import listed_jobs
from gpuwatch.app.launches.budget_uses import SpendingNow, spending_now
from gpuwatch.app.launches.cost_views import BudgetUseView, budget_use_view
from gpuwatch.app.market.provider_status import provider_statuses
from gpuwatch.app.setup.hosts import GONE, LEADS, STEPS_DOWN, known_hosts
from gpuwatch.app.watches.pauses import pause_lines, pauses
from gpuwatch.app.watches.watch_selection import in_group
from gpuwatch.app.watches.watch_status import (
    WatchStatus,
    WatchStatusView,
    watch_status_view,
    watch_statuses,
)
from gpuwatch.bootstrap import open_store_read_only, real_now
from gpuwatch.domain.jobs.job import OVER, JobState
from gpuwatch.domain.launches.life.launch_record import LaunchView, launch_view
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.json_view import JsonView, Moment
from gpuwatch.domain.market.money import MICRO, dollars, per_hour, usd
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.storage.jobs.job_repository import SqlJobRepository

if TYPE_CHECKING:
    from gpuwatch.app.market.provider_status import ProviderStatus
    from gpuwatch.app.setup.hosts import HostView
    from gpuwatch.settings import Settings


class StatusNow(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about now.

    Attributes:
        jobs: state → number of jobs that are not over.
        paused: why nothing is rented, or not by some watches, one line each.
        hosts: the daemons on this database; with SQLite unknown, and empty.
        channels: where alerts go.
    """

    at: datetime
    needs: Sequence[NeedView]
    spending: SpendingNow
    jobs: Mapping[str, int]
    watches: Sequence[WatchStatus]
    providers: Sequence[ProviderStatus]
    paused: Sequence[str]
    silenced: Sequence[str]
    hosts: Sequence[HostView]
    channels: Sequence[str]
    dry_run: bool

    @property
    def sentence(self) -> str:
        """The whole in a sentence or two."""
        count = len(self.needs)
        needs = "Nothing needs you" if not count else f"{count_text(count, 'thing needs', 'things need')} you"
        alive = [launch for launch in self.spending.alive if not launch.dry_run]
        burn = per_hour(usd(self.spending.burn.effective))
        are = "is" if len(alive) == 1 else "are"
        runs = f"{count_text(len(alive), 'launch', 'launches')} {are} active at {burn}" if alive else "nothing runs"
        spent = f"{dollars(usd(self.spending.today_microusd))} today, {dollars(usd(self.spending.month_microusd))}"
        return f"{needs}; {runs} ({spent} this month)."

    def down(self, zone: ZoneInfo) -> list[ProviderDownView]:
        """The providers that do not answer, or cannot be polled."""
        views = (provider_down(status, zone) for status in self.providers)
        return [view for view in views if view is not None]


class ProviderDownView(JsonView, frozen=True, kw_only=True):
    """A provider without usable answers."""

    provider: str
    status: str
    since: Moment | None
    last_answer_at: Moment | None
    reason: str
    what: Annotated[str, Meta(description="What is wrong and since when, without the provider's name.")]


class StatusView(JsonView, frozen=True, kw_only=True):
    """The result of `gpuwatch status`."""

    at: Moment
    sentence: str
    needs_you: list[NeedView]
    launches: list[LaunchView]
    burn_usd_hour: Annotated[float, Meta(description="Commission included.")]
    today_usd: Annotated[float, Meta(description="Since midnight, UTC.")]
    month_usd: float
    budgets: list[BudgetUseView]
    jobs: Annotated[dict[str, int], Meta(description="State: number of jobs that are not over.")]
    watches: list[WatchStatusView]
    providers_down: list[ProviderDownView]
    paused: list[str]
    silenced: list[str]
    hosts: Annotated[dict[str, str], Meta(description="Host: its state. Empty with SQLite.")]
    channels: Annotated[list[str], Meta(description="Where alerts go. Empty: only to the log and `gpuwatch alerts`.")]
    dry_run: bool


def provider_down(status: ProviderStatus, zone: ZoneInfo) -> ProviderDownView | None:
    """Why a provider has no usable answers; None: it has."""
    if status.status == "blind":
        since, why, what = status.health.blind_since, status.health.last_error or "no answer", "not answering"
    elif status.status == "empty" and status.empty is not None:
        since, why, what = status.empty.set_at, status.empty.reason, "answers without offers"
    elif status.status == "extra missing":
        since, why, what = None, "its extra is not installed", "not polled"
    else:
        return None
    when = "" if since is None else f" since {format_moment(since, zone)}"
    what = f"{what}{when}: {why}"
    return ProviderDownView.of(status, since=since, reason=why, what=what, last_answer_at=status.health.complete_at)


def status_now(settings: Settings, group: str | None = None) -> StatusNow:
    """Read it from the store; sends no request.

    Args:
        group: only its watches, what they rented and cost, and what they need; None: all.

    Raises:
        UsageError: there is no such group.
        StoreError: the store cannot be read.
    """
    now, zone = real_now(), ZoneInfo(settings.timezone)
    watches = in_group(settings, group)
    names = None if group is None else {watch.name for watch in watches} | _job_names(settings, group)
    spending, statuses = spending_now(settings, now, names), watch_statuses(settings, watches)
    with open_store_read_only(settings) as store:
        needs = needs_of_owner(settings, store, statuses, spending.alive, now)
        jobs = SqlJobRepository(store).counts()
    return StatusNow(
        at=now,
        needs=needs,
        spending=spending,
        jobs={state: count for state, count in jobs.items() if count and JobState(state) not in OVER},
        watches=statuses,
        providers=provider_statuses(settings, only_enabled=True, with_polling=False),
        paused=pause_lines(pauses(settings), now, settings.timezone),
        silenced=[f"{one.watch} until {format_moment(one.until, zone)}" for one in silences(settings)],
        hosts=[host for host in known_hosts(settings) if host.state != GONE],
        channels=tuple(settings.channels),
        dry_run=settings.dry_run,
    )


def _job_names(settings: Settings, group: str) -> set[str]:
    return {job.watch_name for job in listed_jobs(settings, all_jobs=True, group=group)}


def status_view(status: StatusNow, zone: ZoneInfo) -> StatusView:
    """It as other programs see it."""
    spending = status.spending
    return StatusView.of(
        status,
        spending,
        needs_you=list(status.needs),
        launches=[launch_view(launch, status.at) for launch in spending.alive],
        burn_usd_hour=spending.burn.effective / MICRO,
        today_usd=spending.today_microusd / MICRO,
        month_usd=spending.month_microusd / MICRO,
        budgets=[budget_use_view(use) for use in spending.budgets],
        jobs=dict(status.jobs),
        watches=[watch_status_view(one) for one in status.watches],
        providers_down=status.down(zone),
        paused=list(status.paused),
        silenced=list(status.silenced),
        hosts={host.host: host.state for host in status.hosts},
        channels=list(status.channels),
    )


def note_lines(status: StatusNow, zone: ZoneInfo) -> Iterator[str]:
    """What else is to know, one line each: jobs, budgets, providers, pauses, silences, hosts."""
    if status.jobs:
        yield f"jobs: {', '.join(f'{count} {state}' for state, count in status.jobs.items())}"
    for use in status.spending.budgets:
        percent = use.percent(use.used)
        of_watch = "" if use.watch is None else f" of {use.watch}"
        share = "" if percent is None else f" ({percent:.0f} %)"
        ahead = ""
        if use.ends_at is not None and use.forecast_running is not None and use.forecast_running > use.used:
            ahead = f"; {dollars(usd(use.forecast_running))} by {format_moment(use.ends_at, zone)} if what runs goes on"
        yield f"budget{of_watch}, {use.limit_name}: {dollars(usd(use.used))} of {dollars(usd(use.limit))}{share}{ahead}"
    down = status.down(zone)
    yield from (f"down: {one.provider}, {one.what}" for one in down)
    if status.providers and not down:
        yield f"{count_text(len(status.providers), 'provider')}: none is down"
    yield from status.paused
    yield from (f"silenced: {one}" for one in status.silenced)
    if status.hosts:
        leads = any(host.state in {LEADS, STEPS_DOWN} for host in status.hosts)
        names = ", ".join(f"{host.host} {host.state}" for host in status.hosts)
        yield f"hosts: {names}" if leads else f"hosts: {names}; no host leads, so nothing is rented now"
    if status.watches and not status.channels:
        yield "no channel is configured: alerts appear only in `gpuwatch alerts`; set one up: gpuwatch docs alerts"
    if status.dry_run:
        yield "dry_run = true: nothing is rented"
