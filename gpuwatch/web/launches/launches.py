"""Launches, with state and cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwatch.app.launches.launches import all_launches
from gpuwatch.domain.launches.money.billing import cost_microusd
from gpuwatch.domain.market.pricing import MICRO
from gpuwatch.web.page import Page, View

_LAUNCHES_SHOWN = 200


def _show_launches(view: View) -> Mapping[str, Any]:
    launches = all_launches(view.settings)
    return {
        "alive": [_row(launch, view) for launch in launches if not launch.is_over],
        "over": [_row(launch, view) for launch in launches if launch.is_over][:_LAUNCHES_SHOWN],
        "left_out": max(0, sum(launch.is_over for launch in launches) - _LAUNCHES_SHOWN),
    }


def _row(launch: Any, view: View) -> tuple[Any, float]:
    return launch, cost_microusd(launch, view.now) / MICRO


LAUNCHES_PAGE = Page(name="Launches", path="/launches", template="launches.html", show=_show_launches, order=30)
