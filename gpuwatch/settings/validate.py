"""Settings judged anew: by the schema, then by what no single key can tell. This is the slow way, with pydantic."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from msgspec.structs import replace
from pydantic import ValidationError

from gpuwatch import notifiers, providers
from gpuwatch.domain.market.pricing import Commission, CommissionMode
from gpuwatch.domain.watches.schema import SEEN, gpu_names
from gpuwatch.ports import AppriseSettings, ChannelSettings, EmailSettings, ProviderSettings, TelegramSettings
from gpuwatch.settings.errors import (
    InvalidSettings,
    Location,
    unknown_keys,
    validation_errors,
)
from gpuwatch.settings.interpolation import ResolvedSettings
from gpuwatch.settings.launch_rules import launch_errors, missing_limits
from gpuwatch.settings.model import Channels, Settings
from gpuwatch.settings.option_values import read_options
from gpuwatch.settings.price_rules import price_errors
from gpuwatch.settings.schema import (
    EmailTable,
    NotifyTable,
    ProviderTable,
    Root,
)
from gpuwatch.settings.sources import ExternalValue, KeyPath, Sources


def validate(
    resolved: ResolvedSettings,
    sources: Sources,
    origins: Mapping[KeyPath, ExternalValue],
    known_spellings: Collection[str],
) -> Settings:
    """The settings that merged tables stand for, their references resolved.

    Raises:
        Misjudged: one line per fault.
    """
    token = SEEN.set(known_spellings)
    try:
        root = parse_root(resolved, sources, origins)
        found = list(_cross_checks(root, notify_plugins(resolved.tree)))
        if found:
            raise InvalidSettings(found, sources, resolved.tree, origins)
        return _settings(root, resolved, sources)
    finally:
        SEEN.reset(token)


def parse_root(resolved: ResolvedSettings, sources: Sources, origins: Mapping[KeyPath, ExternalValue]) -> Root:
    """The tables, each key right by itself. Raises Misjudged."""
    tree = resolved.tree
    found = [*unknown_keys(tree), *_unknown_providers(tree), *_option_errors_given(tree), *resolved.faults]
    ours = {key: value for key, value in tree.items() if key in Root.model_fields}
    if isinstance(ours.get("notify"), dict):  # what plugins add is judged by what they declare
        ours["notify"] = {key: value for key, value in ours["notify"].items() if key not in notifiers.plugins()}
    try:  # unknown keys stay outside: names such as `_env_file` would steer pydantic-settings itself
        root = Root(**ours)
    except ValidationError as error:
        found += validation_errors(error)
    if found:
        raise InvalidSettings(found, sources, tree, origins)
    return root


def enabled_providers(root: Root) -> dict[str, ProviderTable]:
    """The providers that are asked: named in the settings, with a key, or on by default; not switched off."""
    found = {}
    for name in providers.names():
        table = root.providers.get(name)
        info = providers.info(name)
        is_on = info.on_by_default or (table is not None and not info.only_if_enabled)
        if table is not None and table.enabled is not None:
            is_on = table.enabled
        if is_on:
            found[name] = table or ProviderTable()
    return found


def provider_settings(name: str, table: ProviderTable) -> ProviderSettings:
    """One provider, with its own defaults; its key is joined later."""
    info = providers.info(name)
    commission = info.commission
    if table.commission is not None:
        commission = Commission(format(table.commission.rate, "f"), CommissionMode(table.commission.mode))
    least_s = info.billing.minimum_s if table.min_billing is None else table.min_billing
    commission = replace(commission, min_billing_s=least_s, billing_step_s=info.billing.step_s)
    return ProviderSettings(
        name=name,
        base_url=table.base_url or info.base_url,
        commission=commission,
        poll_every_s=info.poll_every_s if table.poll_every is None else table.poll_every,
        sweep_every_s=None if table.sweep_every == "auto" else float(table.sweep_every),
        search_interval_s=info.search_interval_s if table.search_interval is None else table.search_interval,
        rows_per_day=info.rows_per_day if table.rows_per_day is None else table.rows_per_day,
        timeout_s=table.timeout,
        options=read_options(info, table.options)[0],
    )


def _settings(root: Root, resolved: ResolvedSettings, sources: Sources) -> Settings:
    return Settings(
        timezone=root.timezone,
        database_url=root.database_url.get_secret_value() if root.database_url else "",
        dry_run=root.dry_run,
        budget=root.budget.value(),
        providers={name: provider_settings(name, table) for name, table in enabled_providers(root).items()},
        record_gpus=gpu_names(root.record.gpu),
        channels=_channels(root.notify, notify_plugins(resolved.tree)),
        watches=tuple(watch.value() for watch in root.watch),
        source_file=str(sources.file) if sources.file else None,
    )


def notify_plugins(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The `[notify.NAME]` that are set of channels that plugins add, as they are given."""
    given = tree.get("notify")
    found = given if isinstance(given, dict) else {}
    return {name: found[name] for name in notifiers.plugins() if found.get(name) not in (None, {})}


def _channels(notify: NotifyTable, added: Mapping[str, Any]) -> Channels:
    telegram, email, apprise = notify.telegram, notify.email, notify.apprise
    return Channels(
        telegram=TelegramSettings(bot_token="", chat_id=telegram.chat_id, base_url=telegram.base_url)
        if telegram
        else None,
        email=_email(email) if email else None,
        apprise=AppriseSettings(urls=()) if apprise else None,
        plugins={
            name: ChannelSettings(name=name, options=read_options(notifiers.info(name), table)[0])
            for name, table in added.items()
        },
    )


def _email(table: EmailTable) -> EmailSettings:
    return EmailSettings(
        host=table.host,
        port=table.actual_port,
        security=table.security,
        sender=table.sender,
        recipients=table.recipients,
        username=table.username,
    )


def _unknown_providers(tree: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
    given = tree.get("providers")
    known = providers.names()
    for name in given if isinstance(given, dict) else ():
        if name not in known:
            near = get_close_matches(str(name).lower(), known, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}"
            yield ("providers", name), f"this gpuwatch knows no such provider; {hint}"


def _option_errors_given(tree: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
    """Options as given, told beside the other faults; what is missing shows only once the tables are read."""
    tables = tree.get("providers")
    for name, table in tables.items() if isinstance(tables, dict) else ():
        given = table.get("options") if isinstance(table, dict) else None
        if name in providers.names() and isinstance(given, dict):
            faults = read_options(providers.info(name), given)[1]
            yield from ((("providers", name, "options", key), text) for key, text in faults if key in given)


def _option_errors(root: Root, asked: Collection[str], added: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
    """Of what providers and plugins declare; what is needed is needed only where it is asked."""
    for name in dict.fromkeys([*root.providers, *asked]):
        info, table = providers.info(name), root.providers.get(name) or ProviderTable()
        needed = {spec.name for spec in info.options if spec.needed and name not in asked}
        for key, text in read_options(info, table.options)[1]:
            if key not in needed or key in table.options:
                yield ("providers", name, "options", key), text
    for name, given in added.items():
        if not isinstance(given, dict):
            yield ("notify", name), "expected a table"
            continue
        yield from ((("notify", name, key), text) for key, text in read_options(notifiers.info(name), given)[1])


def _cross_checks(root: Root, added: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
    asked = enabled_providers(root)
    yield from _option_errors(root, asked, added)
    channels = [name for name in NotifyTable.model_fields if getattr(root.notify, name) is not None] + list(added)
    names: set[str] = set()
    for index, watch in enumerate(root.watch):
        here: Location = ("watch", index)
        if watch.name in names:
            yield (*here, "name"), "expected a name of its own; another watch has it"
        names.add(watch.name)
        known = {"providers": (watch.providers, list(asked), providers.names())}
        known["notify"] = (watch.notify, channels, (*NotifyTable.model_fields, *notifiers.plugins()))
        for section, (named, have, there_are) in known.items():
            yield from (((*here, section), text) for text in _unknown_names(named, have, there_are, section))
        yield from ((here + key, text) for key, text in (*price_errors(watch), *launch_errors(watch)))
        if not root.dry_run:
            yield from ((here + key, text) for key, text in missing_limits(watch, root.budget))


def _unknown_names(
    named: tuple[str, ...] | None, have: list[str], there_are: tuple[str, ...], section: str
) -> Iterator[str]:
    """Names of a watch that are not set up: some can be, the others are misspelt."""
    for name in named or ():
        if name in have:
            continue
        if name in there_are:
            yield f"{name!r} is not set up; expected one of: {', '.join(have) or 'none'} (or add [{section}.{name}])"
        else:
            near = get_close_matches(name.lower(), there_are, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else f"expected one of: {', '.join(there_are)}"
            yield f"there is no {name!r}; {hint}"
