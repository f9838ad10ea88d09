"""Rehearsing a watch on demand: the same list, and what only the providers know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuwatch.app.watches.nearest import provider_title
from gpuwatch.app.watches.watch_selection import watch_named
from gpuwatch.app.watches.watch_status import rules_of, watch_statuses
from gpuwatch.errors import UsageError
from gpuwatch.language import translate as _
from gpuwatch.language import translate_composed
from gpuwatch.web.page import FormAction, FormResult, Page, Rerender, View
from gpuwatch.web.watches.pause_pages import watch_path
from gpuwatch.web.watches.watch_checks import check_rows

if TYPE_CHECKING:
    from gpuwatch.ports.findings import Finding

_LOOKS = {
    "ok": ("st-done", "good"),
    "fault": ("st-stop", "warn"),
    "unknown": ("st-wait", ""),
    "note": ("info", "muted"),
}


def _show(view: View) -> Mapping[str, Any]:
    watch = watch_named(view.settings, view.path["name"])
    (status,) = watch_statuses(view.settings, [watch])
    rules = rules_of(view.settings, status, view.now)
    return {"watch": watch.name, "home": watch_path(watch.name), "checks": check_rows(status, rules), "found": None}


def _rehearse(view: View) -> FormResult:
    from gpuwatch.app.watches.rehearse import rehearse  # noqa: PLC0415 it loads the providers

    try:
        rehearsal = rehearse(view.settings, view.path["name"])
    except UsageError as error:
        return Rerender(values={"found": [], "answer": translate_composed(str(error))})
    answer = {
        True: _("It would rent: every step up to the order works."),
        False: _("It would not rent: something is missing."),
        None: _("Nothing is known to be missing, but not everything could be checked."),
    }[rehearsal.ready]
    return Rerender(values={"found": [_line(line) for line in rehearsal.lines], "answer": answer})


def _line(line: Finding) -> dict[str, str]:
    icon, tone = _LOOKS.get(line.state, ("st-wait", ""))
    text = translate_composed(line.text)
    return {
        "icon": icon, "tone": tone, "state": line.state,
        "mend": translate_composed(line.mend or "", with_commands=True),
        "text": f"{provider_title(line.area)}: {text}" if line.area else text,
    }  # fmt: skip


REHEARSE_PAGE = Page(
    name="Rehearse",
    path="/watches/{name}/rehearse",
    template="rehearse.html",
    show=_show,
    order=26,
    actions=(FormAction(path="/watches/{name}/rehearse", scope="manage", run=_rehearse),),
)
