"""The page Log: the newest records of the daemon in this process, from memory."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from gpuwatch.app.reader_text import as_datetime
from gpuwatch.daemon.log_records import SafeRecord
from gpuwatch.language import translate as _
from gpuwatch.language import translate_plural
from gpuwatch.web.page import Page, View

_LEVELS = {"all": logging.NOTSET, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_SHOWN = 200


class _Level(NamedTuple):
    """How a level is shown."""

    icon: str
    tone: str
    word: str


def _show(view: View) -> Mapping[str, Any]:
    level = view.choice("level", _LEVELS, "all")
    text, recent_log = view.query.get("q", "").strip()[:200], view.owner.recent_log
    records = [] if recent_log is None else recent_log.newest(_LEVELS[level], text)
    return {
        "is_daemon": recent_log is not None,
        "rows": [_row(record) for record in records[:_SHOWN]],
        "answer": _answer(records),
        "levels": _level_words(),
        "asked": {"level": level, "q": text},
    }


def _answer(records: list[SafeRecord]) -> str:
    errors = sum(record.level >= logging.ERROR for record in records)
    count = len(records)
    if errors:
        text = translate_plural(
            "{count} error among the newest records.", "{count} errors among the newest records.", errors
        )
        return text.format(count=errors)
    if not count:
        return _("No record fits.")
    text = translate_plural("{count} record, no error.", "{count} records, no error.", count)
    return text.format(count=count)


def _level_words() -> dict[str, str]:
    return {"all": _("Everything"), "info": _("Information"), "warning": _("Warnings"), "error": _("Errors")}


def _row(record: SafeRecord) -> dict[str, Any]:
    at = datetime.fromtimestamp(record.created_s, UTC)
    return {
        "at": at,
        "clock": f"{as_datetime(at):%H:%M:%S}",
        "level": _level(record.level),
        "logger": record.logger,
        "message": record.message,
        "below": record.details_text,
    }


def _level(number: int) -> _Level:
    if number >= logging.ERROR:
        return _Level("st-fail", "bad", _("Error"))
    if number >= logging.WARNING:
        return _Level("warn", "warn", _("Warning"))
    return _Level("st-wait", "muted", _("Information") if number >= logging.INFO else _("Detail"))


LOG_PAGE = Page(name="Log", path="/log", template="log.html", show=_show, order=90)
