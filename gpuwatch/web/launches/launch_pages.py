"""The pages of launches: all of them, and one with its timeline, cost and use; the approvals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gpuwatch.app.launches import approvals
from gpuwatch.app.launches.launches import all_launches, launch_details, relocation_findings
from gpuwatch.app.launches.stop import request_stop
from gpuwatch.domain.launches.life.launch_record import launch_view
from gpuwatch.domain.launches.life.owner_decisions import ApprovalState
from gpuwatch.domain.market.money import MICRO, dollars, per_hour
from gpuwatch.engine.launches.renting.owner_decisions import ApprovalOutcome
from gpuwatch.errors import UsageError
from gpuwatch.web.page import PERCENT, Confirm, FormAction, FormResult, Page, Redirect, View, is_confirmed

_LAUNCHES_SHOWN = 200
_SUCCESSES = (ApprovalOutcome.RENTED, ApprovalOutcome.WOULD_RENT, ApprovalOutcome.DENIED)


# --- launches ---------------------------------------------------------------------------------------------------------


def _show_launches(view: View) -> Mapping[str, Any]:
    launches = all_launches(view.settings)
    over = [launch for launch in launches if launch.is_over]
    return {
        "alive": [launch_view(launch, view.now) for launch in launches if not launch.is_over],
        "over": [launch_view(launch, view.now) for launch in over[:_LAUNCHES_SHOWN]],
        "left_out": max(0, len(over) - _LAUNCHES_SHOWN),
    }


LAUNCHES_PAGE = Page(name="Launches", path="/launches", template="launches.html", show=_show_launches, order=30)


def _show_launch(view: View) -> Mapping[str, Any]:
    details = launch_details(view.settings, view.path["id"])
    samples = list(details.utilisation)
    return {
        "launch": details.launch,
        "events": details.events,
        "ends_at": details.ends_at,
        "cheaper": relocation_findings(view.settings, [details.launch]).get(details.launch.launch_id),
        "shown": launch_view(details.launch, view.now),
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
        shown = launch_view(launch, view.now)
        facts = (
            ("Instance", f"{launch.instance_id or 'unknown'} at {launch.provider}"),
            ("GPU", f"{launch.gpu_count}× {launch.gpu}"),
            ("Price", per_hour(shown.price_usd_hour)),
            ("Cost so far", dollars(shown.cost_usd)),
        )
        return Confirm(question=f"Stop launch {launch_id}?", button="Stop it", back=page_path, facts=facts)
    _, changed = request_stop(view.settings, launch_id, actor=view.actor)
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


# --- approvals: pending quotes, those of the last week; the answer to one ---------------------------------------------


def _show_approvals(view: View) -> Mapping[str, Any]:
    recent = [(approval, approval.state_at(view.now)) for approval in approvals.recent_approvals(view.settings)]
    return {
        "waiting": [approval for approval, state in recent if state is ApprovalState.OPEN],
        "settled": [(approval, state) for approval, state in recent if state is not ApprovalState.OPEN],
    }


APPROVALS_PAGE = Page(name="Approvals", path="/approvals", template="approvals.html", show=_show_approvals, order=40)


def _show_approval(view: View) -> Mapping[str, Any]:
    approval = approvals.approval_of(view.settings, view.path["id"])
    return {"one": approval, "state": approval.state_at(view.now)}


def _approve(view: View) -> FormResult:
    approval = approvals.approval_of(view.settings, view.path["id"])
    if approval.state_at(view.now) is ApprovalState.OPEN and not is_confirmed(view):
        offer, price = approval.match.offer, approval.match.price
        facts = (
            ("GPU", f"{offer.gpu_count}× {offer.gpu}"),
            ("Provider", f"{offer.provider}, machine {offer.machine_id or 'unknown'}"),
            ("Watch", approval.watch),
            ("Dry run", "yes: gpuwatch rents nothing" if view.settings.dry_run else "no: this costs money"),
        )
        question = f"Rent it for {per_hour(price.price_microusd_hour / MICRO)}, or less?"
        return Confirm(question=question, button="Approve", back=f"/approvals/{approval.approval_id}", facts=facts)
    return _answered(view, partial(approvals.approve, view.settings, view.path["id"]))


def _deny(view: View) -> FormResult:
    return _answered(view, partial(approvals.deny, view.settings, view.path["id"]))


def _answered(view: View, answer: Callable[..., approvals.ApprovalAnswer]) -> Redirect:
    page_path = f"/approvals/{view.path['id']}"
    try:
        answered = answer(actor=view.actor)
    except UsageError as error:
        return Redirect(text=str(error), to=page_path, is_error=True)
    is_success = not answered.conflict and answered.outcome in _SUCCESSES
    return Redirect(text=answered.reply.text, to=page_path, is_error=not is_success)


APPROVAL_PAGE = Page(
    name="Approval",
    path="/approvals/{id}",
    template="approval.html",
    show=_show_approval,
    order=41,
    in_nav=False,
    actions=(
        FormAction(path="/approvals/{id}/approve", scope="approve", run=_approve),
        FormAction(path="/approvals/{id}/deny", scope="approve", run=_deny),
    ),
)
