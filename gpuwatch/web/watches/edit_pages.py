"""One watch in a form.

The form shows a preview on the market, a backtest and the diff of the file, then saves and reloads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuwatch.app.owner_audit import record_audit
from gpuwatch.app.watches.watch_selection import watch_named
from gpuwatch.domain.market.money import per_gpu_hour
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.errors import GpuwatchError, SettingsError
from gpuwatch.web.page import Confirm, FormAction, FormResult, Page, Redirect, Rerender, View, is_confirmed

if TYPE_CHECKING:
    from gpuwatch.app.watches.edit_watch import WatchDraft, WatchField

# The form's use cases load pydantic, the backtest numpy: 12 and 16 MB, only when the form is opened.
_SET = "set."  # prefix of a field's key
_WATCH_SHOWN = 5
_BACKTEST_DAYS = 14


# --- one watch --------------------------------------------------------------------------------------------------------


def _show_watch(view: View) -> Mapping[str, Any]:
    from gpuwatch.app.watches.edit_watch import watch_form  # noqa: PLC0415

    name = _name(view)
    form = watch_form(view.owner.config, name)
    form_values = _form_values(view)
    fields = [(field, form_values.get(field.key, field.text or view.query.get(field.key, ""))) for field in form.fields]
    return {
        "name": name,
        "file_version": view.form.get("version", form.version),
        "common": [field for field in fields if _is_first(*field)],
        "others": [field for field in fields if not _is_first(*field)],
        "errors": (), "diff": None, "matches": None, "polled": (), "backtest": None, "draft": None,
        "days": _BACKTEST_DAYS,
    }  # fmt: skip


def _is_first(field: WatchField, text: str) -> bool:
    return field.is_common or text != ""


def _name(view: View) -> str | None:
    """Return the watch to edit; None: a new one."""
    return view.form.get("name_of", view.query.get("name")) or None


def _form_values(view: View) -> dict[str, str]:
    return {key.removeprefix(_SET): text for key, text in view.form.items() if key.startswith(_SET)}


def _draft(view: View) -> WatchDraft:
    from gpuwatch.app.watches.edit_watch import draft_watch  # noqa: PLC0415

    return draft_watch(view.owner.config, _name(view), _form_values(view))


def _faults(error: GpuwatchError) -> Rerender:
    lines = error.faults if isinstance(error, SettingsError) else [str(error)]
    return Rerender(values={"errors": tuple(lines)})


def _preview(view: View) -> FormResult:
    from gpuwatch.app.forecasts.watch_preview import preview_market  # noqa: PLC0415

    try:
        draft = _draft(view)
        preview = preview_market(draft)
    except GpuwatchError as error:
        return _faults(error)
    reports = [part.report for part in preview.providers]
    return Rerender(
        values={"draft": draft, "diff": draft.diff, "matches": preview.matches[:_WATCH_SHOWN], "polled": reports}
    )


def _backtest(view: View) -> FormResult:
    from gpuwatch.app.forecasts.watch_preview import preview_backtest  # noqa: PLC0415

    try:
        draft = _draft(view)
        lines = preview_backtest(draft, _BACKTEST_DAYS)
    except GpuwatchError as error:
        return _faults(error)
    return Rerender(values={"draft": draft, "diff": draft.diff, "backtest": lines})


def _save(view: View) -> FormResult:
    from gpuwatch.app.watches.edit_watch import save_draft  # noqa: PLC0415

    try:
        draft = _draft(view)
        if not draft.diff:
            return Redirect(text="Nothing changed.", to="/watches")
        if not draft.is_writable:
            return Rerender(values={"draft": draft, "diff": draft.diff})
        watch = watch_named(draft.settings, draft.name)
        if watch.action is not Action.ALERT and not draft.settings.dry_run and not is_confirmed(view):
            return _question(watch)
        save_draft(draft, view.form.get("version", ""))
    except GpuwatchError as error:
        return _faults(error)
    view.owner.reload()
    record_audit(view.settings, view.actor, f"watch {draft.name} saved", subject=draft.name, watch=draft.name)
    reload_hint = (
        "the daemon reloads it now" if view.owner.is_daemon else "reload the daemon: systemctl reload gpuwatch"
    )
    return Redirect(text=f"Saved in {draft.file}; {reload_hint}.", to="/watches")


def _question(watch: Watch) -> Confirm:
    limit = "any price" if watch.unlimited else per_gpu_hour(watch.max_price_usd_gpu_hour, most=6)
    min_gpus, max_gpus = watch.gpu_count_min, watch.gpu_count_max
    count = f"{min_gpus}" if min_gpus == max_gpus else f"{min_gpus} to {max_gpus}"
    launch = watch.launch
    alive, total = (launch.max_active, launch.max_total) if launch else (1, 1)
    facts = (
        ("Rents", f"{count}× {', '.join(watch.gpu)}"),
        ("At or under", limit),
        ("Active at once, in total", f"{alive}, {total or 'no limit'}"),
    )
    asks = "It requests your approval before it rents." if watch.action is Action.ASK else "It rents without approval."
    asks = "Its command rents without approval." if watch.action is Action.COMMAND else asks
    return Confirm(question=f"Save watch {watch.name}? {asks}", button="Save it", back="/watches", facts=facts)


EDIT_PAGE = Page(
    name="Edit",
    path="/watches/edit",
    template="watch_edit.html",
    show=_show_watch,
    order=21,
    in_nav=False,
    actions=(
        FormAction(path="/watches/preview", scope="manage", run=_preview),
        FormAction(path="/watches/backtest", scope="manage", run=_backtest),
        FormAction(path="/watches/save", scope="manage", run=_save),
    ),
)
