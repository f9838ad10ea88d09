"""Plan: what a job costs on the current offers, and a job or a watch of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from gpuwatch.app.owner_audit import record_audit
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.language import translate as _
from gpuwatch.web.page import Confirm, FormAction, FormResult, Page, Redirect, Rerender, View, is_confirmed
from gpuwatch.web.plan import plan_form
from gpuwatch.web.plan.plan_form import FieldErrors, address_of, request_of_form, typed_values

if TYPE_CHECKING:
    from gpuwatch.app.jobs.job_new import PlannedJob
    from gpuwatch.app.plan.plan_job import OfferPlan
    from gpuwatch.domain.jobs.job_request import JobRequest
    from gpuwatch.domain.plan.job_comparison import JobOffer

# The planner loads numpy and pydantic, 28 MB, only when needed.
_SHOWN = 10  # rows within the limits, and as many that may break one
_MODELS = ("llama-3.1-8b", "llama-3.1-70b", "qwen3-32b", "mistral-7b", "8B", "32B", "70B")


def _show_plan(view: View) -> Mapping[str, Any]:
    typed = typed_values(view)
    values: dict[str, Any] = {
        "typed": typed, "form": plan_form, "translated": _translated, "models": _MODELS,
        "presets": plan_form.preset_links(typed),
        "more": plan_form.more_summary(typed), "errors": {}, "problem": "", "shown": None,
        "name": view.form.get("name", ""), "command": view.form.get("command", ""),
        "queue": view.form.get("queue") == "yes",
        **{key: view.form.get(key, "") for key in ("deadline", "checkpoint", "results")},
    }  # fmt: skip
    if not typed["model"] and not typed["tokens"]:
        return values
    try:
        request = request_of_form(typed)
        return values | {"shown": _planned(view, request)}
    except FieldErrors as error:
        return values | {"errors": error.errors}
    except GpuwatchError as error:
        return values | {"problem": str(error)}


def _translated(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(value, _(text)) for value, text in pairs]


def _planned(view: View, request: JobRequest) -> Mapping[str, Any]:
    from gpuwatch.app.plan.plan_choices import job_choices  # noqa: PLC0415
    from gpuwatch.app.plan.plan_job import cheapest_at_any_length, plan_on_offers  # noqa: PLC0415
    from gpuwatch.web.plan import plan_words  # noqa: PLC0415

    plan = plan_on_offers(view.settings, request)
    choices = job_choices(request, plan, _SHOWN)
    cheapest = None if choices.fitting else cheapest_at_any_length(request, plan)
    job, best = (
        _job_of(request, plan, name=None, command="true"),
        next(iter((*choices.fitting, *choices.breaking)), None),
    )
    top, ticks = plan_words.axis_of(choices, request)
    return {
        "plan": plan,
        "answer": plan_words.answer_of(request, plan, choices, cheapest) if plan.ranking.seen else "",
        "counts": plan_words.counts_sentence(plan),
        "rows": plan_words.rows_of(choices, request, plan, view.form.get("pick", "")),
        "top": top,
        "ticks": ticks,
        "limit": request.max_cost,
        "name": job.name,
        "can_be_job": job.text is not None,
        "next": plan_words.next_sentence(request, dict.fromkeys(job.gpus)),
        "assumptions": plan_words.assumptions_of(plan, best, plan_words.unknown_of_all(choices)),
        "waiting": "" if best is None else _waiting(view, best),
        "gpu": None if best is None else best.offer.gpu,
    }


def _waiting(view: View, best: JobOffer) -> str:
    from gpuwatch.web.market.market_pages import RANKS  # noqa: PLC0415
    from gpuwatch.web.plan.plan_words import waiting_sentence  # noqa: PLC0415

    return waiting_sentence(
        RANKS.ranks(view.settings, MarketFilter(spot=best.offer.spot), view.now).get(best.offer.gpu), best
    )


def _job_of(request: JobRequest, plan: OfferPlan, **given: Any) -> PlannedJob:
    """The job file; `given`: fields of `NewJob`."""
    from gpuwatch.app.jobs.job_new import NewJob, plan_new_job  # noqa: PLC0415

    return plan_new_job(NewJob(**{"image": None, "deadline": None} | given), request, plan)


def _of_form(view: View) -> tuple[JobRequest, OfferPlan]:
    """The request for the machine that was picked, and its plan. Raises GpuwatchError."""
    from gpuwatch.app.plan.plan_job import plan_on_offers  # noqa: PLC0415

    request = request_of_form(typed_values(view))
    count, _mark, rest = view.form.get("pick", "").partition("|")
    gpu, _mark, provider = rest.rpartition("|")
    if count.isdigit() and gpu and provider:
        request = request.model_copy(update={"gpu": (gpu,), "count": count, "provider": (provider,)})
    return request, plan_on_offers(view.settings, request)


# --- a job of it ------------------------------------------------------------------------------------------------------


def _make_job(view: View) -> FormResult:
    """Write the job file; queue the job if its owner wants that, too. Or open the form of a watch."""
    from gpuwatch.app.jobs.job_new import write_job_file  # noqa: PLC0415

    if view.form.get("as") == "watch":
        return _make_watch(view)
    try:
        given = _job_fields(view)
        path = _free_path(view, given["name"])
        request, plan = _of_form(view)
        job = _job_of(request, plan, **given)
        if job.text is None:
            raise UsageError(_("No offer fits, so there is no job to make."))
        if not is_confirmed(view):
            return _question(view, job, request)
        write_job_file(path, job.text, force=False)
    except FieldErrors as error:
        return Rerender(values={"errors": error.errors})
    except GpuwatchError as error:
        return Rerender(values={"problem": str(error)})
    record_audit(view.settings, view.actor, f"job file {path.name} written by a plan", subject=job.name)
    return _written(view, path)


def _job_fields(view: View) -> dict[str, Any]:
    """What was typed, as fields of `NewJob`. Raises FieldErrors."""
    from gpuwatch.domain.jobs.job_values import is_job_name  # noqa: PLC0415

    name, command = view.form.get("name", "").strip(), view.form.get("command", "").strip()
    errors = {}
    if not is_job_name(name):
        errors["name"] = _("Write letters, digits, “.”, “_” and “-”, such as qlora-8b.")
    if not command:
        errors["command"] = _("Write what the machine runs, such as python train.py.")
    deadline = _deadline(view)
    if deadline is not None and deadline <= view.now:
        errors["deadline"] = _("Choose a day and a time to come.")
    if errors:
        raise FieldErrors(errors)
    results = (one.strip() for one in view.form.get("results", "").split(","))
    return {
        "name": name, "command": command, "deadline": deadline, "results": tuple(filter(None, results)),
        "checkpoint": view.form.get("checkpoint", "").strip() or None,
    }  # fmt: skip


def _deadline(view: View) -> datetime | None:
    """The day and time in the configured zone; None: none was chosen. Raises FieldErrors."""
    text = view.form.get("deadline", "").strip()
    try:
        return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(view.settings.timezone)) if text else None
    except ValueError:
        raise FieldErrors({"deadline": _("Write a day and a time, such as 2026-12-01 20:00.")}) from None


def _free_path(view: View, name: str) -> Path:
    """Where the job file goes; a file that is there stays. Raises FieldErrors, UsageError."""
    from gpuwatch.app.jobs.job_new import jobs_folder  # noqa: PLC0415

    path = jobs_folder(view.owner.config) / f"{name}.toml"
    if path.exists():
        text = _("{file} exists. Choose another name; nothing was overwritten.")
        raise FieldErrors({"name": text.format(file=f"jobs/{path.name}")})
    return path


def _written(view: View, path: Path) -> Redirect:
    from gpuwatch.app.jobs.jobs import submit_jobs  # noqa: PLC0415

    back = address_of(typed_values(view))
    if view.form.get("queue") != "yes":
        text = _("Wrote {file}. Nothing is rented until you submit it: gpuwatch jobs submit {file}")
        return Redirect(text=text.format(file=path), to=back)
    try:
        submit_jobs(view.settings, [path])
    except GpuwatchError as error:
        text = _("Wrote {file}, but did not queue it: {reason}").format(file=path, reason=error)
        return Redirect(text=text, to=back, is_error=True)
    return Redirect(text=_("Wrote {file} and queued the job.").format(file=path), to=f"/jobs/{path.stem}")


def _question(view: View, job: PlannedJob, request: JobRequest) -> Confirm:
    from gpuwatch.domain.market.money import MICRO, whole_dollars  # noqa: PLC0415

    assert job.cost_usd is not None
    low, high = (whole_dollars(round(usd * MICRO)) for usd in job.cost_usd)
    most = high if request.max_cost is None else whole_dollars(round(request.max_cost * MICRO))
    is_queued = view.form.get("queue") == "yes"
    then = (
        _("It rents as soon as an offer is at or under its limit, runs the command, and ends the machine.")
        if is_queued and not view.settings.dry_run
        else _("Nothing is rented until you submit it.")
    )
    facts = (
        (_("Runs"), view.form.get("command", "").strip()),
        (_("On"), ", ".join(job.gpus)),
        (_("Costs"), _("{low} to {high}, at most {most}").format(low=low, high=high, most=most)),
        (_("Then"), then),
    )
    question = _("Queue the job {name}?") if is_queued else _("Write the job {name}?")
    return Confirm(
        question=question.format(name=job.name),
        button=_("Queue it") if is_queued else _("Write it"),
        back=address_of(typed_values(view)),
        facts=facts,
    )


# --- a watch of it ----------------------------------------------------------------------------------------------------


def _make_watch(view: View) -> FormResult:
    """Open the form of a new watch, filled in from the plan."""
    from gpuwatch.app.plan.plan_choices import watch_keys  # noqa: PLC0415

    try:
        request, plan = _of_form(view)
        keys = watch_keys(view.form.get("name", "").strip() or "planned", request, plan)
    except FieldErrors as error:
        return Rerender(values={"errors": error.errors})
    except GpuwatchError as error:
        return Rerender(values={"problem": str(error)})
    if keys is None:
        return Rerender(values={"problem": _("No offer fits, so there is no watch to make.")})
    return Redirect(text=_("Filled in from the plan. Nothing is saved yet."), to=f"/watches/new?{urlencode(keys)}")


PLAN_PAGE = Page(name="Plan", path="/plan", template="plan.html", show=_show_plan, order=60)
PLAN_JOB_PAGE = Page(  # after an error its address stays in the browser, which reads it again
    name="Plan", path="/plan/job", template="plan.html", show=_show_plan, order=61,
    actions=(FormAction(path="/plan/job", scope="manage", run=_make_job),),
)  # fmt: skip
