"""The pages of approvals: the quotes that wait, those of the last week, and one with the figures of its decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gpuwatch.app.launches import approvals
from gpuwatch.app.launches.approval_details import ApprovalDetails, approval_details, offer_odds
from gpuwatch.app.launches.launches import launch_details
from gpuwatch.app.market.outbid_risk import risk_text
from gpuwatch.app.watches.nearest import provider_title
from gpuwatch.domain.launches.life.owner_decisions import ApprovalState
from gpuwatch.engine.launches.renting.owner_decisions import ApprovalOutcome
from gpuwatch.errors import UsageError
from gpuwatch.language import translate as _
from gpuwatch.web.approvals import approval_texts as texts
from gpuwatch.web.page import Confirm, FormAction, FormResult, Page, Redirect, View, is_confirmed
from gpuwatch.web.watches.watch_rows import DAYS, spark_label, spark_values

if TYPE_CHECKING:
    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.domain.launches.life.owner_decisions import Approval

_SUCCESSES = (ApprovalOutcome.RENTED, ApprovalOutcome.WOULD_RENT, ApprovalOutcome.DENIED)


# --- all approvals ----------------------------------------------------------------------------------------------------


def _show_approvals(view: View) -> Mapping[str, Any]:
    recent = approvals.recent_approvals(view.settings)
    waiting = _by_deadline([one for one in recent if one.state_at(view.now) is ApprovalState.OPEN])
    settled = [(one, one.state_at(view.now)) for one in recent if one.state_at(view.now) is not ApprovalState.OPEN]
    return {"waiting": approval_details(view.settings, waiting, view.now), "settled": settled, "texts": texts}


def _by_deadline(waiting: Sequence[Approval]) -> list[Approval]:
    return sorted(waiting, key=lambda one: (one.deadline, one.approval_id))


APPROVALS_PAGE = Page(name="Approvals", path="/approvals", template="approvals.html", show=_show_approvals, order=40)


# --- one decision -----------------------------------------------------------------------------------------------------


def _show_approval(view: View) -> Mapping[str, Any]:
    approval = approvals.approval_of(view.settings, view.path["id"])
    (details,) = approval_details(view.settings, [approval], view.now)
    is_open, open_s = details.state is ApprovalState.OPEN, (approval.deadline - approval.created_at).total_seconds()
    waiting = _by_deadline(approvals.open_approvals(view.settings, view.now))
    return {
        "one": details,
        "offer": approval.match.offer,
        "is_open": is_open,
        "odds": offer_odds(view.settings, approval.match, view.now) if is_open else None,
        "left_s": (approval.deadline - view.now).total_seconds(),
        "open_s": open_s,
        "week": _week(view, details) if is_open else None,
        "closed": texts.closed_text(approval, details.state, _launch_of(view, approval)),
        "place_in_line": next((at for at, one in enumerate(waiting, 1) if one == approval), 0),
        "waiting": waiting,
        "texts": texts,
        "risk": None if details.risk is None else risk_text(details.risk),
    }


def _week(view: View, details: ApprovalDetails) -> dict[str, Any] | None:
    """The lowest price of each hour of seven days that its watch would have matched; None: nothing is recorded."""
    if details.watch is None:
        return None
    prices = view.owner.prices.prices(view.settings, details.watch, DAYS, view.now)
    if not prices.known:
        return None
    return {"lows": spark_values(prices), "label": spark_label(prices, details.limit_microusd_gpu_hour)}


def _launch_of(view: View, approval: Approval) -> Launch | None:
    if approval.launch_id is None:
        return None
    try:
        return launch_details(view.settings, approval.launch_id, view.now).launch
    except UsageError:
        return None


def _approve(view: View) -> FormResult:
    approval = approvals.approval_of(view.settings, view.path["id"])
    if approval.state_at(view.now) is ApprovalState.OPEN and not is_confirmed(view):
        (details,) = approval_details(view.settings, [approval], view.now)
        return _question(view, details)
    return _answered(view, partial(approvals.approve, view.settings, view.path["id"]))


def _question(view: View, details: ApprovalDetails) -> Confirm:
    quote = details.approval.match
    machine = f"{texts.machine_text(quote.offer)}, {provider_title(quote.offer.provider)}"
    facts = [(_("Costs at most"), texts.most_text(details)), (_("Machine"), machine)]
    if view.settings.dry_run:
        facts.append((_("Dry run"), _("nothing is rented")))
    else:
        facts.append((_("You can stop"), texts.stop_text(quote)))
    return Confirm(
        question=_("Rent it for {price} or less?").format(price=texts.rate_of(quote)),
        button=_("Rent it"),
        back=f"/approvals/{details.approval.approval_id}",
        facts=tuple(facts),
    )


def _deny(view: View) -> FormResult:
    return _answered(view, partial(approvals.deny, view.settings, view.path["id"]))


def _answered(view: View, answer: Callable[..., approvals.ApprovalAnswer]) -> Redirect:
    page_path = f"/approvals/{view.path['id']}"
    try:
        answered = answer(actor=view.actor)
    except UsageError as error:
        return Redirect(text=str(error), to=page_path, is_error=True)
    is_success = not answered.conflict and answered.outcome in _SUCCESSES
    return Redirect(text=texts.answer_text(answered), to=page_path, is_error=not is_success)


APPROVAL_PAGE = Page(
    name="Approval",
    path="/approvals/{id}",
    template="approval.html",
    show=_show_approval,
    order=41,
    actions=(
        FormAction(path="/approvals/{id}/approve", scope="approve", run=_approve),
        FormAction(path="/approvals/{id}/deny", scope="approve", run=_deny),
    ),
)
