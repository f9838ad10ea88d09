"""The pages about gpuwatch itself: Now, its alerts, its settings, its log."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from gpuwatch.app.alerts.alerts import event_filter, silences, stored_events
from gpuwatch.app.alerts.needs import APPROVAL, HELD, needs_of_owner
from gpuwatch.app.launches.approvals import open_approvals
from gpuwatch.app.launches.budget_uses import spending_now
from gpuwatch.app.market.provider_status import blind_lanes, provider_statuses
from gpuwatch.app.setup.hosts import HostView, known_hosts
from gpuwatch.app.watches import pauses
from gpuwatch.app.watches.watch_status import watch_statuses
from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.daemon.log_records import SafeRecord
from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.domain.setup.durations import parse_duration
from gpuwatch.errors import SettingsError, StoreError
from gpuwatch.ports import AlertKind, Severity
from gpuwatch.web.page import Page, View

_SINCES = ("1d", "7d", "30d")
_ALERTS_SHOWN = 300
_LEVELS = {"all": logging.NOTSET, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_LOG_SHOWN = 200


# --- Now: watches, providers, spending, pending decisions -------------------------------------------------------------


def _show_now(view: View) -> Mapping[str, Any]:
    settings, now = view.settings, view.now
    spending = spending_now(settings, now)
    launches = spending.alive
    statuses = provider_statuses(settings, only_enabled=True, with_polling=False)
    watches = watch_statuses(settings)
    with open_store_read_only(settings) as store:
        needs = needs_of_owner(settings, store, watches, launches, now)
    return {
        "watches": watches,
        "needs": [need for need in needs if need.kind not in {APPROVAL, HELD}],
        "providers": [(status, blind_lanes(status)) for status in statuses],
        "launches": launches,
        "held": [launch for launch in launches if launch.state is LaunchState.HELD],
        "approvals": open_approvals(settings, now),
        "burn": spending.burn,
        "budgets": [(use, use.percent(use.used)) for use in spending.budgets],
        "pauses": list(pauses.pauses(settings).in_force(now)),
    }


NOW_PAGE = Page(
    name="Now",
    path="/",
    template="now.html",
    show=_show_now,
    order=0,
    shared_s=0.5,
)


# --- alerts, and their delivery on each channel -----------------------------------------------------------------------


def _show_alerts(view: View) -> Mapping[str, Any]:
    since, kind = view.choice("since", _SINCES, "7d"), view.choice("kind", list(AlertKind), "")
    severity = view.choice("severity", list(Severity), Severity.INFO)
    filter_ = event_filter(parse_duration(since), [kind] if kind else (), severity)
    events = stored_events(view.settings, filter_)
    return {
        "asked": {"since": since, "kind": kind, "severity": severity},
        "events": events[::-1][:_ALERTS_SHOWN],
        "count": len(events),
        "silences": silences(view.settings),
        "sinces": _SINCES,
        "kinds": [kind.value for kind in AlertKind],
        "severities": [severity.value for severity in Severity],
    }


ALERTS_PAGE = Page(name="Alerts", path="/alerts", template="alerts.html", show=_show_alerts, order=70)


# --- settings: every value and its origin; secrets masked -------------------------------------------------------------


def _show_settings(view: View) -> Mapping[str, Any]:
    from gpuwatch.app.setup.config import settings_json  # noqa: PLC0415 pydantic, only when needed
    from gpuwatch.settings.show import origins  # noqa: PLC0415

    search_text = view.query.get("q", "").strip()
    try:
        values, faults = settings_json(*origins(view.owner.config)), []
    except SettingsError as error:  # of the file as it is now; the old settings are still in use
        values, faults = {"source_file": view.owner.config, "settings": []}, list(error.faults)
    rows = [row for row in values["settings"] if search_text.casefold() in row["key"].casefold()]
    only_set = view.query.get("all") != "yes"
    return {
        "file": values["source_file"],
        "faults": faults,
        "rows": [row for row in rows if row["origin"] != "default" or not only_set or search_text],
        "count": len(rows),
        "asked": {"q": search_text, "all": "" if only_set else "yes"},
        "hosts": _hosts(view),
    }


def _hosts(view: View) -> Sequence[HostView]:
    try:
        return known_hosts(view.settings)
    except StoreError:  # the settings are shown without a store, too
        return ()


SETTINGS_PAGE = Page(name="Settings", path="/settings", template="settings.html", show=_show_settings, order=80)


# --- log: the newest records of the daemon, from memory ---------------------------------------------------------------


def _show_log(view: View) -> Mapping[str, Any]:
    level = view.choice("level", _LEVELS, "all")
    text, recent_log = view.query.get("q", "").strip(), view.owner.recent_log
    lines = [] if recent_log is None else recent_log.newest(_LEVELS[level], text)
    return {
        "is_daemon": recent_log is not None,
        "rows": [_log_row(line) for line in lines[:_LOG_SHOWN]],
        "count": len(lines),
        "levels": list(_LEVELS),
        "asked": {"level": level, "q": text},
    }


def _log_row(record: SafeRecord) -> dict[str, Any]:
    return {
        "at": datetime.fromtimestamp(record.created_s, UTC),
        "level": logging.getLevelName(record.level).lower(),
        "logger": record.logger,
        "message": record.message,
        "below": record.details_text,
    }


LOG_PAGE = Page(name="Log", path="/log", template="log.html", show=_show_log, order=90)
