"""Costs: spending by watch, provider, day or launch; the forecast; predicted against charged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwatch.app.launches.costs import KEYS, cost_report, cost_report_json, month_start
from gpuwatch.web.page import Page, View


def _show_costs(view: View) -> Mapping[str, Any]:
    by, text = view.choice("by", KEYS, "watch"), view.query.get("month", "")
    month = month_start(text) if text else None
    report = cost_report_json(cost_report(view.settings, by, month), by)
    return {"report": report, "by": by, "ways": list(KEYS), "lines": [_line(line, by) for line in report["lines"]]}


def _line(line: Mapping[str, Any], by: str) -> dict[str, Any]:
    return {**line, "name": line["launch_id" if by == "launch" else by]}


COSTS_PAGE = Page(name="Costs", path="/costs", template="costs.html", show=_show_costs, order=50)
