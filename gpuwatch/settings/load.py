"""Loads `Settings`: collect the sources, merge and validate their tables, warn."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.errors import SettingsError, UsageError
from gpuwatch.settings.best_effort import UsableSettings, load_best_effort
from gpuwatch.settings.external_values import UnreadableValues, database_url
from gpuwatch.settings.interpolation import resolve_references
from gpuwatch.settings.model import Settings
from gpuwatch.settings.settings_warnings import log_warnings
from gpuwatch.settings.sources import Sources, collect, collect_draft, merge_sources, parse_file
from gpuwatch.settings.validate import validate


def load(  # noqa: PLR0913 the sources, and how to read them
    config: str | None = None,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    known_spellings: Collection[str] = (),
    recorded_places: Collection[str] = (),
    content: bytes | None = None,
    all_warnings: bool = False,
) -> Settings:
    """The effective settings.

    Args:
        config: the settings file from the command line.
        env: the environment; None: this process's.
        cwd: for relative paths and `.env`; None: the current folder.
        known_spellings: GPU names of providers that are not in the catalogue.
        recorded_places: regions reported by providers.
        content: validate the file as if it had this content.
        all_warnings: print also the warnings that another command printed today.

    Raises:
        SettingsError: one line per error.
    """
    sources = collect(config, env, cwd)
    if content is not None:
        sources = msgspec.structs.replace(sources, content=content)
    return _resolve(sources, known_spellings, {}, recorded_places, all_warnings=all_warnings)


def load_draft(
    file: Path, content: bytes, new_variables: Mapping[str, str], *, left_out: Collection[str] = ()
) -> tuple[Settings, Sources]:
    """The settings as they will be once this file is written, and what is set outside it.

    Args:
        new_variables: what `.env` beside the file will have in addition.
        left_out: tables of which the environment is ignored, such as "notify".

    Raises:
        SettingsError: one line per error.
    """
    sources = collect_draft(file, content, new_variables)
    kept = tuple(one for one in sources.external if one.path[0] not in left_out)
    return _resolve(msgspec.structs.replace(sources, external=kept), (), {}, all_warnings=True), sources


def load_for_stopping(
    config: str | None = None, *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> UsableSettings:
    """The valid part of the settings.

    Sufficient to stop instances and to pause; `dry_run` is true, and no watch rents.

    Raises:
        SettingsError: the file cannot be read or is not TOML, or the database's address is wrong.
    """
    unreadable: UnreadableValues = []
    sources = collect(config, env, cwd, unreadable=unreadable)
    tree, origins = merge_sources(parse_file(sources), sources, unreadable)
    valid, resolved = load_best_effort(tree, sources, origins, unreadable)
    log_warnings(valid.settings, sources, origins, resolved, all_warnings=False)
    return valid


def probable_store_url(
    config: str | None = None, *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> str | None:
    """The probable address of the store if the file is not TOML; None: unknown. For reading only."""
    try:
        sources = collect(config, env, cwd, unreadable=[])
        urls = [one.text for one in sources.external if one.path == ("database_url",)]
        return database_url(urls[-1] if urls else _database_line(sources.content), sources.env, sources.cwd)
    except (SettingsError, ValueError):
        return None


def _database_line(content: bytes) -> str:
    """The address from the one line that sets it, above the first table. Raises ValueError."""
    import tomllib  # noqa: PLC0415

    top = itertools.takewhile(
        lambda line: not line.startswith("["), content.decode("utf-8-sig", "replace").splitlines()
    )
    lines = [line for line in top if line.partition("=")[0].strip() == "database_url"]
    return str(tomllib.loads(lines[0])["database_url"]) if lines else ""


def store_url(config: str | None = None, *, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """The address of the store, without validating anything else.

    Raises:
        SettingsError: the file or the environment cannot be read.
    """
    sources = collect(config, env, cwd)
    tree, _ = merge_sources(parse_file(sources), sources)
    return database_url(str(tree.get("database_url") or ""), sources.env, sources.cwd)


def from_flags(  # noqa: PLR0913 - one argument per flag of the command
    gpu: Sequence[str],
    max_price: str,
    *,
    count: str | None = None,
    spot: str | None = None,
    providers: Sequence[str] | None = None,
    config: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Settings:
    """One watch from flags, instead of the watches of the settings, and without their defaults; all else applies.

    Args:
        config: the settings file; None searches the default locations.

    Raises:
        UsageError: a flag is invalid.
        SettingsError: the file or the environment is invalid.
    """
    watch = _flag_watch(gpu, max_price, count, spot, providers)
    sources = collect(config, env)
    watches = {"watch": [watch], "defaults": {}, "group": {}}
    external = tuple(one for one in sources.external if one.path[0] not in watches)
    try:
        return _resolve(msgspec.structs.replace(sources, external=external), (), watches)
    except SettingsError as error:
        from gpuwatch.settings.settings_errors import InvalidSettings  # noqa: PLC0415 - pydantic, which found the error

        errors = error.errors if isinstance(error, InvalidSettings) else ()
        flag_errors = [_flag_error(loc[2:], text) for loc, text in errors if loc[:1] == ("watch",)]
        if not flag_errors:
            raise
        raise UsageError("\n".join(flag_errors)) from None


def _resolve(
    sources: Sources,
    known_spellings: Collection[str],
    extra: dict[str, Any],
    recorded_places: Collection[str] = (),
    *,
    all_warnings: bool = False,
) -> Settings:
    tree, origins = merge_sources(parse_file(sources) | extra, sources)
    resolved = resolve_references(tree, sources)
    settings = validate(resolved, sources, origins, known_spellings, recorded_places)
    log_warnings(settings, sources, origins, resolved, all_warnings=all_warnings)
    return settings


def _flag_watch(
    gpu: Sequence[str], max_price: str, count: str | None, spot: str | None, providers: Sequence[str] | None
) -> dict[str, Any]:
    from decimal import Decimal, InvalidOperation  # noqa: PLC0415

    try:
        price = Decimal(max_price)
    except InvalidOperation:
        raise UsageError("--max-price: expected a number above 0, in USD per GPU-hour, such as 3.50") from None
    watch: dict[str, Any] = {"name": ", ".join(gpu)[:100], "gpu": list(gpu), "max_price": price}
    if count is not None:
        watch["gpu_count"] = _count(count)
    if spot is not None:
        watch["spot"] = spot
    if providers:
        watch["providers"] = list(providers)
    return watch


def _count(text: str) -> Any:
    low, dash, high = text.partition("-")
    try:
        return {"min": int(low), "max": int(high)} if dash else int(low)
    except ValueError:
        raise UsageError("--count: expected a number such as 4, or a range such as 1-8") from None


def _flag_error(key: Sequence[int | str], text: str) -> str:
    """`("max_price",), "expected …"` → `--max-price: expected …`."""
    flags = {"gpu_count": "count", "providers": "provider", "max_price": "max-price", "name": "gpu"}
    name = str(key[0]) if key else "gpu"
    return f"--{flags.get(name, name)}: {text}"
