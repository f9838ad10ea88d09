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
    launches = all_launches(view.settings)
    return {
        "alive": [_row(launch, view) for launch in launches if not launch.is_over],
        "over": [_row(launch, view) for launch in launches if launch.is_over][:_SHOWN],
        "left_out": max(0, sum(launch.is_over for launch in launches) - _SHOWN),
    }


def _row(launch: Any, view: View) -> tuple[Any, float]:
    return launch, cost_microusd(launch, view.now) / MICRO


PAGE = Page(name="Launches", path="/launches", template="launches.html", show=_show, order=30)
