"""The page Now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwatch.app.alerts.needs import APPROVAL, HELD, needs_of_owner
from gpuwatch.app.launches.approvals import open_approvals
from gpuwatch.app.launches.budget_uses import spending_now
from gpuwatch.app.market.provider_status import blind_lanes, provider_statuses
from gpuwatch.app.watches import pauses
from gpuwatch.app.watches.watch_status import watch_statuses
from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.web.page import Page, View


def _show_now(view: View) -> Mapping[str, Any]:
    settings, now = view.settings, view.now
    spending = spending_now(settings, now)
    launches = spending.alive
    statuses = provider_statuses(settings, only_enabled=True, with_polling=False)
    watches = watch_statuses(settings)
    with open_store_read_only(settings) as store:
        needs = needs_of_owner(settings, store, watches, launches, now)
    return {
        "watches": watches,
        "needs": [need for need in needs if need.kind not in {APPROVAL, HELD}],
        "providers": [(status, blind_lanes(status)) for status in statuses],
        "launches": launches,
        "held": [launch for launch in launches if launch.state is LaunchState.HELD],
        "approvals": open_approvals(settings, now),
        "burn": spending.burn,
        "budgets": [(use, use.percent(use.used)) for use in spending.budgets],
        "pauses": list(pauses.pauses(settings).in_force(now)),
    }


NOW_PAGE = Page(
    name="Now",
    path="/",
    template="now.html",
    show=_show_now,
    order=0,
    shared_s=0.5,
)
