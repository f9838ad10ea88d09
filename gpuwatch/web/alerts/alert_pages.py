"""The page Alerts: what happened, by day, with filters; silences on top, each with End."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from gpuwatch.app.alerts.alert_days import (
    AlertDay,
    AlertPage,
    alert_page,
    event_owner,
    event_text,
    kind_word,
    kinds_like,
)
from gpuwatch.app.alerts.alerts import end_silence, silences
from gpuwatch.app.reader_text import as_datetime, weekday
from gpuwatch.app.reader_text import day as day_text
from gpuwatch.domain.market.offer import clean
from gpuwatch.errors import UsageError
from gpuwatch.language import translate as _
from gpuwatch.language import translate_plural
from gpuwatch.ports import AlertKind, Severity
from gpuwatch.web.page import FormAction, Page, Redirect, View


class _Shape(NamedTuple):
    """How a severity is shown: shape first, colour repeats it."""

    icon: str
    tone: str
    word: str


def _shapes() -> dict[str, _Shape]:
    return {
        Severity.INFO: _Shape("st-wait", "muted", _("Information")),
        Severity.WARNING: _Shape("warn", "warn", _("Warning")),
        Severity.CRITICAL: _Shape("st-held", "bad", _("Act now")),
    }


def _show(view: View) -> Mapping[str, Any]:
    kind = view.choice("kind", list(AlertKind), "")
    severity = view.choice("severity", list(Severity), Severity.INFO)
    watch, number = view.query.get("watch", "")[:200], _number(view.query.get("page"))
    kinds = kinds_like(AlertKind(kind)) if kind else ()
    found = alert_page(view.settings, number=number, kinds=kinds, severity=Severity(severity), watch=watch or None)
    today = view.now.astimezone(ZoneInfo(view.settings.timezone)).date()
    return {
        "asked": {"kind": kind, "severity": "" if severity == Severity.INFO else severity, "watch": watch},
        "number": number,
        "days": found.days,
        "has_older": found.has_older,
        "answer": _answer(found, today, is_filtered=bool(kind or watch or severity != Severity.INFO or number > 1)),
        "day_names": {day.day: _heading(day, today) for day in found.days},
        "silences": silences(view.settings),
        "shapes": _shapes(),
        "kind_words": _kind_words(),
        "kind_chosen": kind_word(AlertKind(kind)) if kind else "",
        "watches": [(one.name, clean(one.name)) for one in view.settings.watches],
        "more_like": _more_like,
        "event_text": event_text,
        "event_owner": event_owner,
        "zone_of": ZoneInfo(view.settings.timezone),
    }


def _answer(found: AlertPage, today: date, *, is_filtered: bool) -> str:
    """The first sentence: what today asks for."""
    if is_filtered:
        return _("Only what the filters let through, newest first.")
    if not found.days:
        return _("Nothing has happened yet.")
    lines = found.days[0].lines if found.days[0].day == today else ()
    critical, warnings = (
        sum(line.event.alert.severity is severity for line in lines)
        for severity in (Severity.CRITICAL, Severity.WARNING)
    )
    if critical:
        text = translate_plural(
            "{count} alert of today asks you to act.", "{count} alerts of today ask you to act.", critical
        )
        return text.format(count=critical)
    if warnings:
        text = translate_plural(
            "{count} warning today; nothing to act on.", "{count} warnings today; nothing to act on.", warnings
        )
        return text.format(count=warnings)
    return _("No warning today.") if lines else _("Nothing has happened today.")


def _heading(day: AlertDay, today: date) -> str:
    if day.day == today:
        return _("Today")
    if day.day == today - timedelta(days=1):
        return _("Yesterday")
    at = as_datetime(day.lines[0].event.alert.created_at)
    name = f"{weekday(at)} {day_text(at)}"
    return name if at.year == today.year else f"{name} {at.year}"


def _more_like(count: int) -> str:
    return translate_plural("and {count} more like this", "and {count} more like this", count).format(count=count)


def _kind_words() -> list[tuple[str, str]]:
    """Each word once, with the first kind that has it."""
    words: dict[str, str] = {}
    for kind in AlertKind:
        words.setdefault(kind_word(kind), kind.value)
    return [(value, word) for word, value in words.items()]


def _number(text: str | None) -> int:
    if text is None or text == "":
        return 1
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:6]) < 100_000:
        raise UsageError(f"page {text[:40]!r}: expected a number from 1")
    return int(text)


def _end_silence(view: View) -> Redirect:
    watch = view.form.get("watch", "")
    if end_silence(view.settings, watch, actor=view.actor):
        return Redirect(text=_("Alerts of {watch} are sent again.").format(watch=watch), to="/alerts")
    return Redirect(text=_("{watch} was not silenced.").format(watch=watch), to="/alerts")


ALERTS_PAGE = Page(
    name="Alerts",
    path="/alerts",
    template="alerts.html",
    show=_show,
    order=70,
    actions=(FormAction(path="/alerts/unsilence", scope="manage", run=_end_silence),),
)
