"""One launch: its timeline, its cost so far, its utilisation; stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwatch.app.launches import owner_actions
from gpuwatch.app.launches.launch_details import launch_details
from gpuwatch.app.launches.launches import relocation_findings
from gpuwatch.domain.launches.money.billing import cost_microusd
from gpuwatch.domain.market.pricing import MICRO
from gpuwatch.web.page import PERCENT, Confirm, FormAction, FormResult, Page, Redirect, View, is_confirmed


def _show_launch(view: View) -> Mapping[str, Any]:
    details = launch_details(view.settings, view.path["id"])
    samples = list(details.utilisation)
    return {
        "launch": details.launch,
        "events": details.events,
        "ends_at": details.ends_at,
        "cheaper": relocation_findings(view.settings, [details.launch]).get(details.launch.launch_id),
        "cost": cost_microusd(details.launch, view.now) / MICRO,
        "listed_cost": cost_microusd(details.launch, view.now, listed=True) / MICRO,
        "samples": samples,
        "chart": {
            "x": [int(sample.at.timestamp()) for sample in samples],
            "series": [{"label": "GPU use", "values": [sample.percent for sample in samples]}],
            "unit": "percent",
            "range": PERCENT,
        },
    }


def _stop(view: View) -> FormResult:
    launch_id = view.path["id"]
    page_path = f"/launches/{launch_id}"
    launch = launch_details(view.settings, launch_id).launch
    if launch.is_over:
        return Redirect(text="It has already ended; nothing changed.", to=page_path)
    if not is_confirmed(view):
        cost = cost_microusd(launch, view.now) / MICRO
        facts = (
            ("Instance", f"{launch.instance_id or 'unknown'} at {launch.provider}"),
            ("GPU", f"{launch.gpu_count}× {launch.gpu}"),
            ("Price", f"{launch.price_microusd_hour / MICRO:.3f} $ per hour"),
            ("Cost so far", f"{cost:.2f} $"),
        )
        return Confirm(question=f"Stop launch {launch_id}?", button="Stop it", back=page_path, facts=facts)
    _, changed = owner_actions.request_stop(view.settings, launch_id, actor=view.actor)
    text = "It is being ended; this page shows when the provider confirms it." if changed else "It is already ending."
    return Redirect(text=text, to=page_path)


LAUNCH_PAGE = Page(
    name="Launch",
    path="/launches/{id}",
    template="launch.html",
    show=_show_launch,
    order=31,
    in_nav=False,
    actions=(FormAction(path="/launches/{id}/stop", scope="manage", run=_stop),),
    scripts=("vendor/uplot/uPlot.iife.min.js", "charts.js"),
)
