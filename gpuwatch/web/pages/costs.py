"""Costs: spending by watch, provider, day or launch; the forecast; predicted against charged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from gpuwatch.app.costs import KEYS, cost_report, cost_report_json
from gpuwatch.web.page import Page, View

_MONTH = re.compile(r"([0-9]{4})-([0-9]{2})")


def _show(view: View) -> Mapping[str, Any]:
    by = view.query.get("by", "watch")
    by = by if by in KEYS else "watch"
    month = _first_of(view.query.get("month", ""))
    report = cost_report_json(cost_report(view.settings, by, month), by)
    return {"report": report, "by": by, "ways": list(KEYS), "lines": [_line(line, by) for line in report["lines"]]}


def _line(line: Mapping[str, Any], by: str) -> dict[str, Any]:
    return {**line, "name": line["launch_id" if by == "launch" else by]}


def _first_of(text: str) -> date | None:
    """Return the first day of a month; None: the current one, also for text that is not a month."""
    match = _MONTH.fullmatch(text)
    if match is None or not 1 <= int(match[2]) <= 12 or not 1970 <= int(match[1]) <= 9998:
        return None
    return date(int(match[1]), int(match[2]), 1)


PAGE = Page(name="Costs", path="/costs", template="costs.html", show=_show, order=50)
