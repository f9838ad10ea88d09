"""The effective settings with their origin and masked secrets, for `gpuwatch config show`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.domain.setup.env_text import EnvText, plain_json
from gpuwatch.settings import validate
from gpuwatch.settings.external_values import ExternalValue
from gpuwatch.settings.interpolation import HOOKS, is_reference, resolve_references
from gpuwatch.settings.plugin_options import KeyPath
from gpuwatch.settings.reference import SettingRow, setting_rows, watch_rows
from gpuwatch.settings.secrets import database_url, origin_text
from gpuwatch.settings.settings_schema import SettingsTables
from gpuwatch.settings.sources import Sources, collect, merge_sources, parse_file

MASK = "********"
_ALWAYS_MASKED = {
    "api_key",
    "previous_api_key",
    "bot_token",
    "password",
    "urls",
}  # even if a plugin does not declare it


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """One effective setting. `value` is ready for JSON; `origin`: default, file, env NAME or credential NAME."""

    key: str
    value: Any
    origin: str


def origins(
    config: str | None = None,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    known_spellings: Collection[str] = (),
) -> tuple[str | None, list[Origin]]:
    """The settings file, and every setting with its origin. Raises SettingsError: the settings are invalid."""
    sources = collect(config, env, cwd)
    tree, external = merge_sources(parse_file(sources), sources)
    resolved = resolve_references(tree, sources)
    validate.validate(resolved, sources, external, known_spellings)
    root = validate.parse_root(resolved, sources, external)
    rows = [*_plain(tree, sources, external, validate.enabled_providers(root)), *_watches(tree, root, external)]
    return (str(sources.file) if sources.file else None), rows


def _plain(
    tree: Mapping[str, Any], sources: Sources, external: Mapping[KeyPath, ExternalValue], enabled: Collection[str]
) -> Iterator[Origin]:
    for row in setting_rows():
        value, origin = _value_and_origin(tree, row, external)
        if row.key == "database_url":
            url = str(tree.get("database_url") or "").strip()
            value = without_password(database_url(url, sources.env, sources.cwd))
        elif row.path[0] == "providers" and row.path[-1] == "enabled":
            value = row.path[1] in enabled
        yield Origin(key=row.key, value=_masked(row.path[-1], value, row.secret), origin=origin)


def _watches(
    tree: Mapping[str, Any], root: SettingsTables, external: Mapping[KeyPath, ExternalValue]
) -> Iterator[Origin]:
    for table, watch in zip(tree.get("watch", []), root.watch, strict=True):
        for row in watch_rows():
            value, origin = _value_and_origin({"watch": table}, row, external)
            if _is_table_missing(table, row):
                continue
            key = f'watch "{watch.name}".{".".join(row.path[1:])}'
            yield Origin(key=key, value=_masked(row.path[-1], value, row.secret), origin=origin)


def _is_table_missing(watch: Mapping[str, Any], row: SettingRow) -> bool:
    """Is it a key of a launch, bid, registry or volume that this watch does not have?"""
    table: Any = watch
    for part in row.path[1:-1]:
        table = table.get(part)
        if table is None:
            return row.path[1] == "launch"
    return False


def _value_and_origin(
    tree: Mapping[str, Any], row: SettingRow, external: Mapping[KeyPath, ExternalValue]
) -> tuple[Any, str]:
    value: Any = tree
    for part in row.path:
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return _default(row.default), "default"
    for length in range(len(row.path), 0, -1):
        if row.path[:length] in external:
            return _json(value), origin_text(external[row.path[:length]])
    nested = next((one for path, one in external.items() if path[: len(row.path)] == row.path), None)
    return _json(value), origin_text(nested) if nested else "file"


def _default(text: str) -> Any:
    import tomllib  # noqa: PLC0415

    return tomllib.loads(f"value = {text}")["value"] if text else None


def _json(value: Any) -> Any:
    """Environment text in JSON, decoded; numbers as numbers; a commission without a mode as it is written."""
    if isinstance(value, dict) and value.keys() == {"rate"}:
        return _json(value["rate"])
    if isinstance(value, EnvText):
        try:
            return plain_json(value)
        except ValueError:
            return str(value)
    return value


def _masked(key: str, value: Any, secret: bool = False) -> Any:
    if value is None:
        return None
    if is_reference(value):
        return value
    if secret or key in _ALWAYS_MASKED:
        return [MASK] * len(value) if isinstance(value, list) else MASK
    if key in HOOKS:
        return {name: _masked_hook(name, one) for name, one in value.items()} if isinstance(value, dict) else MASK
    if key == "env" and isinstance(value, dict):
        return {name: one if is_reference(one) else MASK for name, one in value.items()}
    if key == "onstart":
        return f"({len(str(value).splitlines())} lines)"
    return value


def _masked_hook(key: str, value: Any) -> Any:
    """Only the host of a webhook's address: the path is often the secret."""
    if is_reference(value):
        return value
    if key != "url":
        return MASK
    from urllib.parse import urlsplit  # noqa: PLC0415

    parts = urlsplit(str(value))
    return f"{parts.scheme}://{parts.hostname}/{MASK}"


def without_password(url: str) -> str:
    """A database URL without its secrets."""
    scheme, mark, rest = url.partition("://")
    if "@" not in rest:
        return url
    userinfo, _, host = rest.rpartition("@")
    name = userinfo.partition(":")[0]
    return (
        f"{scheme}{mark}{name}:{MASK}@{host.partition('?')[0]}" if ":" in userinfo else f"{scheme}{mark}{name}@{host}"
    )
