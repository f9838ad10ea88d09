"""Approvals: pending quotes, and those of the last week."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwatch.app.launches.approvals import recent_approvals
from gpuwatch.domain.launches.life.approval import ApprovalState
from gpuwatch.web.page import Page, View


def _show_approvals(view: View) -> Mapping[str, Any]:
    approvals = [(approval, approval.state_at(view.now)) for approval in recent_approvals(view.settings)]
    return {
        "waiting": [approval for approval, state in approvals if state is ApprovalState.OPEN],
        "settled": [(approval, state) for approval, state in approvals if state is not ApprovalState.OPEN],
    }


APPROVALS_PAGE = Page(name="Approvals", path="/approvals", template="approvals.html", show=_show_approvals, order=40)
