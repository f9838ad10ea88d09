"""Validates settings: each key by the schema, then the rules between keys. Job files, too."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace
from pydantic import TypeAdapter, ValidationError, create_model

from gpuwatch import notifiers, providers
from gpuwatch.domain.jobs.job_definition import RESOURCE_KEYS, JobDefinition
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.setup.fields import Table, table_of
from gpuwatch.domain.setup.layered_tables import own_entries
from gpuwatch.domain.watches.expression import comparisons_of, parse
from gpuwatch.domain.watches.owner_names import is_owner, owned_name, owner_of, plain_name
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.domain.watches.watch_fields import SEEN, SEEN_PLACES, GroupName
from gpuwatch.errors import SettingsError
from gpuwatch.ports import ChannelSection, ProviderSection, Severity
from gpuwatch.ports.declarations import ChannelInfo, OptionSpec, ProviderInfo
from gpuwatch.ports.settings import Option
from gpuwatch.secret import Secret
from gpuwatch.settings.external_values import ExternalValue, database_url, locate_secrets, option_text
from gpuwatch.settings.interpolation import ResolvedSettings, group_tables, script_text, unknown_group, with_group
from gpuwatch.settings.model import Settings, WebSettings, listen_fault, rent_defaults
from gpuwatch.settings.plugin_options import (
    MIN_SEVERITY,
    NOTIFY_OPTIONS,
    KeyPath,
    channel_table,
    options_of,
    options_table,
    provider_table,
    unknown_key,
    values_in,
)
from gpuwatch.settings.settings_errors import (
    InvalidSettings,
    Location,
    error_line,
    has_unknown_names,
    validation_errors,
    where_set,
)
from gpuwatch.settings.sources import MAX_FILE_BYTES, Sources, parse_file
from gpuwatch.settings.watch_rules import heritable_table, launch_errors, missing_limits, no_gpu_errors, price_errors

Error = tuple[Location, str]
_STORED_NAME_LENGTH = 32  # of a channel or provider, with its owner


def validate(
    resolved: ResolvedSettings,
    sources: Sources,
    origins: Mapping[KeyPath, ExternalValue],
    known_spellings: Collection[str],
    recorded_places: Collection[str] = (),
) -> Settings:
    """Build the settings from merged tables with resolved references.

    Args:
        known_spellings: GPU names of providers that are not in the catalogue.
        recorded_places: regions reported by providers.

    Raises:
        InvalidSettings: one line per error.
    """
    token, places_token = SEEN.set(known_spellings), SEEN_PLACES.set(recorded_places)
    try:
        settings = _settings(_table(resolved, sources, origins), sources, resolved.tree)
        errors = where_set(_cross_checks(settings, resolved.tree), resolved)
        if errors:
            raise InvalidSettings(errors, sources, resolved.tree, origins)
    finally:
        SEEN.reset(token)
        SEEN_PLACES.reset(places_token)
    locate_secrets(settings, origins)
    return _with_owned_names(settings)


def _table(resolved: ResolvedSettings, sources: Sources, origins: Mapping[KeyPath, ExternalValue]) -> Any:
    """The table, with each key valid by itself. Raises InvalidSettings."""
    tree = resolved.tree | {key: _sections(key, resolved.tree) for key in ("providers", "notify")}
    tree |= {"group": own_entries(tree["group"])} if "group" in tree else {}
    model = _model_for(tree)
    errors, has_unknown = list(resolved.faults), False
    try:
        root = model.model_validate(tree)
    except ValidationError as error:
        errors += validation_errors(error, model)
        has_unknown = has_unknown_names(error)
    if errors:
        errors = where_set(errors, resolved)
        raise InvalidSettings(errors, sources, resolved.tree, origins, has_unknown_names=has_unknown)
    return root


def _sections(key: str, tree: Mapping[str, Any]) -> Any:
    """The providers with those that are always on; the channels without empty tables, which configure none."""
    given = tree.get(key, {})
    if not isinstance(given, dict):
        return given
    if key == "notify":
        return {name: table for name, table in given.items() if table not in (None, {})}
    return {name: {} for name in providers.names() if providers.info(name).on_by_default} | given


def _model_for(tree: Mapping[str, Any]) -> type[Table]:
    """The table of all settings, with the keys of the providers and channels in it."""
    given = {key: tree[key] if isinstance(tree[key], dict) else {} for key in ("providers", "notify")}
    return _model(
        tuple(providers.info(name) for name in providers.names() if name in given["providers"]),
        tuple(notifiers.info(name) for name in given["notify"] if name in notifiers.names()),
        tuple(name for name in ("defaults", "group") if tree.get(name)),
    )


@lru_cache(maxsize=16)  # pydantic takes 20 ms to make one; pages and commands read the settings again and again
def _model(known: tuple[ProviderInfo, ...], used: tuple[ChannelInfo, ...], inherited: tuple[str, ...]) -> type[Table]:
    tables: dict[str, Any] = {info.name: (provider_table(info), ...) for info in known}
    channels: dict[str, Any] = {info.name: (channel_table(info), ...) for info in used}
    sections: dict[str, Any] = {
        "providers": (create_model("Providers", __base__=Table, **tables), ...),
        "notify": (create_model("Channels", __base__=options_table(NOTIFY_OPTIONS), **channels), ...),
    }
    if inherited:
        heritable: Any = heritable_table()
        defaults = create_model("Defaults", __base__=Table, watch=(heritable | None, None))
        both = {"defaults": (defaults, ...), "group": (dict[GroupName, heritable], ...)}
        sections |= {name: both[name] for name in inherited}
    return create_model("Settings", __base__=table_of(Settings), **sections)


def _settings(root: Any, sources: Sources, tree: Mapping[str, Any]) -> Settings:
    inherited = group_tables(tree)
    known = type(root.providers).model_fields, type(root.notify).model_fields
    tables = {name: getattr(root.providers, name) for name in known[0]}
    channels = {name: getattr(root.notify, name) for name in known[1] if name in notifiers.names()}
    return Settings.of(
        root,
        database_url=database_url(root.database_url or "", sources.env, sources.cwd),
        providers={name: _provider(name, table) for name, table in tables.items() if table.enabled is not False},
        channels={name: _channel(name, table) for name, table in channels.items()},
        quiet_hours=values_in(root.notify)["quiet_hours"],
        groups={name: inherited.get(name, {}) for name in root.group},
        rent_defaults=rent_defaults(
            getattr(root.defaults, "watch", None), sources.file.parent if sources.file else sources.cwd
        ),
        source_file=str(sources.file) if sources.file else None,
    )


def default_provider(name: str) -> ProviderSection:
    """One provider as it is without a section of its own."""
    return _provider(name, provider_table(providers.info(name))())


def default_commission(name: str) -> Commission:
    """The commission of a provider without a section of its own."""
    info = providers.info(name)
    return replace(info.commission, min_billing_s=info.billing.minimum_s, billing_step_s=info.billing.step_s)


def _provider(name: str, table: Any) -> ProviderSection:
    """One provider with its defaults."""
    info = providers.info(name)
    options, secrets = _without_secrets(info.options, values_in(table.options))
    commission = default_commission(name)
    if table.commission is not None:
        rate_text = format(table.commission.rate, "f")
        commission = replace(commission, rate_text=rate_text, mode=table.commission.mode)
    if table.min_billing is not None:
        commission = replace(commission, min_billing_s=table.min_billing)
    return ProviderSection.of(table, name=name, commission=commission, options=options, secrets=secrets)


def _channel(name: str, table: Table) -> ChannelSection:
    options, secrets = _without_secrets(options_of(notifiers.info(name)), values_in(table))
    min_severity = Severity(str(options.pop(MIN_SEVERITY.name)))
    return ChannelSection(name=name, options=options, secrets=secrets, min_severity=min_severity)


def _without_secrets(
    specs: Iterable[OptionSpec], values: dict[str, Option]
) -> tuple[dict[str, Option], dict[str, Secret]]:
    """The options without texts of secrets, and the secret ones that are set."""
    names = {spec.name for spec in specs if spec.secret}
    secrets = {name: Secret(option_text(values[name])) for name in names if values[name] is not None}
    return values | dict.fromkeys(names), secrets


def _cross_checks(settings: Settings, tree: Mapping[str, Any]) -> Iterator[Error]:
    """The rules between keys."""
    yield from _missing_options(settings)
    yield from _web_errors(settings.web)
    yield from _owner_errors(settings)
    names: set[str] = set()
    for index, (watch, table) in enumerate(zip(settings.watches, tree.get("watch", ()), strict=True)):
        loc: Location = ("watch", index)
        written = {key: value for key, value in table.items() if value is not None}
        if watch.name in names:
            yield (*loc, "name"), "expected a unique name; another watch uses it"
        names.add(watch.name)
        if owner_of(watch.name):
            yield (*loc, "name"), _of_another_owner(watch.name, settings.owner)
        yield from (
            ((*loc, "renamed_from"), text) for text in _wrong_renames(watch.renamed_from, index, settings.watches)
        )
        sections = {"providers": (watch.providers, list(settings.providers), providers.names())}
        sections["notify"] = (watch.notify, list(settings.channels), notifiers.names())
        for section, (requested, present, known) in sections.items():
            yield from (((*loc, section), text) for text in _unknown_names(requested, present, known, section))
        yield from ((loc + key, text) for key, text in _misspelt_providers(watch))
        yield from (
            (loc + key, text)
            for key, text in (
                *price_errors(watch, written),
                *launch_errors(watch, written),
                *no_gpu_errors(watch, written),
            )
        )
        if not settings.dry_run:
            yield from ((loc + key, text) for key, text in missing_limits(watch, written, settings.budget))


def _of_another_owner(name: str, own: str) -> str:
    """A gpuwatch before owners allowed such a name: what it stored follows the watch to its new one."""
    owner, plain = owner_of(name), plain_name(name)
    text = f'expected a name without "{owner}::", which marks what another owner stored'
    if not plain or owner == own or not is_owner(owner):
        return text
    command = f"gpuwatch watches take-over {shlex.quote(plain)} --from {owner}"
    return f"{text}; name it {plain!r}, and if an older gpuwatch used the name, run: {command}"


def _owner_errors(settings: Settings) -> Iterator[Error]:
    """The names under which an owner's channels, and the health of its providers, are stored must fit."""
    if not is_owner(settings.owner):  # its characters were checked before
        yield ("owner",), f'expected another name; "{settings.owner}:" marks something else in the database'
    for name in (*settings.providers, *settings.channels):
        if settings.owner and len(owned_name(settings.owner, name)) > _STORED_NAME_LENGTH:
            room = _STORED_NAME_LENGTH - len(owned_name("o", name)) + 1
            yield ("owner",), f"expected at most {room} characters, because of the name {name!r}"


def _with_owned_names(settings: Settings) -> Settings:
    """The settings with the names under which the owner's watches are stored."""
    if not settings.owner:
        return settings
    watches = [
        replace(
            watch,
            name=owned_name(settings.owner, watch.name),
            renamed_from=watch.renamed_from and owned_name(settings.owner, watch.renamed_from),
        )
        for watch in settings.watches
    ]
    return replace(settings, watches=tuple(watches))


def _web_errors(web: WebSettings) -> Iterator[Error]:
    if (text := listen_fault(web)) is not None:
        yield ("web", "listen"), text
    if web.probe_listen and not web.enabled:
        yield ("web", "probe_listen"), "expected web.enabled = true as well: the daemon serves it beside the page"
    if (web.tls_certificate is None) != (web.tls_key is None):
        yield ("web", "tls_key"), "expected both tls_certificate and tls_key, or neither"
    names = [token.name for token in web.tokens]
    for index, name in enumerate(names):
        if name in names[:index]:
            yield ("web", "tokens", index, "name"), "expected a unique name; another token uses it"


def _wrong_renames(previous: str | None, index: int, watches: Sequence[Watch]) -> Iterator[str]:
    """Only one watch can take over a previous name."""
    if not previous:
        return
    others = [watch for number, watch in enumerate(watches) if number != index]
    if previous in {watch.name for watch in watches}:
        yield f"expected the watch's previous name; a watch named {previous!r} still exists"
    elif previous in {watch.renamed_from for watch in others}:
        yield f"another watch also has renamed_from = {previous!r}; only one can"


def _missing_options(settings: Settings) -> Iterator[Error]:
    """A required option is required only if the provider is polled."""
    for name, provider in settings.providers.items():
        for spec in providers.info(name).options:
            if spec.needed and provider.options[spec.name] is None and spec.name not in provider.secrets:
                text = f"required key is missing; expected: {spec.about}"
                yield ("providers", name, "options", spec.name), text


def _misspelt_providers(watch: Watch) -> Iterator[Error]:
    """Names in conditions. A provider that is not configured is allowed: another part of the condition may hold."""
    conditions = [("when", watch.when)] if watch.when else []
    for key, text in (*conditions, *(("any", text) for text in watch.any_of)):
        for comparison in comparisons_of(parse(text)):
            names = tuple(str(value).lower() for value in comparison.values) if comparison.name == "provider" else ()
            known = providers.names()
            yield from (((key,), fault) for fault in _unknown_names(names, list(known), known, "providers"))


def _unknown_names(
    names: tuple[str, ...] | None, present: list[str], known: tuple[str, ...], section: str
) -> Iterator[str]:
    """Names in a watch that are not configured: known ones lack their section, others are misspelt."""
    for name in names or ():
        if name in present:
            continue
        if name in known:
            yield f"{name!r} is not configured; use one of: {', '.join(present) or 'none'} (or add [{section}.{name}])"
        else:
            matches = get_close_matches(name.lower(), known, n=1, cutoff=0.6)
            hint = f"did you mean {matches[0]}?" if matches else f"expected one of: {', '.join(known)}"
            yield f"unknown name {name!r}; {hint}"


# --- job files: `jobs/NAME.toml` --------------------------------------------------------------------------------------


def read_job_file(path: Path, groups: Mapping[str, Mapping[str, Any]] = MappingProxyType({})) -> JobDefinition:
    """The job that a file describes.

    Args:
        groups: of the settings; a file with `group = "NAME"` inherits from it.

    Raises:
        SettingsError: it cannot be read, or is invalid; one line per error.
    """
    sources = Sources(file=path, content=_read_bytes(path), external=(), env={}, cwd=Path.cwd())
    written = {"name": path.stem, **parse_file(sources)}
    tree = with_group(written, groups)
    errors: list[tuple[Location, str]] = list(_wrong_resources(tree))
    if isinstance(name := written.get("group"), str) and name not in groups:
        errors.append((("group",), unknown_group(name, list(groups))))
    definition: JobDefinition | None = None
    try:
        definition = TypeAdapter(JobDefinition).validate_python(tree)
    except ValidationError as error:
        errors += [
            validation_error
            for validation_error in validation_errors(error, table_of(JobDefinition))
            if validation_error[0] not in {loc for loc, _ in errors}
        ]
    scripts: dict[Location, str | None] = {}
    for at, step in {(): definition, ("prepare",): definition and definition.prepare}.items():
        if step is None:
            continue
        written = (tree["prepare"] if at else tree).get("resources", {})
        errors += (((*at, "resources", *key), text) for key, text in no_gpu_errors(step.resources, written))
        try:
            scripts[at] = None if step.script is None else script_text(step.script, path.parent)
        except ValueError as error:
            errors.append(((*at, "script"), str(error)))
    if errors or definition is None:
        located = dict.fromkeys((_as_written(loc), text) for loc, text in errors)
        raise SettingsError([_line(loc, text, sources, tree) for loc, text in located])
    prepare = definition.prepare and replace(definition.prepare, script=scripts["prepare",])
    return replace(definition, script=scripts[()], prepare=prepare, folder=str(path.resolve().parent))


def _as_written(loc: Location) -> Location:
    """The GPU of a step before is validated with its offers, and written beside its command."""
    return ("prepare", *loc[2:]) if loc[:3] == ("prepare", "resources", "gpu") else loc


def _line(loc: Location, text: str, sources: Sources, tree: dict[str, Any]) -> str:
    return error_line(loc, text, sources, tree, {}) if loc else f"{sources.display_name}: {text}"


def _wrong_resources(tree: dict[str, Any], *at: str) -> Iterator[tuple[Location, str]]:
    """Keys of a watch that do not describe an offer: the queue sets them."""
    resources, prepare = tree.get("resources"), tree.get("prepare")
    for key in resources if isinstance(resources, dict) else ():
        if key not in RESOURCE_KEYS:
            yield (*at, "resources", key), unknown_key(key, RESOURCE_KEYS)
    if isinstance(prepare, dict) and not at:
        yield from _wrong_resources(prepare, "prepare")


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SettingsError([f"{path}: cannot read the file: {error.strerror}"]) from None
    if len(content) > MAX_FILE_BYTES:
        raise SettingsError([f"{path}: expected a file of at most 4 MB"])
    return content
