"""Pausing renting, all of it, a watch, a job or a group, and silencing a watch or a group: for how long, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from gpuwatch.app.alerts.alerts import end_silence, silence
from gpuwatch.app.jobs.job_series import series_details
from gpuwatch.app.reader_text import clock_text
from gpuwatch.app.watches import pauses
from gpuwatch.app.watches.watch_selection import job_watch_name, require_group, watch_named
from gpuwatch.domain.setup.durations import DAY_S, HOUR_S, parse_duration
from gpuwatch.domain.watches.owner_names import Purpose, plain_name
from gpuwatch.errors import UsageError
from gpuwatch.language import translate as _
from gpuwatch.web.page import FormAction, FormResult, Page, Redirect, Rerender, View

_UNITS = ("m", "h", "d")
_SILENCES = {"6h": 6 * HOUR_S, "24h": 24 * HOUR_S, "7d": 7 * DAY_S}
_LONGEST_S = 366 * DAY_S
Show = Callable[[View], Mapping[str, Any]]
Run = Callable[[View], FormResult]


def watch_path(name: str | None) -> str:
    """The address of a watch's page; None: that of the first page."""
    return "/" if name is None else f"/watches/{quote(name, safe='')}"


# --- pause ------------------------------------------------------------------------------------------------------------


def _show_pause(view: View) -> Mapping[str, Any]:
    name, group = _subject(view)
    names = _stored_names(view, name, group)
    binding = [one for one in pauses.pauses(view.settings).in_force(view.now) if any(map(one.binds, names))]
    form, job = view.form, _job(name)
    return {
        "watch": name,
        "job": None if job is None else plain_name(job),
        "is_series": job is not None and series_details(view.settings, job) is not None,
        "group": group,
        "home": _home(view, name, group),
        "in_force": binding,
        "typed": {"for": form.get("for", ""), "unit": form.get("for_unit", "h"), "why": form.get("why", "")},
        "fault": "",
    }


def _subject(view: View) -> tuple[str | None, str | None]:
    """The watch, job (`job:NAME`) or group that is meant; none: all renting. Raises UsageError: no such group."""
    values = view.form if view.form else view.query
    name, group = values.get("watch") or None, values.get("group") or None
    if group is not None:
        require_group(view.settings, group)
    return name, group


def _stored_names(view: View, name: str | None, group: str | None) -> Sequence[str | None]:
    """What a pause would hold for. Raises UsageError: the address names no such watch or job."""
    stored = None if name is None else job_watch_name(view.settings, name)
    return [stored] if stored is not None and view.form else pauses.paused_names(view.settings, name, group)


def _job(name: str | None) -> str | None:
    return None if name is None else Purpose.of(name).job


def _home(view: View, name: str | None, group: str | None) -> str:
    if group is not None:
        return f"/watches?group={quote(group)}"
    job = _job(name)
    if job is None:
        return watch_path(name)
    return "/jobs" if series_details(view.settings, job) is not None else f"/jobs/{quote(job, safe='')}"


def _pause(view: View) -> FormResult:
    name, group = _subject(view)
    try:
        for_s = _duration_s(view.form)
    except UsageError as error:
        return Rerender(values={"fault": str(error)})
    why = view.form.get("why", "").strip()
    changed, _table = pauses.pause(view.settings, name, for_s, why, actor=view.actor, group=group)
    return Redirect(text=_paused_text(name, group, changed=changed), to=_home(view, name, group))


def _paused_text(name: str | None, group: str | None, *, changed: bool) -> str:
    if group is not None:
        text = _("Group {group} is paused.") if changed else _("Group {group} was already paused.")
        return text.format(group=group)
    if name is None:
        return _("Renting is paused.") if changed else _("Renting was already paused.")
    if (job := _job(name)) is not None:
        text = _("Job {job} is paused.") if changed else _("Job {job} was already paused.")
        return text.format(job=plain_name(job))
    text = _("Watch {watch} is paused.") if changed else _("Watch {watch} was already paused.")
    return text.format(watch=name)


def _duration_s(form: Mapping[str, str]) -> float | None:
    """The length of a pause; None: until it is resumed. Raises UsageError."""
    text, unit = form.get("for", "").strip(), form.get("for_unit", "h")
    if not text:
        return None
    try:
        seconds = parse_duration(f"{text}{unit if unit in _UNITS else 'h'}")
    except ValueError:
        raise UsageError(_("Write a number, such as 8.")) from None
    if not 0 < seconds <= _LONGEST_S:
        raise UsageError(_("Between a minute and a year."))
    return seconds


def _resume(view: View) -> Redirect:
    name, group = _subject(view)
    changed, _table = pauses.resume(view.settings, name, actor=view.actor, group=group)
    job = _job(name)
    if group is not None:
        text = _("Group {group} is resumed.") if changed else _("Group {group} was not paused.")
    elif name is None:
        text = _("Renting is resumed.") if changed else _("Renting was not paused.")
    elif job is not None:
        text = _("Job {job} is resumed.") if changed else _("Job {job} was not paused.")
    else:
        text = _("Watch {watch} is resumed.") if changed else _("Watch {watch} was not paused.")
    said = text.format(watch=name, group=group, job=plain_name(job or ""))
    return Redirect(text=said, to=_home(view, name, group))


PAUSE_PAGE = Page(
    name="Pause",
    path="/pause",
    template="pause.html",
    show=_show_pause,
    order=24,
    actions=(
        FormAction(path="/pause", scope="manage", run=_pause),
        FormAction(path="/resume", scope="manage", run=_resume),
    ),
)


# --- silence ----------------------------------------------------------------------------------------------------------


def _show_silence(view: View) -> Mapping[str, Any]:
    name = watch_named(view.settings, view.path["name"]).name
    return {"what": name, "at": f"{watch_path(name)}/silence", "home": watch_path(name), "is_group": False}


def _show_group_silence(view: View) -> Mapping[str, Any]:
    group = require_group(view.settings, view.path["name"])
    return {
        "what": group,
        "at": f"/groups/{quote(group, safe='')}/silence",
        "home": _home(view, None, group),
        "is_group": True,
    }


def _silence(view: View) -> FormResult:
    name = view.path["name"]
    if view.form.get("for") == "end":
        was_silenced = end_silence(view.settings, name, actor=view.actor)
        text = _("Watch {watch} sends alerts again.") if was_silenced else _("Watch {watch} was not silenced.")
        return Redirect(text=text.format(watch=name), to=watch_path(name))
    until = silence(view.settings, name, _seconds(view.form), actor=view.actor)[0].until
    text = _("Watch {watch} is silenced until {time}. It still rents, and what it rents is still reported.")
    return Redirect(text=text.format(watch=name, time=clock_text(until)), to=watch_path(name))


def _silence_group(view: View) -> FormResult:
    group = view.path["name"]
    if view.form.get("for") == "end":
        was_silenced = end_silence(view.settings, None, actor=view.actor, group=group)
        text = _("Group {group} sends alerts again.") if was_silenced else _("Group {group} was not silenced.")
        return Redirect(text=text.format(group=group), to=_home(view, None, group))
    until = silence(view.settings, None, _seconds(view.form), actor=view.actor, group=group)[0].until
    text = _("Group {group} is silenced until {time}. It still rents, and what it rents is still reported.")
    return Redirect(text=text.format(group=group, time=clock_text(until)), to=_home(view, None, group))


def _seconds(form: Mapping[str, str]) -> float:
    seconds = _SILENCES.get(form.get("for", ""))
    if seconds is None:
        raise UsageError(_("Choose 6 h, 24 h or 7 days."))
    return seconds


def _silence_page(name: str, path: str, order: int, show: Show, run: Run) -> Page:
    action = FormAction(path=path, scope="manage", run=run)
    return Page(name=name, path=path, template="silence.html", show=show, order=order, actions=(action,))


SILENCE_PAGE = _silence_page("Silence", "/watches/{name}/silence", 25, _show_silence, _silence)
SILENCE_GROUP_PAGE = _silence_page("Silence group", "/groups/{name}/silence", 27, _show_group_silence, _silence_group)
