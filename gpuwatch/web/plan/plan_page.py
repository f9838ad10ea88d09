"""Plan: the needs and the cost of a job on current offers, and a watch for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuwatch.app.owner_audit import record_audit
from gpuwatch.errors import GpuwatchError
from gpuwatch.web.page import Confirm, FormAction, FormResult, Page, Redirect, Rerender, View, is_confirmed

if TYPE_CHECKING:
    from gpuwatch.domain.jobs.job_request import JobRequest

# The planner loads numpy and pydantic, 28 MB, only when needed.
_FIELDS = ("model", "method", "tokens", "within", "max_cost", "gpu", "count", "spot", "precision", "batch", "context")
_METHODS = ("qlora", "lora", "full", "inference")
_PRECISIONS = ("bf16", "fp16", "fp8", "int8", "int4")
_PLAN_SHOWN = 10
_DEFAULTS = {"method": "qlora", "precision": "bf16", "batch": "1", "context": "4096", "spot": "no"}


def _show_plan(view: View) -> Mapping[str, Any]:
    query = _query_values(view)
    values: dict[str, Any] = {
        "asked": query, "methods": _METHODS, "precisions": _PRECISIONS, "plan": None, "verdict": None, "watch": None,
        "problem": None, "name": view.form.get("name", "planned"), "shown": _PLAN_SHOWN,
    }  # fmt: skip
    if not query["model"] or not query["tokens"]:
        return values
    from gpuwatch.app.plan.plan_job import job_verdict, plan_on_offers  # noqa: PLC0415
    from gpuwatch.app.plan.plan_watch import implied_watch  # noqa: PLC0415

    try:
        request = _request(query)
        plan = plan_on_offers(view.settings, request)
        verdict = job_verdict(request, plan.spec, plan.costs)
        return values | {"plan": plan, "verdict": verdict, "watch": implied_watch(values["name"], request, plan)}
    except GpuwatchError as error:
        return values | {"problem": str(error)}


def _query_values(view: View) -> dict[str, str]:
    values = {**view.query, **view.form}
    return {name: values.get(name, _DEFAULTS.get(name, "")).strip()[:200] for name in _FIELDS}


def _request(query: Mapping[str, str]) -> JobRequest:
    """The keys of `gpuwatch plan job`. Raises UsageError."""
    from gpuwatch.app.plan.plan_request import job_request  # noqa: PLC0415
    from gpuwatch.domain.setup.durations import EnvText  # noqa: PLC0415

    return job_request({key: EnvText(text) for key, text in query.items() if text})


def _watch_of(view: View, query: Mapping[str, str], name: str) -> str:
    from gpuwatch.app.plan.plan_job import plan_on_offers  # noqa: PLC0415
    from gpuwatch.app.plan.plan_watch import implied_watch  # noqa: PLC0415

    if not name:
        raise GpuwatchError("name: enter a name for the watch")
    request = _request(query)
    watch = implied_watch(name, request, plan_on_offers(view.settings, request))
    if watch is None:
        raise GpuwatchError("no offer fits, so gpuwatch cannot create a watch")
    return watch


def _make(view: View) -> FormResult:
    """Append the watch of the plan to the settings file."""
    from gpuwatch.app.plan.plan_watch import add_watch  # noqa: PLC0415

    query, name = _query_values(view), view.form.get("name", "").strip()
    try:
        watch = _watch_of(view, query, name)
        if not is_confirmed(view):
            facts = (("Job", f"{query['model']}, {query['method']}, {query['tokens']} tokens"), ("Action", "alert"))
            return Confirm(question=f"Add watch {name}?", button="Add it", back="/plan", facts=facts)
        file = add_watch(view.owner.config, name, watch)
    except GpuwatchError as error:
        return Rerender(values={"problem": str(error)})
    view.owner.reload()
    record_audit(view.settings, view.actor, f"watch {name} added by a plan", subject=name, watch=name)
    return Redirect(text=f"Added to {file}; it sends alerts. To let it rent, open it here.", to="/watches")


PLAN_PAGE = Page(
    name="Plan", path="/plan", template="plan.html", show=_show_plan, order=60,
    actions=(FormAction(path="/plan/watch", scope="manage", run=_make),),
)  # fmt: skip
