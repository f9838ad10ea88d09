"""What gpuwatch can do at each provider according to the settings, and the accounts of the configured keys."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from gpuwatch import providers
from gpuwatch.bootstrap import build_adapters, missing_extra_hint
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.errors import ProviderError, ProviderStateUnknown, UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.launches.launch import Launch, LaunchState
    from gpuwatch.engine.launches.following.provider_account import ProviderAccount
    from gpuwatch.engine.launches.renting.candidate_selection import UnavailableProviders
    from gpuwatch.ports import Launcher, ProviderSection
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.remote.dstack import Dstack
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database

_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def has_credentials(provider: ProviderSection) -> bool:
    """Whether there is a key, or the provider finds credentials by itself."""
    return provider.api_key is not None or providers.info(provider.name).own_credentials is not None


def can_rent(provider: ProviderSection) -> bool:
    """Whether gpuwatch may rent there, as far as is known without a request."""
    return providers.info(provider.name).launches and has_credentials(provider)


def providers_with_key(settings: Settings) -> frozenset[str]:
    """The providers with an account to query."""
    return frozenset(name for name, provider in settings.providers.items() if has_credentials(provider))


def providers_to_follow(settings: Settings, http: HttpClient, names: Iterable[str]) -> frozenset[str]:
    """Of these providers, those whose launches gpuwatch can manage: configured, with a key and a launcher.

    A key alone is not enough: a plugin may fail to load, an extra may be missing, an option may allow only prices.
    """
    names = tuple(names)
    with_key = [
        name for name in sorted(providers_with_key(settings).intersection(names)) if missing_extra_hint(name) is None
    ]
    rentable = {
        name for name, adapter in build_adapters(settings, http, with_key).items() if adapter.launcher is not None
    }
    return frozenset({*rentable, *({settings.orchestrator.tool} & set(names))})


def orchestrator(
    settings: Settings, name: str | None = None, launch_states: Callable[[], Mapping[str, LaunchState]] = dict
) -> Dstack | None:
    """The engine that multi-node jobs are submitted to; None: not configured, or not of this name.

    Args:
        launch_states: the states of active launches, by label.
    """
    from gpuwatch.remote.dstack import Dstack

    config = settings.orchestrator
    if not config.tool or name not in {None, config.tool}:
        return None
    return Dstack(config.program, config.project, os.environ, timeout_s=config.timeout_s, launch_states=launch_states)


def not_rentable(settings: Settings) -> UnavailableProviders:
    """The providers where gpuwatch cannot rent, by reason."""
    from gpuwatch.engine.launches.renting.candidate_selection import UnavailableProviders

    no_launcher = frozenset(name for name in settings.providers if not providers.info(name).launches)
    return UnavailableProviders(
        no_launcher=no_launcher, no_key=frozenset(settings.providers) - providers_with_key(settings) - no_launcher
    )


def is_swept_for(name: str, watch: Watch) -> bool:
    """Whether the history of a provider contains what a watch looks for."""
    if watch.providers is not None and name not in watch.providers:
        return False
    return not watch.wants_no_gpu or providers.info(name).sells_cpu_machines


def is_polled_for(name: str, watch: Watch) -> bool:
    """Whether a provider is polled for a watch. One with list prices only is not, if only live prices count."""
    if not is_swept_for(name, watch):
        return False
    if watch.handover is not None:
        from gpuwatch.domain.watches.orchestrator_task import names_at

        if not names_at(name).get(watch.handover.to):
            return False  # the tool does not rent there
    if watch.action is Action.ALERT and watch.listed:
        return True
    info = providers.info(name)
    return OfferKind.LIVE in info.kinds and (info.runs_onstart or watch.purpose.job is None)


def providers_polled_for(watch: Watch, names: Iterable[str]) -> list[str]:
    """Those of these providers that are polled for a watch."""
    return [name for name in names if is_polled_for(name, watch)]


@cache
def missing_extra(name: str) -> str | None:
    """The gpuwatch extra that a provider requires and that is not installed; None: nothing is missing."""
    extra = providers.info(name).extra
    return None if extra is None or has_extra(extra) else extra


def has_extra(extra: str) -> bool:
    """Whether the packages of an extra of gpuwatch are installed."""
    return all(_is_installed(package) for package in _packages(extra))


def _packages(extra: str) -> list[str]:
    """Packages of an extra, from gpuwatch's own metadata."""
    from gpuwatch.installation import installation  # it takes 40 ms, and few providers have an extra

    distribution = installation().distribution
    lines = (distribution.requires or []) if distribution is not None else []  # None: a copy without installation
    extra_marker = re.compile(rf"""extra\s*==\s*["']{re.escape(extra)}["']""")
    matches = [_PACKAGE.match(line) for line in lines if extra_marker.search(line)]
    return [match[0] for match in matches if match]


def _is_installed(package: str) -> bool:
    from importlib import metadata

    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def resolve_provider(settings: Settings, name: str | None) -> str:
    """The named provider, or the only enabled one."""
    if name is not None and name in settings.providers:
        return name
    if name is not None:
        raise not_enabled_error(settings, name)
    if len(settings.providers) != 1:
        raise UsageError(f"several providers are enabled; add --provider NAME ({_enabled(settings)})")
    return next(iter(settings.providers))


def not_enabled_error(settings: Settings, name: str) -> UsageError:
    """The error for a provider that is not enabled, or that there is not."""
    if name in providers.names():
        return UsageError(
            f"provider {name!r} is not enabled: set enabled = true in [providers.{name}]; enabled: {_enabled(settings)}"
        )
    return UsageError(f"there is no provider {name!r}; enabled: {_enabled(settings)}; all: gpuwatch providers")


def _enabled(settings: Settings) -> str:
    return ", ".join(settings.providers) or "none"


def label_lengths(names: Collection[str]) -> Mapping[str, int]:
    """Provider → the length of a label there."""
    return {name: providers.info(name).label_length for name in names}


# --- the accounts of the configured keys ------------------------------------------------------------------------------


def with_previous_keys(settings: Settings) -> Settings:
    """The providers with a previous key, each with only that key."""
    previous = {
        name: msgspec.structs.replace(provider, api_key=provider.previous_api_key, previous_api_key=None)
        for name, provider in settings.providers.items()
        if provider.previous_api_key is not None
    }
    return msgspec.structs.replace(settings, providers=previous)


def provider_account(
    settings: Settings,
    store: Database,
    launcher: Launcher,
    *,
    accepts_older: bool = False,
    of_provider: list[ProviderAccount] | None = None,
) -> ProviderAccount:
    """The account that a launcher uses. Sends no request.

    Args:
        accepts_older: launches of an older gpuwatch, which stored no account, belong to this one.
        of_provider: the accounts of all keys of the provider, to which this one is added.
    """
    from gpuwatch.engine.launches.following.provider_account import ProviderAccount
    from gpuwatch.storage.setup.account_rows import SqlAccountRepository

    provider_settings = settings.providers.get(launcher.name)
    key = None if provider_settings is None else provider_settings.api_key  # a cluster engine has none
    text = None if key is None else key.reveal()
    return ProviderAccount(
        launcher, SqlAccountRepository(store), text, takes_older=accepts_older, of_provider=of_provider
    )


def identified_account(settings: Settings, store: Database, launcher: Launcher, now: datetime) -> ProviderAccount:
    """The account that a launcher uses, with its id; asks the provider if its key was never seen.

    Raises:
        ProviderStateUnknown: it does not answer.
    """
    account = provider_account(settings, store, launcher)
    try:
        account.identify(now)
    except ProviderError as error:
        raise ProviderStateUnknown(f"cannot determine the account of the key of {launcher.name}: {error}") from error
    return account


def account_faults(
    settings: Settings, store: Database, http: HttpClient, launches: Sequence[Launch], now: datetime
) -> list[str]:
    """Why active launches could not be reached with these settings, one line per provider. May send requests.

    Raises:
        StoreError: the known accounts cannot be read.
    """
    return [
        fault
        for name in sorted({launch.provider for launch in launches})
        for fault in _faults_of_provider(
            settings, store, http, [launch for launch in launches if launch.provider == name], now
        )
    ]


def _faults_of_provider(
    settings: Settings, store: Database, http: HttpClient, launches: Sequence[Launch], now: datetime
) -> Iterator[str]:
    name, launch_id = launches[0].provider, launches[0].launch_id
    if name not in settings.providers or missing_extra_hint(name) is not None:
        return  # unreachable for another reason, which is reported elsewhere
    accounts = [
        provider_account(key_settings, store, launcher)
        for key_settings in (settings, with_previous_keys(settings))
        if name in key_settings.providers
        and (launcher := build_adapters(key_settings, http, [name])[name].launcher) is not None
    ]
    try:
        for account in accounts:
            account.identify(now)
    except ProviderError as error:
        yield (
            f"launch {launch_id} is active at {name}, and it is unknown whether the configured key belongs to its "
            f"account ({error}); try again when {name} answers"
        )
        return
    if unreachable := [
        launch.launch_id for launch in launches if not any(account.owns(launch) for account in accounts)
    ]:
        yield (
            f"the configured key of {name} belongs to another account than launch {', '.join(unreachable)}; "
            "keep the old key until the launch ends, or set it as previous_api_key; if both are of one account, run: "
            f"gpuwatch providers accounts --same --provider {name}"
        )
