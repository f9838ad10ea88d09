"""GPU: one model's history with quartiles and gaps, its calendar, its offers' lifetimes, and advice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwatch.web.page import Page, View


def _show_gpu(view: View) -> Mapping[str, Any]:
    from gpuwatch.web.market.gpu_prices import gpu_prices  # noqa: PLC0415 it loads numpy

    return gpu_prices(view)


GPU_PAGE = Page(
    name="GPU",
    path="/gpu/{name}",
    template="gpu.html",
    show=_show_gpu,
    order=11,
    in_nav=False,
    scripts=("vendor/uplot/uPlot.iife.min.js", "charts.js"),
)
