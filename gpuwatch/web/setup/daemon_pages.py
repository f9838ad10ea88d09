"""Now: the watches, the providers, spending, and pending decisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwatch.app.launches import owner_actions
from gpuwatch.app.launches.approvals import recent_approvals
from gpuwatch.app.launches.costs import cost_report
from gpuwatch.app.launches.launches import all_launches
from gpuwatch.app.launches.pauses import pauses
from gpuwatch.app.market.provider_status import blind_lanes, provider_statuses
from gpuwatch.app.watches.watch_status import watch_statuses
from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.domain.launches.life.approval import ApprovalState
from gpuwatch.web.page import FormAction, Page, Redirect, View


def _show_now(view: View) -> Mapping[str, Any]:
    settings, now = view.settings, view.now
    launches = [launch for launch in all_launches(settings) if not launch.is_over]
    report = cost_report(settings, "watch")
    return {
        "watches": watch_statuses(settings),
        "providers": [(status, blind_lanes(status)) for status in provider_statuses(settings, only_enabled=True)],
        "launches": launches,
        "held": [launch for launch in launches if launch.state is LaunchState.HELD],
        "approvals": [
            approval for approval in recent_approvals(settings) if approval.state_at(now) is ApprovalState.OPEN
        ],
        "burn": report.burn,
        "budgets": [(use, use.percent(use.used)) for use in report.budgets],
        "pauses": list(pauses(settings).in_force(now)),
    }


def _pause(view: View) -> Redirect:
    watch = view.form.get("watch") or None
    _, changed = owner_actions.pause(view.settings, watch, None, "", actor=view.actor)
    subject = "Renting" if watch is None else f"Watch {watch}"
    return Redirect(text=f"{subject} is paused." if changed else f"{subject} was already paused.", to="/")


def _resume(view: View) -> Redirect:
    watch = view.form.get("watch") or None
    _, changed = owner_actions.resume(view.settings, watch, actor=view.actor)
    subject = "Renting" if watch is None else f"Watch {watch}"
    return Redirect(text=f"{subject} is resumed." if changed else f"{subject} was not paused.", to="/")


NOW_PAGE = Page(
    name="Now",
    path="/",
    template="now.html",
    show=_show_now,
    order=0,
    shared_s=0.5,
    actions=(
        FormAction(path="/pause", scope="manage", run=_pause),
        FormAction(path="/resume", scope="manage", run=_resume),
    ),
)
