"""Pausing renting, all of it or one watch, and silencing a watch: for how long, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from gpuwatch.app.alerts.alerts import end_silence, silence
from gpuwatch.app.reader_text import clock_text
from gpuwatch.app.watches import pauses
from gpuwatch.app.watches.watch_selection import watch_named
from gpuwatch.domain.setup.durations import DAY_S, HOUR_S, parse_duration
from gpuwatch.errors import UsageError
from gpuwatch.language import translate as _
from gpuwatch.web.page import FormAction, FormResult, Page, Redirect, Rerender, View

_UNITS = ("m", "h", "d")
_SILENCES = {"6h": 6 * HOUR_S, "24h": 24 * HOUR_S, "7d": 7 * DAY_S}
_LONGEST_S = 366 * DAY_S


def watch_path(name: str | None) -> str:
    """The address of a watch's page; None: that of the first page."""
    return "/" if name is None else f"/watches/{quote(name, safe='')}"


# --- pause ------------------------------------------------------------------------------------------------------------


def _show_pause(view: View) -> Mapping[str, Any]:
    name = _watch_of(view)
    binding = [one for one in pauses.pauses(view.settings).in_force(view.now) if one.watch in {None, name}]
    form = view.form
    return {
        "watch": name,
        "home": watch_path(name),
        "in_force": binding,
        "typed": {"for": form.get("for", ""), "unit": form.get("for_unit", "h"), "why": form.get("why", "")},
        "fault": "",
    }


def _watch_of(view: View) -> str | None:
    name = (view.form if view.form else view.query).get("watch") or None
    if name is not None and not view.form:
        watch_named(view.settings, name)
    return name


def _pause(view: View) -> FormResult:
    name = _watch_of(view)
    try:
        for_s = _duration_s(view.form)
    except UsageError as error:
        return Rerender(values={"fault": str(error)})
    changed, _table = pauses.pause(view.settings, name, for_s, view.form.get("why", "").strip(), actor=view.actor)
    return Redirect(text=_paused_text(name, changed=changed), to=watch_path(name))


def _paused_text(name: str | None, *, changed: bool) -> str:
    if name is None:
        return _("Renting is paused.") if changed else _("Renting was already paused.")
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
    name = view.form.get("watch") or None
    changed, _table = pauses.resume(view.settings, name, actor=view.actor)
    if name is None:
        text = _("Renting is resumed.") if changed else _("Renting was not paused.")
    else:
        text = (_("Watch {watch} is resumed.") if changed else _("Watch {watch} was not paused.")).format(watch=name)
    return Redirect(text=text, to=watch_path(name))


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
    return {"watch": name, "home": watch_path(name)}


def _silence(view: View) -> FormResult:
    name = view.path["name"]
    if view.form.get("for") == "end":
        was_silenced = end_silence(view.settings, name, actor=view.actor)
        text = _("Watch {watch} sends alerts again.") if was_silenced else _("Watch {watch} was not silenced.")
        return Redirect(text=text.format(watch=name), to=watch_path(name))
    seconds = _SILENCES.get(view.form.get("for", ""))
    if seconds is None:
        raise UsageError(_("Choose 6 h, 24 h or 7 days."))
    until = silence(view.settings, name, seconds, actor=view.actor).until
    text = _("Watch {watch} is silenced until {time}. It still rents, and what it rents is still reported.")
    return Redirect(text=text.format(watch=name, time=clock_text(until)), to=watch_path(name))


SILENCE_PAGE = Page(
    name="Silence",
    path="/watches/{name}/silence",
    template="silence.html",
    show=_show_silence,
    order=25,
    actions=(FormAction(path="/watches/{name}/silence", scope="manage", run=_silence),),
)
