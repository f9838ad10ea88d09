"""One watch in a form: what it looks for and does, what these values would have done, the change to the file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from gpuwatch.app.owner_audit import record_audit
from gpuwatch.app.watches.watch_selection import watch_named
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.watches.watch import Action
from gpuwatch.errors import GpuwatchError, SettingsError, StoreError, UsageError
from gpuwatch.language import translate as _
from gpuwatch.web.page import FormAction, FormResult, Moved, Page, Redirect, Rerender, View, is_confirmed
from gpuwatch.web.watches.edit_fields import ALL_FIELDS, FIELD_OF, FIRST, FOLDS, LIMIT, NAME, EditField
from gpuwatch.web.watches.edit_texts import (
    actions,
    by_editor_text,
    diff_rows,
    fold_summary,
    inherited_text,
    keys_of_form,
    other_label,
    question,
    setting_help,
    table_text,
    translated,
)
from gpuwatch.web.watches.pause_pages import watch_path

if TYPE_CHECKING:
    from gpuwatch.app.watches.edit_watch import WatchDraft, WatchField, WatchForm

# The form's use cases load pydantic, the backtest numpy: 12 and 16 MB, only when the form is opened.
_SET = "set."  # prefix of the key of a field without a form of its own
_FAULT = re.compile(r'watch (?:"[^"]*"|[^:]*): ([a-z_]+(?:\.[a-z_]+)*)(?:\[[0-9]+\])?: (.+)', re.DOTALL)
_SHOWN_ELSEWHERE = frozenset({"max_price_cap", "max_job_cost"})
_MOST_BASE_CHARS = 60_000
_NONE = {"toggle": "false", "chips": "[]"}  # how a field says that it wants none of what it would inherit


class _Typed(msgspec.Struct, frozen=True):
    """What a person changed. `faults`: field → what is wrong with what was typed."""

    values: Mapping[str, str]
    faults: Mapping[str, str]


# --- the form ---------------------------------------------------------------------------------------------------------


def _show_form(view: View) -> Mapping[str, Any]:
    from gpuwatch.app.watches.edit_watch import watch_form  # noqa: PLC0415

    name = _name(view)
    form = watch_form(view.owner.config, name)
    texts = _texts(form) if name else _texts(form) | _of_address(view, form)
    inherited = {field.key: field.origin for field in form.fields if field.origin and not field.text}
    shown = {field.key: _inputs(field, view.form, texts) for field in ALL_FIELDS}
    others = [field for field in form.fields if field.key not in FIELD_OF and field.key not in _SHOWN_ELSEWHERE]
    defaults = {field.key: field.default for field in form.fields}
    return {
        "name": name, "home": watch_path(name) if name else "/watches", "file": form.file.name,
        "file_version": view.form.get("version", form.version),
        "base": view.form.get("base") or json.dumps(_texts(form), ensure_ascii=False),
        "inherited": {key: inherited_text(origin) for key, origin in inherited.items() if texts.get(key)},
        "named": None if name else NAME, "first": FIRST, "folds": FOLDS, "shown": shown, "defaults": defaults,
        "summaries": {fold.name: fold_summary(fold.name, texts, defaults) for fold in FOLDS},
        "others": [_other(one, view.form, texts) for one in others],
        "others_set": sum(bool(field.text) for field in others),
        "actions": actions(texts), "by_editor": by_editor_text(form.by_editor),
        "gpu_names": sorted({gpu.name for gpu in catalog().gpus()} | {gpu.family for gpu in catalog().gpus()}),
        "translated": translated, "setting_help": setting_help, "diff_rows": diff_rows, "others_wrong": False,
        "faults": {}, "errors": (), "draft": None, "preview": None, "conflict": None, "open_folds": (),
    }  # fmt: skip


def _other(field: WatchField, typed: Mapping[str, str], texts: Mapping[str, str]) -> tuple[WatchField, str, str]:
    shown = "" if field.inherited and not field.text else texts.get(field.key, "")  # its placeholder says it
    return field, other_label(field.key), typed.get(_SET + field.key, shown)


def _texts(form: WatchForm) -> dict[str, str]:
    """What is in force: the watch's own values, and what it inherits."""
    return {field.key: text for field in form.fields if (text := field.text or field.inherited)}


def _of_address(view: View, form: WatchForm) -> dict[str, str]:
    """The values with which an address begins a new watch."""
    keys = {field.key for field in form.fields}
    return {key: text[:200] for key, text in view.query.items() if key in keys and text}


def _inputs(field: EditField, typed: Mapping[str, str], texts: Mapping[str, str]) -> dict[str, str]:
    shown = field.shown(texts)
    return {name: typed.get(name, "") for name in shown} if "full" in typed else shown


def _name(view: View) -> str | None:
    """Return the watch to edit; None: a new one."""
    return view.form.get("name_of") or view.path.get("name") or None


# --- what was typed ---------------------------------------------------------------------------------------------------


def _base(view: View) -> dict[str, str]:
    """The texts of the file when the form was shown, so that only what the person touched is changed."""
    text = view.form.get("base", "")
    try:
        return msgspec.json.decode(text.encode(), type=dict[str, str]) if len(text) < _MOST_BASE_CHARS else {}
    except msgspec.MsgspecError:
        return {}


def _typed(view: View) -> _Typed:
    form, base = view.form, _base(view)
    values: dict[str, str] = {}
    faults: dict[str, str] = {}
    fields = [field for field in ALL_FIELDS if field is not NAME or NAME.name in form]  # of a new watch alone
    for field in fields if "full" in form else ():
        before = field.shown(base)
        typed = {name: form.get(name, "") for name in before}
        if {name: text.replace("\r\n", "\n").strip() for name, text in typed.items()} == before:
            continue
        try:
            values |= field.written(typed)
        except ValueError as error:
            faults[field.key] = _(str(error))
    for name, text in form.items():
        key = name.removeprefix(_SET)
        if name.startswith(_SET) and text.replace("\r\n", "\n").strip() != base.get(key, ""):
            values[key] = text
    return _Typed(values, faults)


def _draft(view: View, typed: _Typed) -> WatchDraft:
    from gpuwatch.app.watches.edit_watch import draft_watch, watch_form  # noqa: PLC0415

    form = {field.key: field for field in watch_form(view.owner.config, _name(view)).fields if field.is_heir}
    values = {key: _instead(form[key]) if key in form and not text else text for key, text in typed.values.items()}
    return draft_watch(view.owner.config, _name(view), values)


def _instead(field: WatchField) -> str:
    """What is written where a value was removed that the watch would inherit again. Raises UsageError."""
    kind = FIELD_OF[field.key].kind if field.key in FIELD_OF else ""
    if kind in _NONE:
        return _NONE[kind]
    if kind and kind != LIMIT.kind and not field.text:
        text = _("{setting} comes from {table}: write another value, or remove it there.")
        raise UsageError(text.format(setting=_(FIELD_OF[field.key].label), table=table_text(field.origin)))
    return ""


def _wrong(error: GpuwatchError | None, typed: _Typed) -> Rerender:
    """The form again, with each fault at its field, and those of no field above."""
    faults, others = dict(typed.faults), []
    lines: Sequence[str] = () if error is None else error.faults if isinstance(error, SettingsError) else [str(error)]
    for line in lines:
        found = _FAULT.search(line)
        key = _field_key(found[1], typed) if found else None
        if found and key:
            faults.setdefault(key, found[2])
        else:
            others.append(line)
    opened = tuple(fold.name for fold in FOLDS if any(field.key in faults for field in fold.fields))
    is_other = any(key not in FIELD_OF for key in faults)
    return Rerender(values={"faults": faults, "errors": tuple(others), "open_folds": opened, "others_wrong": is_other})


def _field_key(key: str, typed: _Typed) -> str | None:
    """The key of the field that shows a fault: its own, or of a table the one that was typed."""
    if (field := FIELD_OF.get(key)) is not None:
        return field.key
    return key if key in keys_of_form() else next((one for one in typed.values if one.startswith(f"{key}.")), None)


# --- check again ------------------------------------------------------------------------------------------------------


def _preview(view: View) -> FormResult:
    typed = _typed(view)
    if typed.faults:
        return _wrong(None, typed)
    try:
        draft = _draft(view, typed)
        shown = _preview_values(view, draft)
    except GpuwatchError as error:
        return _wrong(error, typed)
    return Rerender(values={"draft": draft, "preview": shown})


def _preview_values(view: View, draft: WatchDraft) -> Mapping[str, Any] | None:
    from gpuwatch.web.watches.edit_preview import preview_values  # noqa: PLC0415

    name = _name(view)
    before = next((watch for watch in view.settings.watches if name is not None and watch.name == name), None)
    try:
        return preview_values(view, draft, before, with_past="quick" not in view.form)
    except StoreError:
        return None


# --- save -------------------------------------------------------------------------------------------------------------


def _save(view: View) -> FormResult:
    from gpuwatch.app.watches.edit_watch import FileChanged, save_draft  # noqa: PLC0415

    typed = _typed(view)
    if typed.faults:
        return _wrong(None, typed)
    try:
        draft = _draft(view, typed)
        if not draft.diff:
            return Redirect(text=_("Nothing changed."), to=watch_path(_name(view)) if _name(view) else "/watches")
        if not draft.is_writable:
            return Rerender(values={"draft": draft, "preview": _preview_values(view, draft)})
        if draft.version != view.form.get("version", ""):
            return _conflict(view, draft)
        watch = watch_named(draft.settings, draft.name)
        if watch.action is not Action.ALERT and not draft.settings.dry_run and not is_confirmed(view):
            return question(watch, draft.settings, watch_path(_name(view)) if _name(view) else "/watches")
        save_draft(draft, view.form.get("version", ""))
    except FileChanged:
        return _conflict(view, draft)
    except GpuwatchError as error:
        return _wrong(error, typed)
    view.owner.reload()
    record_audit(view.settings, view.actor, f"watch {draft.name} saved", subject=draft.name, watch=draft.name)
    text = _("Saved in {file}; it is in use now.") if view.owner.is_daemon else _("Saved in {file}; reload gpuwatch.")
    return Redirect(text=text.format(file=draft.file.name), to="/watches")


def _conflict(view: View, draft: WatchDraft) -> Rerender:
    """The file changed meanwhile: both changes, and the owner takes one."""
    from gpuwatch.app.watches.edit_watch import watch_form  # noqa: PLC0415

    now, base = _texts(watch_form(view.owner.config, _name(view))), _base(view)
    keys = [key for key in dict.fromkeys([*base, *now]) if base.get(key) != now.get(key)]
    lines = [
        (sign, f"{key} = {text}") for key in keys for sign, text in (("-", base.get(key)), ("+", now.get(key))) if text
    ]
    return Rerender(values={"draft": draft, "conflict": lines, "file_version": draft.version})


# --- the pages --------------------------------------------------------------------------------------------------------


def _moved(view: View) -> Mapping[str, Any]:
    name = view.query.get("name")
    others = "&".join(f"{quote(key)}={quote(text)}" for key, text in view.query.items() if key != "name")
    raise Moved(f"{watch_path(name)}/edit" if name else f"/watches/new{'?' if others else ''}{others}")


def _page(name: str, path: str, order: int, actions_of: tuple[FormAction, ...] = ()) -> Page:
    return Page(
        name=name,
        path=path,
        template="watch_edit.html",
        show=_show_form,
        order=order,
        scripts=("watch-edit.js",),
        actions=actions_of,
    )


NEW_WATCH_PAGE = _page("New watch", "/watches/new", 21)
EDIT_PAGE = _page(
    "Edit watch",
    "/watches/{name}/edit",
    22,
    (
        FormAction(path="/watches/preview", scope="manage", run=_preview),
        FormAction(path="/watches/save", scope="manage", run=_save),
    ),
)
FORMER_EDIT_PAGE = Page(name="Edit", path="/watches/edit", template="watch_edit.html", show=_moved, order=23)
