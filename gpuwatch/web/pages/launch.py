"""One launch: its timeline, its cost so far, its utilisation; stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwatch.app import owner_actions
from gpuwatch.app.launch_details import launch_details
from gpuwatch.app.launches import relocation_findings
from gpuwatch.domain.launches.billing import cost_microusd
from gpuwatch.domain.market.pricing import MICRO
from gpuwatch.web.page import Confirm, Done, FormAction, FormResult, Page, View, is_confirmed


def _show(view: View) -> Mapping[str, Any]:
    found = launch_details(view.settings, view.path["id"])
    samples = list(found.utilisation)
    return {
        "launch": found.launch,
        "events": found.events,
        "ends_at": found.ends_at,
        "cheaper": relocation_findings(view.settings, [found.launch]).get(found.launch.launch_id),
        "cost": cost_microusd(found.launch, view.now) / MICRO,
        "listed_cost": cost_microusd(found.launch, view.now, listed=True) / MICRO,
        "samples": samples,
        "chart": {
            "x": [int(one.at.timestamp()) for one in samples],
            "series": [{"label": "GPU use", "values": [one.percent for one in samples]}],
            "unit": "percent",
        },
    }


def _stop(view: View) -> FormResult:
    launch_id = view.path["id"]
    here = f"/launches/{launch_id}"
    launch = launch_details(view.settings, launch_id).launch
    if launch.is_over:
        return Done(text="It has already ended; nothing changed.", to=here)
    if not is_confirmed(view):
        cost = cost_microusd(launch, view.now) / MICRO
        facts = (
            ("Instance", f"{launch.instance_id or 'unknown'} at {launch.provider}"),
            ("GPU", f"{launch.gpu_count}× {launch.gpu}"),
            ("Price", f"{launch.price_microusd_hour / MICRO:.3f} $ per hour"),
            ("Cost so far", f"{cost:.2f} $"),
        )
        return Confirm(question=f"Stop launch {launch_id}?", button="Stop it", back=here, facts=facts)
    _, changed = owner_actions.request_stop(view.settings, launch_id, actor=view.actor)
    text = "It is being ended; this page shows when the provider confirms it." if changed else "It is already ending."
    return Done(text=text, to=here)


PAGE = Page(
    name="Launch",
    path="/launches/{id}",
    template="launch.html",
    show=_show,
    order=31,
    in_nav=False,
    actions=(FormAction(path="/launches/{id}/stop", scope="manage", run=_stop),),
    scripts=("vendor/uplot/uPlot.iife.min.js", "charts.js"),
)
