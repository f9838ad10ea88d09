"""The page Settings: every value in words, with key and origin; secrets masked, and the faults of the file on top."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gpuwatch.app.reader_text import clock_text
from gpuwatch.app.setup.hosts import HostView, known_hosts
from gpuwatch.errors import SettingsError, StoreError
from gpuwatch.language import translate as _
from gpuwatch.language import translate_composed, translate_plural
from gpuwatch.web.page import Page, View
from gpuwatch.web.setup.setting_words import group_names, group_of, origin_word, setting_name, value_text

_LINE = re.compile(r"(?P<file>.+?):(?P<line>[0-9]+): (?P<text>.+)", re.DOTALL)
_SHOWN = 400  # settings; more than all without watches


class ShownSetting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting on the page."""

    name: str
    value: str
    key: str
    origin: str
    is_changed: bool


class SettingGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One card."""

    name: str
    rows: tuple[ShownSetting, ...]


def _show(view: View) -> Mapping[str, Any]:
    from gpuwatch.app.setup.config import settings_json  # noqa: PLC0415 pydantic, only when needed
    from gpuwatch.settings.show import MASK, origins  # noqa: PLC0415

    text, show_all = view.query.get("q", "").strip()[:100], view.query.get("all") == "yes"
    faults: Sequence[str] = ()
    try:
        values = settings_json(*origins(view.owner.config))
    except SettingsError as error:  # of the file as it is now; the old settings are still in use
        values, faults = {"source_file": view.owner.config, "settings": []}, error.faults
    rows = [_shown(row, MASK) for row in values["settings"]]
    found = [row for row in rows if _is_wanted(row, text, show_all=show_all)]
    return {
        "file": values["source_file"],
        "faults": [fault_text(fault) for fault in faults],
        "answer": _stays(view) if faults else _answer(rows),
        "groups": _groups(found[:_SHOWN]),
        "count": len(found),
        "asked": {"q": text, "all": "yes" if show_all else ""},
        "hosts": _hosts(view),
    }


def _shown(row: Mapping[str, Any], mask: str) -> ShownSetting:
    return ShownSetting(
        name=setting_name(row["key"]),
        value=_("set, not shown") if row["value"] == mask else value_text(row["key"], row["value"]),
        key=row["key"],
        origin=origin_word(row["origin"]),
        is_changed=row["origin"] != "default",
    )


def _is_wanted(row: ShownSetting, text: str, *, show_all: bool) -> bool:
    """Words that are searched for are searched in all settings: in the words, and in the keys."""
    if text:
        return text.casefold() in row.name.casefold() or text.casefold() in row.key.casefold()
    return show_all or row.is_changed


def _groups(rows: Sequence[ShownSetting]) -> list[SettingGroup]:
    names = group_names()
    by_group: dict[str, list[ShownSetting]] = {group: [] for group in names}
    for row in rows:
        by_group.setdefault(group_of(row.key), []).append(row)
    return [SettingGroup(name=names.get(group, group), rows=tuple(rows)) for group, rows in by_group.items() if rows]


def _stays(view: View) -> str:
    if view.settings_read_at is None:
        return _("The file has errors now, so the settings that were read before stay in use.")
    text = _("The file has errors now, so the settings of {time} stay in use.")
    return text.format(time=clock_text(view.settings_read_at))


def _answer(rows: Sequence[ShownSetting]) -> str:
    changed = sum(row.is_changed for row in rows)
    text = translate_plural(
        "{count} setting differs from the default.", "{count} settings differ from the defaults.", changed
    )
    return text.format(count=changed)


def fault_text(fault: str) -> str:
    """A fault with the line of the file first: "Line 41: …"."""
    found = _LINE.fullmatch(fault)
    if found is None:
        return translate_composed(fault)
    text = _("Line {number}: {fault}")
    return text.format(number=found["line"], fault=translate_composed(found["text"]))


def _hosts(view: View) -> Sequence[HostView]:
    try:
        return known_hosts(view.settings)
    except StoreError:  # the settings are shown without a store, too
        return ()


SETTINGS_PAGE = Page(name="Settings", path="/settings", template="settings.html", show=_show, order=80)
