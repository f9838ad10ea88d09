"""Change or add a watch in the settings file: comments stay, and only a valid file is written."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import tomlkit
from tomlkit import TOMLDocument
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

from gpuwatch.app.watches.watch_selection import no_such_watch
from gpuwatch.atomic_file import atomic_file
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.domain.watches.owner_names import plain_name
from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.redaction import redact
from gpuwatch.settings import Settings
from gpuwatch.settings.interpolation import inherit
from gpuwatch.settings.reference import watch_rows
from gpuwatch.settings.sources import Sources, collect

# Settings that run on this machine, read its files or hold a secret can be written only with an editor.
BY_EDITOR_ALONE = frozenset(
    {
        "command", "command_timeout", "handover.to", "handover.run",
        "launch.on_running", "launch.before_stop", "launch.on_ended", "launch.hook_timeout", "launch.env",
        "launch.onstart_file", "launch.ssh_key", "launch.registry.server", "launch.registry.username",
        "launch.registry.password",
    }
)  # fmt: skip
_MAX_CHARS = 8_000  # of one value


class WatchField(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of a watch. `text`: its value as plain text without quotes; empty: not set.

    Attributes:
        inherited: what it inherits if it does not set it, as text; empty: nothing. A change writes it into no watch.
        origin: where that is set: "group night" or "defaults".
        is_heir: it inherits something once it does not set it any more.
        default: what is built in, as text.
    """

    key: str  # "launch.max_runtime"
    text: str
    inherited: str = ""
    origin: str = ""
    is_heir: bool = False
    default: str
    about: str
    needed: bool


class WatchForm(msgspec.Struct, frozen=True, kw_only=True):
    """A watch as in the file. `version` identifies the file's content.

    Attributes:
        by_editor: what is set and can be changed only with an editor: keys without values.
    """

    fields: tuple[WatchField, ...]
    version: str
    file: Path
    by_editor: tuple[str, ...] = ()


class FileChanged(UsageError):
    """The settings file is not the one that a change is based on."""


class WatchDraft(msgspec.Struct, frozen=True, kw_only=True):
    """The changed file, and the settings in it. `diff` contains no secret."""

    file: Path
    version: str  # of the content that the change is based on
    name: str
    content: bytes
    diff: str
    settings: Settings
    is_writable: bool


def watch_form(config: str | None, name: str | None) -> WatchForm:
    """The fields of a watch, or of a new one without a name.

    Raises:
        UsageError: there is no such watch, or no settings file.
        SettingsError: the file cannot be read.
    """
    sources = _sources(config)
    document = _document(sources)
    table = None if name is None else _watch_table(document, name)
    own = {} if table is None else table.unwrap()
    inherited = _inherited(document, own)
    heirs = _inherited(document, {"group": own.get("group")})
    rows = [(".".join(row.path[1:]), row) for row in watch_rows()]
    fields = tuple(
        WatchField(
            key=key,
            text=_text_of(table, key),
            inherited=inherited.get(key, ("", ""))[0],
            origin=inherited.get(key, ("", ""))[1],
            is_heir=key in heirs,
            default=row.default.strip('"'),
            about=row.text,
            needed=row.needed,
        )
        for key, row in rows
        if key not in BY_EDITOR_ALONE
    )
    assert sources.file is not None
    by_editor = tuple(sorted(key for key in BY_EDITOR_ALONE if _text_of(table, key)))
    return WatchForm(fields=fields, version=_version(sources.content), file=sources.file, by_editor=by_editor)


def draft_watch(config: str | None, name: str | None, values: Mapping[str, str]) -> WatchDraft:
    """The settings with changed values of a watch; without a name, with a new watch.

    Args:
        values: by key; in TOML syntax, or plain text; empty removes the key. Other keys stay.

    Raises:
        UsageError: no such watch or key.
        SettingsError: the changed file is invalid; one line per error.
    """
    sources = _sources(config)
    document = _document(sources)
    table = _new_table(document) if name is None else _watch_table(document, name)
    known_keys = {field.key for field in watch_form(config, name).fields}
    for key, text in values.items():
        if key not in known_keys:
            raise UsageError(f"{key} cannot be edited here; edit it in {sources.display_name}")
        if len(text) > _MAX_CHARS:
            raise UsageError(f"{key}: at most {_MAX_CHARS:,} characters")
        plain = text.replace("\r\n", "\n").strip()
        if plain != _text_of(table, key):
            _set(table, key, plain)
    content = document.as_string().encode()
    settings = load_settings(config, content=content)
    assert sources.file is not None
    return WatchDraft(
        file=sources.file,
        version=_version(sources.content),
        name=str(table.get("name", "")),
        content=content,
        diff=_diff(sources.content.decode(), content.decode(), sources.file.name),
        settings=settings,
        is_writable=os.access(sources.file, os.W_OK) and os.access(sources.file.resolve().parent, os.W_OK),
    )


def save_draft(draft: WatchDraft, version: str) -> None:
    """Write the whole settings file.

    Args:
        version: of the content that the change is based on.

    Raises:
        FileChanged: the file has changed since.
        GpuwatchError: it cannot be written.
    """
    target = draft.file.resolve()
    try:
        if _version(target.read_bytes()) != version or draft.version != version:
            raise FileChanged(f"{draft.file} has changed in the meantime; reload the watch and repeat the change")
        with atomic_file(target, mode=target.stat().st_mode & 0o777, is_durable=True) as part:
            part.write_bytes(draft.content)
    except OSError as error:
        raise GpuwatchError(f"cannot write {draft.file}: {error.strerror}; make the change manually") from None


# --- the file ---------------------------------------------------------------------------------------------------------


def _sources(config: str | None) -> Sources:
    sources = collect(config)
    if sources.file is None:
        raise UsageError("there is no settings file to edit; create one with: gpuwatch init")
    return sources


def _document(sources: Sources) -> TOMLDocument:

    try:
        return tomlkit.parse(sources.content.decode("utf-8-sig"))
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise GpuwatchError(f"cannot edit {sources.display_name} here: {error}") from None


def _version(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _watch_table(document: TOMLDocument, name: str) -> Any:
    tables = document.get("watch", [])
    matching = next((table for table in tables if str(table.get("name", "")) == plain_name(name)), None)
    if matching is None:
        raise no_such_watch(name, [str(table.get("name", "")) for table in tables])
    return matching


def _inherited(document: TOMLDocument, own: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Key → its text and its origin, of what a watch with these keys inherits from its group and the defaults."""
    found = inherit(document.unwrap() | {"watch": [own]})
    origins: dict[str, tuple[str, str]] = {}
    for path, place in found.places[0].items() if found.places else ():
        value: Any = found.tree["watch"][0]
        for part in path:
            value = value[part]
        origin = f"group {place[1]}" if place[0] == "group" else "defaults"
        origins[".".join(path)] = (_text_of({"value": _item(value)}, "value"), origin)
    return origins


def _item(value: Any) -> Any:
    if not isinstance(value, dict):
        return tomlkit.item(value)
    inline = tomlkit.inline_table()
    inline.update(value)
    return inline


def _new_table(document: TOMLDocument) -> Any:

    if "watch" not in document:
        document.append("watch", tomlkit.aot())
    table = tomlkit.table()
    table.trivia.indent = "\n"  # a preceding blank line
    document["watch"].append(table)
    return table


def _text_of(table: Any, key: str) -> str:
    for part in key.split("."):
        if not isinstance(table, Mapping) or part not in table:
            return ""
        table = table[part]
    if isinstance(table, str) and _value(table) == table:
        return str(table).strip()  # plain text needs no quotes if it parses to the same text
    if isinstance(table, bool):
        return str(table).lower()
    return str(table.as_string()).strip() if hasattr(table, "as_string") else str(table)


def _set(table: Any, key: str, text: str) -> None:
    *parents, last = key.split(".")
    for part in parents:
        if part not in table:
            if not text:
                return
            _add(table, part, tomlkit.inline_table() if isinstance(table, InlineTable) else tomlkit.table())
        table = table[part]
    if not text:
        table.pop(last, None)
    elif last in table:
        table[last] = _value(text)
    else:
        _add(table, last, _value(text))


def _add(table: Any, key: str, value: Any) -> None:
    """At the end, but before trailing comments: they usually belong to what follows."""
    body, other_items = table.value.body, []
    while body and body[-1][0] is None:
        other_items.append(body.pop())
    table.append(key, value)
    body.extend(reversed(other_items))


def _value(text: str) -> Any:
    """Convert a text to a TOML value; text that is not TOML stays text."""

    try:
        return tomlkit.value(text)
    except (TOMLKitError, ValueError):
        return tomlkit.string(text, multiline="\n" in text)


def _diff(before: str, after: str, name: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), name, name, lineterm="", n=2)
    return redact("\n".join(lines))
