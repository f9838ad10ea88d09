"""The pages of approvals: those that wait, those of the last week, and one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gpuwatch.app.launches import approvals
from gpuwatch.domain.launches.life.owner_decisions import ApprovalState
from gpuwatch.domain.market.money import MICRO, per_hour
from gpuwatch.engine.launches.renting.owner_decisions import ApprovalOutcome
from gpuwatch.errors import UsageError
from gpuwatch.web.page import Confirm, FormAction, FormResult, Page, Redirect, View, is_confirmed

_SUCCESSES = (ApprovalOutcome.RENTED, ApprovalOutcome.WOULD_RENT, ApprovalOutcome.DENIED)


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
