"""One approval: the quote, and the owner's answer to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwatch.app import owner_actions
from gpuwatch.domain.launches.approval import ApprovalState
from gpuwatch.domain.market.pricing import MICRO
from gpuwatch.engine.approval_handler import ApprovalOutcome
from gpuwatch.errors import UsageError
from gpuwatch.web.page import Confirm, Done, FormAction, FormResult, Page, View, is_confirmed

_WELL = (ApprovalOutcome.RENTED, ApprovalOutcome.WOULD_RENT, ApprovalOutcome.DENIED)


def _show(view: View) -> Mapping[str, Any]:
    found = owner_actions.approval_of(view.settings, view.path["id"])
    return {"one": found, "state": found.state_at(view.now)}


def _approve(view: View) -> FormResult:
    found = owner_actions.approval_of(view.settings, view.path["id"])
    if found.state_at(view.now) is ApprovalState.OPEN and not is_confirmed(view):
        offer, price = found.match.offer, found.match.price
        facts = (
            ("GPU", f"{offer.gpu_count}× {offer.gpu}"),
            ("Provider", f"{offer.provider}, machine {offer.machine_id or 'unknown'}"),
            ("Watch", found.watch),
            ("Dry run", "yes: gpuwatch rents nothing" if view.settings.dry_run else "no: this costs money"),
        )
        question = f"Rent it for {price.price_microusd_hour / MICRO:.3f} $ per hour, or less?"
        return Confirm(question=question, button="Approve", back=f"/approvals/{found.approval_id}", facts=facts)
    return _answered(view, wanted=True)


def _deny(view: View) -> FormResult:
    return _answered(view, wanted=False)


def _answered(view: View, *, wanted: bool) -> Done:
    here = f"/approvals/{view.path['id']}"
    try:
        answer = owner_actions.answer_approval(view.settings, view.path["id"], wanted=wanted, actor=view.actor)
    except UsageError as error:
        return Done(text=str(error), to=here, is_error=True)
    is_well = not answer.conflict and answer.reply.outcome in _WELL
    return Done(text=answer.reply.text, to=here, is_error=not is_well)


PAGE = Page(
    name="Approval",
    path="/approvals/{id}",
    template="approval.html",
    show=_show,
    order=41,
    in_nav=False,
    actions=(
        FormAction(path="/approvals/{id}/approve", scope="approve", run=_approve),
        FormAction(path="/approvals/{id}/deny", scope="approve", run=_deny),
    ),
)
