"""The accounts of the configured keys, and what they mean for active launches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.bootstrap import build_adapters, missing_extra_hint
from gpuwatch.engine.launches.following.provider_account import ProviderAccount
from gpuwatch.errors import ProviderError, ProviderStateUnknown
from gpuwatch.storage.setup.account_rows import SqlAccountRepository

if TYPE_CHECKING:
    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.ports import Launcher
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database


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
            f"gpuwatch accounts --same --provider {name}"
        )
