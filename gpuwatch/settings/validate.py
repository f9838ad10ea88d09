"""Validates settings: each key by the schema, then the rules between keys. Job files, too."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from pydantic import SecretStr, ValidationError
from pydantic_settings import InitSettingsSource

from gpuwatch import notifiers, providers
from gpuwatch.domain.jobs.job import JobDefinition
from gpuwatch.domain.jobs.job_file_schema import RESOURCE_KEYS, JobFileTable
from gpuwatch.domain.market.money import Commission, CommissionMode
from gpuwatch.domain.watches.expression import comparisons_of, parse
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.domain.watches.watch_fields import SEEN, SEEN_PLACES, named_gpus
from gpuwatch.errors import SettingsError
from gpuwatch.ports import ChannelSection, ProviderSection, Severity
from gpuwatch.ports.declarations import ChannelInfo, ProviderInfo
from gpuwatch.ports.settings import Option
from gpuwatch.secret import Secret
from gpuwatch.settings.external_values import ExternalValue, SecretAt, database_url, secret_at
from gpuwatch.settings.interpolation import ResolvedSettings
from gpuwatch.settings.model import OrchestratorSettings, Settings, listen_fault
from gpuwatch.settings.plugin_options import (
    HEARTBEAT_URL,
    MIN_SEVERITY,
    NOTIFY_OPTIONS,
    KeyPath,
    read_option,
    read_options,
    unknown_key,
)
from gpuwatch.settings.settings_errors import (
    InvalidSettings,
    Location,
    error_line,
    has_unknown_names,
    validation_errors,
)
from gpuwatch.settings.settings_schema import ProviderTable, SettingsTables
from gpuwatch.settings.sources import MAX_FILE_BYTES, Sources, parse_file
from gpuwatch.settings.watch_rules import launch_errors, missing_limits, price_errors

Error = tuple[Location, str]


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
        root = parse_root(resolved, sources, origins)
        errors = list(_cross_checks(root, resolved.tree))
        if errors:
            raise InvalidSettings(errors, sources, resolved.tree, origins)
        return _settings(root, sources, partial(secret_at, origins))
    finally:
        SEEN.reset(token)
        SEEN_PLACES.reset(places_token)


def parse_root(
    resolved: ResolvedSettings, sources: Sources, origins: Mapping[KeyPath, ExternalValue]
) -> SettingsTables:
    """The tables, with each key valid by itself. Raises InvalidSettings."""
    tree = resolved.tree
    errors = [*_unknown_providers(tree), *_wrong_provider_options(tree), *_channel_errors(tree), *resolved.faults]
    names_unknown = False
    try:
        root = SettingsTables.from_sources(InitSettingsSource(SettingsTables, tree))
    except ValidationError as error:
        errors += validation_errors(error)
        names_unknown = has_unknown_names(error)
    if errors:
        raise InvalidSettings(errors, sources, tree, origins, has_unknown_names=names_unknown)
    return root


def enabled_providers(root: SettingsTables) -> dict[str, ProviderTable]:
    """The providers to poll: enabled by default, or by a section or key, unless disabled."""
    enabled = {}
    for name in providers.names():
        table = root.providers.get(name)
        info = providers.info(name)
        is_enabled = info.on_by_default or table is not None
        if table is not None and table.enabled is not None:
            is_enabled = table.enabled
        if is_enabled:
            enabled[name] = table or ProviderTable()
    return enabled


def provider_settings(name: str, table: ProviderTable, secret_at: SecretAt) -> ProviderSection:
    """One provider with its defaults."""
    info = providers.info(name)
    options, secrets = _without_secrets(
        info, read_options(info, table.options)[0], ("providers", name, "options"), secret_at
    )
    commission = info.commission
    if table.commission is not None:
        commission = Commission(format(table.commission.rate, "f"), CommissionMode(table.commission.mode))
    min_billing_s = info.billing.minimum_s if table.min_billing is None else table.min_billing
    commission = replace(commission, min_billing_s=min_billing_s, billing_step_s=info.billing.step_s)
    return ProviderSection(
        name=name,
        base_url=table.base_url or info.base_url,
        commission=commission,
        poll_every_s=info.poll_every_s if table.poll_every is None else table.poll_every,
        sweep_every_s=None if table.sweep_every == "auto" else float(table.sweep_every),
        search_interval_s=info.search_interval_s if table.search_interval is None else table.search_interval,
        rows_per_day=info.rows_per_day if table.rows_per_day is None else table.rows_per_day,
        timeout_s=table.timeout,
        options=options,
        secrets=secrets,
        api_key=_key(table.api_key, ("providers", name, "api_key"), secret_at),
        previous_api_key=_key(table.previous_api_key, ("providers", name, "previous_api_key"), secret_at),
    )


def _key(text: SecretStr | None, path: KeyPath, secret_at: SecretAt) -> Secret | None:
    return None if text is None else secret_at(path, text.get_secret_value())


def _without_secrets(
    info: ProviderInfo | ChannelInfo, values: Mapping[str, Option], table: KeyPath, secret_at: SecretAt
) -> tuple[dict[str, Option], dict[str, Secret]]:
    """The options of one table, without texts of secrets, and the secret ones that are set."""
    secret_names = {spec.name for spec in info.options if spec.secret}
    options = {name: None if name in secret_names else value for name, value in values.items()}
    secrets = {
        name: secret_at((*table, name), value)
        for name, value in values.items()
        if name in secret_names and value is not None
    }
    return options, secrets


def _settings(root: SettingsTables, sources: Sources, secret_at: SecretAt) -> Settings:
    return Settings(
        timezone=root.timezone,
        database_url=database_url(
            root.database_url.get_secret_value() if root.database_url else "", sources.env, sources.cwd
        ),
        dry_run=root.dry_run,
        budget=root.budget,
        providers={name: provider_settings(name, table, secret_at) for name, table in enabled_providers(root).items()},
        watch_ended_s=root.launch.watch_ended,
        gather_s=root.launch.gather,
        orchestrator=OrchestratorSettings(
            tool=root.orchestrator.tool,
            program=root.orchestrator.program,
            project=root.orchestrator.project,
            timeout_s=root.orchestrator.timeout,
        ),
        record_gpus=named_gpus(root.record.gpu),
        channels={name: _channel_settings(name, table, secret_at) for name, table in _channels(root).items()},
        quiet_hours=_quiet_hours(root),
        heartbeat_url=_key(root.watchdog.heartbeat_url, HEARTBEAT_URL, secret_at),
        watches=root.watch,
        web=root.web.value(secret_at),
        source_file=str(sources.file) if sources.file else None,
    )


_NOTIFY_SPECS = {spec.name: spec for spec in NOTIFY_OPTIONS}  # keys of [notify] next to the channels


def _channels(root: SettingsTables) -> dict[str, dict[str, Any]]:
    """The configured channels; an empty table does not configure one."""
    return {name: table for name, table in root.notify.items() if table and name not in _NOTIFY_SPECS}


def _channel_settings(name: str, table: Mapping[str, Any], secret_at: SecretAt) -> ChannelSection:
    info = notifiers.info(name)
    options, secrets = _without_secrets(info, read_options(info, table)[0], ("notify", name), secret_at)
    min_severity = Severity(str(options.pop(MIN_SEVERITY.name)))
    return ChannelSection(name=name, options=options, secrets=secrets, min_severity=min_severity)


def _quiet_hours(root: SettingsTables) -> tuple[str, ...]:
    (spec,) = NOTIFY_OPTIONS
    windows = read_option(spec, root.notify.get(spec.name) or ())
    assert isinstance(windows, tuple)
    return windows


def _unknown_providers(tree: Mapping[str, Any]) -> Iterator[Error]:
    tables = tree.get("providers")
    known = providers.names()
    for name in tables if isinstance(tables, dict) else ():
        if name not in known:
            matches = get_close_matches(str(name).lower(), known, n=1, cutoff=0.6)
            hint = f"did you mean {matches[0]}?" if matches else f"expected one of {', '.join(known)}"
            yield ("providers", name), f"unknown provider; {hint}"


def _wrong_provider_options(tree: Mapping[str, Any]) -> Iterator[Error]:
    """Errors of the given options; missing options are reported only after the tables are valid."""
    tables = tree.get("providers")
    for name, table in tables.items() if isinstance(tables, dict) else ():
        options = table.get("options") if isinstance(table, dict) else None
        if name in providers.names() and isinstance(options, dict):
            errors = read_options(providers.info(name), options)[1]
            yield from ((("providers", name, "options", key), text) for key, text in errors if key in options)


def _cross_checks(root: SettingsTables, tree: Mapping[str, Any]) -> Iterator[Error]:
    """The rules between keys."""
    enabled = enabled_providers(root)
    yield from _missing_provider_options(root, enabled)
    yield from _web_errors(root)
    channels = list(_channels(root))
    names: set[str] = set()
    for index, (watch, table) in enumerate(zip(root.watch, tree.get("watch", ()), strict=True)):
        loc: Location = ("watch", index)
        written = {key: value for key, value in table.items() if value is not None}
        if watch.name in names:
            yield (*loc, "name"), "expected a unique name; another watch uses it"
        names.add(watch.name)
        yield from (((*loc, "renamed_from"), text) for text in _wrong_renames(watch.renamed_from, index, root))
        sections = {"providers": (watch.providers, list(enabled), providers.names())}
        sections["notify"] = (watch.notify, channels, notifiers.names())
        for section, (requested, present, known) in sections.items():
            yield from (((*loc, section), text) for text in _unknown_names(requested, present, known, section))
        yield from ((loc + key, text) for key, text in _misspelt_providers(watch))
        yield from ((loc + key, text) for key, text in (*price_errors(watch, written), *launch_errors(watch, written)))
        if not root.dry_run:
            yield from ((loc + key, text) for key, text in missing_limits(watch, written, root.budget))


def _web_errors(root: SettingsTables) -> Iterator[Error]:
    web = root.web.value()
    if (text := listen_fault(web)) is not None:
        yield ("web", "listen"), text
    if (web.tls_certificate is None) != (web.tls_key is None):
        yield ("web", "tls_key"), "expected both tls_certificate and tls_key, or neither"
    names = [token.name for token in web.tokens]
    for index, name in enumerate(names):
        if name in names[:index]:
            yield ("web", "tokens", index, "name"), "expected a unique name; another token uses it"


def _wrong_renames(previous: str | None, index: int, root: SettingsTables) -> Iterator[str]:
    """Only one watch can take over a previous name."""
    if not previous:
        return
    others = [watch for number, watch in enumerate(root.watch) if number != index]
    if previous in {watch.name for watch in root.watch}:
        yield f"expected the watch's previous name; a watch named {previous!r} still exists"
    elif previous in {watch.renamed_from for watch in others}:
        yield f"another watch also has renamed_from = {previous!r}; only one can"


def _missing_provider_options(root: SettingsTables, enabled: Collection[str]) -> Iterator[Error]:
    """A required option is required only if the provider is polled."""
    for name in dict.fromkeys([*root.providers, *enabled]):
        info, table = providers.info(name), root.providers.get(name) or ProviderTable()
        required = {spec.name for spec in info.options if spec.needed and name not in enabled}
        for key, text in read_options(info, table.options)[1]:
            if key not in required or key in table.options:
                yield ("providers", name, "options", key), text


def _channel_errors(tree: Mapping[str, Any]) -> Iterator[Error]:
    tables = tree.get("notify")
    for name, table in tables.items() if isinstance(tables, dict) else ():
        if name in _NOTIFY_SPECS:
            try:
                read_option(_NOTIFY_SPECS[name], table)
            except ValueError as error:
                yield ("notify", name), str(error)
        elif name not in notifiers.names():
            yield ("notify", name), unknown_key(name, (*notifiers.names(), *_NOTIFY_SPECS))
        elif table is not None and not isinstance(table, dict):
            yield ("notify", name), "expected a table"
        elif table:
            errors = read_options(notifiers.info(name), table)[1]
            yield from ((("notify", name, *([key] if key else [])), text) for key, text in errors)


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


MAX_SCRIPT_BYTES = 1024 * 1024


def read_job_file(path: Path) -> JobDefinition:
    """The job that a file describes.

    Raises:
        SettingsError: it cannot be read, or is invalid; one line per error.
    """
    sources = Sources(file=path, content=_read_bytes(path), external=(), env={}, cwd=Path.cwd())
    tree = {"name": path.stem, **parse_file(sources)}
    errors: list[tuple[Location, str]] = list(_wrong_resources(tree))
    table: JobFileTable | None = None
    try:
        table = JobFileTable.model_validate(tree)
    except ValidationError as error:
        errors += [
            validation_error
            for validation_error in validation_errors(error, JobFileTable)
            if validation_error[0] not in {loc for loc, _ in errors}
        ]
    script = None
    if table is not None and table.script is not None:
        try:
            script = _script(table.script, path.parent)
        except ValueError as error:
            errors.append((("script",), str(error)))
    if errors or table is None:
        raise SettingsError([_line(loc, text, sources, tree) for loc, text in dict.fromkeys(errors)])
    return table.value(script, str(path.resolve().parent))


def _line(loc: Location, text: str, sources: Sources, tree: dict[str, Any]) -> str:
    if loc:
        return error_line(loc, text, sources, tree, {})
    return f"{sources.display_name}: {text}"


def _wrong_resources(tree: dict[str, Any]) -> list[tuple[Location, str]]:
    """Keys of a watch that do not describe an offer: the queue sets them."""
    resources = tree.get("resources")
    if not isinstance(resources, dict):
        return []
    return [(("resources", key), unknown_key(key, RESOURCE_KEYS)) for key in resources if key not in RESOURCE_KEYS]


def _script(text: str, folder: Path) -> str:
    """The text itself if it has several lines or starts with `#!`, else the contents of the file it names."""
    if "\n" in text.strip() or text.startswith("#!"):
        return text
    try:
        with (folder / text).open("rb") as file:
            content = file.read(MAX_SCRIPT_BYTES + 1)
        if len(content) > MAX_SCRIPT_BYTES:
            raise ValueError("expected a script of at most 1 MB; let it download larger files")
        return content.decode()
    except OSError as error:
        raise ValueError(f"expected a script, or the path of its file: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError("expected a script in UTF-8 text") from None


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SettingsError([f"{path}: cannot read the file: {error.strerror}"]) from None
    if len(content) > MAX_FILE_BYTES:
        raise SettingsError([f"{path}: expected a file of at most 4 MB"])
    return content
