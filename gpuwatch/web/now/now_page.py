"""The page Now: what needs its owner, what runs, the watches, the providers, the budgets, and the last night."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from gpuwatch.app.alerts.alert_days import event_owner, event_text
from gpuwatch.app.alerts.alerts import stored_events
from gpuwatch.app.alerts.needs import needs_of_owner
from gpuwatch.app.launches.approval_details import approval_details
from gpuwatch.app.launches.approvals import open_approvals
from gpuwatch.app.launches.budget_uses import spending_now
from gpuwatch.app.launches.running_machines import running_machines
from gpuwatch.app.market.current_offers import max_price_age
from gpuwatch.app.market.provider_status import provider_statuses
from gpuwatch.app.watches import pauses
from gpuwatch.app.watches.watch_status import watch_statuses
from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.engine.alerts.page_links import page_path
from gpuwatch.ports import AlertKind, Severity
from gpuwatch.storage.alerts.alert_rows import EventFilter
from gpuwatch.storage.history.queries.poll_queries import searches_since
from gpuwatch.web.approvals import approval_texts
from gpuwatch.web.now.first_run import FIRST_STEPS, first_run
from gpuwatch.web.now.now_answer import NowFigures, answer, heading
from gpuwatch.web.now.now_notices import budget_title, notices
from gpuwatch.web.page import SHARED_S, Page, View
from gpuwatch.web.watches.watch_rows import watch_rows

if TYPE_CHECKING:
    from gpuwatch.app.market.provider_status import ProviderStatus
    from gpuwatch.settings import Settings
    from gpuwatch.storage.alerts.alert_rows import StoredEvent
    from gpuwatch.storage.setup.database import Database

_EVENTS_SHOWN = 8
_EVENING_H = 18
_WITH_SPARKLINES = 12  # watches; more of them are a table
_OFF, _NOT_SHOWN = "off", frozenset({AlertKind.AUDIT, AlertKind.TEST})


def _show_now(view: View) -> Mapping[str, Any]:
    settings, now = view.settings, view.now
    statuses, spending = watch_statuses(settings), spending_now(settings, now)
    providers = provider_statuses(settings, only_enabled=True, with_polling=False)
    silent = [(one, _silent_since(one)) for one in providers if one.status not in {"on", _OFF}]
    waiting = sorted(open_approvals(settings, now), key=lambda one: (one.deadline, one.approval_id))
    rented = [launch for launch in spending.alive if not launch.dry_run]
    with open_store_read_only(settings) as store:
        needs = needs_of_owner(settings, store, statuses, spending.alive, now)
        machines = running_machines(settings, store, rented, now)
        is_running = view.owner.is_daemon or _is_polled(settings, store, now)
    figures = NowFigures(
        decisions=len(waiting),
        held=sum(launch.state is LaunchState.HELD for launch in rented),
        is_running=is_running,
        silent=[(one.info.title, since) for one, since in silent],
        burn=spending.burn,
        pause=next((one for one in pauses.pauses(settings).in_force(now) if one.watch is None), None),
        dry_run=settings.dry_run,
        now=now,
    )
    return {
        "heading": heading(figures),
        "answer": answer(figures, settings.watches),
        "figures": figures,
        "waiting": approval_details(settings, waiting, now),
        "texts": approval_texts,
        "notices": notices(needs, machines, silent, spending.budgets),
        "machines": [one for one in machines if one.launch.state is not LaunchState.HELD],
        "rows": watch_rows(view, statuses),
        "has_sparklines": len(statuses) <= _WITH_SPARKLINES,
        "seen_at": max((one.seen_at for one in statuses if one.seen_at is not None), default=None),
        "next_poll_at": min((one.next_poll_at for one in statuses if one.next_poll_at is not None), default=None),
        "providers": providers,
        "newest_at": max((one.health.complete_at for one in providers if one.health.complete_at), default=None),
        "budgets": [(budget_title(use), use) for use in spending.budgets if use.limit],
        "events": _events(settings, now),
        "event_text": event_text,
        "event_owner": event_owner,
        **first_run(view, providers),
    }


def _silent_since(status: ProviderStatus) -> datetime | None:
    if status.health.blind_since is not None:
        return status.health.blind_since
    return None if status.empty is None else status.empty.set_at


def _is_polled(settings: Settings, store: Database, now: datetime) -> bool:
    """Whether any daemon has searched lately, with or without an answer."""
    return any(searches_since(store, name, now - max_price_age(settings, name)) for name in settings.providers)


def _events(settings: Settings, now: datetime) -> Sequence[tuple[StoredEvent, str]]:
    """What happened since 18:00 of yesterday, newest first, each with the page that it is about."""
    local = now.astimezone(ZoneInfo(settings.timezone))
    evening = (local - timedelta(days=1)).replace(hour=_EVENING_H, minute=0, second=0, microsecond=0)
    kinds = tuple(kind for kind in AlertKind if kind not in _NOT_SHOWN)
    found = stored_events(settings, EventFilter(since=evening, kinds=kinds, severity=Severity.INFO))
    return [(event, page_path(event.alert)) for event in found[: -_EVENTS_SHOWN - 1 : -1]]


NOW_PAGE = Page(
    name="Now",
    path="/",
    template="now.html",
    show=_show_now,
    order=0,
    shared_s=SHARED_S,
    actions=FIRST_STEPS,
)
