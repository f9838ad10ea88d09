"""Alerts, and their delivery on each channel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwatch.app.alerts.alerts import event_filter, silences, stored_events
from gpuwatch.domain.setup.durations import parse_duration
from gpuwatch.ports import AlertKind, Severity
from gpuwatch.web.page import Page, View

_SINCES = ("1d", "7d", "30d")
_ALERTS_SHOWN = 300


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
