"""Approvals: pending quotes, and those of the last week."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwatch.app.approvals import recent_approvals
from gpuwatch.domain.launches.approval import ApprovalState
from gpuwatch.web.page import Page, View


def _show(view: View) -> Mapping[str, Any]:
    found = [(one, one.state_at(view.now)) for one in recent_approvals(view.settings)]
    return {
        "waiting": [one for one, state in found if state is ApprovalState.OPEN],
        "settled": [(one, state) for one, state in found if state is not ApprovalState.OPEN],
    }


PAGE = Page(name="Approvals", path="/approvals", template="approvals.html", show=_show, order=40)
