"""One approval: the quote, and the owner's answer to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwatch.app.launches import owner_actions
from gpuwatch.domain.launches.life.approval import ApprovalState
from gpuwatch.domain.market.pricing import MICRO
from gpuwatch.engine.launches.renting.asked_launches import ApprovalOutcome
from gpuwatch.errors import UsageError
from gpuwatch.web.page import Confirm, FormAction, FormResult, Page, Redirect, View, is_confirmed

_SUCCESSES = (ApprovalOutcome.RENTED, ApprovalOutcome.WOULD_RENT, ApprovalOutcome.DENIED)


def _show_approval(view: View) -> Mapping[str, Any]:
    approval = owner_actions.approval_of(view.settings, view.path["id"])
    return {"one": approval, "state": approval.state_at(view.now)}


def _approve(view: View) -> FormResult:
    approval = owner_actions.approval_of(view.settings, view.path["id"])
    if approval.state_at(view.now) is ApprovalState.OPEN and not is_confirmed(view):
        offer, price = approval.match.offer, approval.match.price
        facts = (
            ("GPU", f"{offer.gpu_count}× {offer.gpu}"),
            ("Provider", f"{offer.provider}, machine {offer.machine_id or 'unknown'}"),
            ("Watch", approval.watch),
            ("Dry run", "yes: gpuwatch rents nothing" if view.settings.dry_run else "no: this costs money"),
        )
        question = f"Rent it for {price.price_microusd_hour / MICRO:.3f} $ per hour, or less?"
        return Confirm(question=question, button="Approve", back=f"/approvals/{approval.approval_id}", facts=facts)
    return _answer_approval(view, is_approved=True)


def _deny(view: View) -> FormResult:
    return _answer_approval(view, is_approved=False)


def _answer_approval(view: View, *, is_approved: bool) -> Redirect:
    page_path = f"/approvals/{view.path['id']}"
    try:
        answer = owner_actions.answer_approval(
            view.settings, view.path["id"], is_approved=is_approved, actor=view.actor
        )
    except UsageError as error:
        return Redirect(text=str(error), to=page_path, is_error=True)
    is_success = not answer.conflict and answer.reply.outcome in _SUCCESSES
    return Redirect(text=answer.reply.text, to=page_path, is_error=not is_success)


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
