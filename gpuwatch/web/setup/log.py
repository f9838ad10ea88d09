"""Log: the newest records of the daemon, from memory."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from gpuwatch.daemon.log_records import SafeRecord
from gpuwatch.web.page import Page, View

_LEVELS = {"all": logging.NOTSET, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_LOG_SHOWN = 200


def _show_log(view: View) -> Mapping[str, Any]:
    level = view.choice("level", _LEVELS, "all")
    text, recent_log = view.query.get("q", "").strip(), view.owner.recent_log
    lines = [] if recent_log is None else recent_log.newest(_LEVELS[level], text)
    return {
        "is_daemon": recent_log is not None,
        "rows": [_row(line) for line in lines[:_LOG_SHOWN]],
        "count": len(lines),
        "levels": list(_LEVELS),
        "asked": {"level": level, "q": text},
    }


def _row(record: SafeRecord) -> dict[str, Any]:
    return {
        "at": datetime.fromtimestamp(record.created_s, UTC),
        "level": logging.getLevelName(record.level).lower(),
        "logger": record.logger,
        "message": record.message,
        "below": record.details_text,
    }


LOG_PAGE = Page(name="Log", path="/log", template="log.html", show=_show_log, order=90)
