"""Launches, with state and cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwatch.app.launches import all_launches
from gpuwatch.domain.launches.billing import cost_microusd
from gpuwatch.domain.market.pricing import MICRO
from gpuwatch.web.page import Page, View

_SHOWN = 200


def _show(view: View) -> Mapping[str, Any]:
    found = all_launches(view.settings)
    return {
        "alive": [_row(one, view) for one in found if not one.is_over],
        "over": [_row(one, view) for one in found if one.is_over][:_SHOWN],
        "left_out": max(0, sum(one.is_over for one in found) - _SHOWN),
    }


def _row(launch: Any, view: View) -> tuple[Any, float]:
    return launch, cost_microusd(launch, view.now) / MICRO


PAGE = Page(name="Launches", path="/launches", template="launches.html", show=_show, order=30)
