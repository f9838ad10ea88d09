"""The accounts at providers: those of the keys in the settings, and the launches under each account."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from gpuwatch.app.launches.launches import launcher_of
from gpuwatch.app.owner_audit import audit_event
from gpuwatch.bootstrap import http_client, open_store, open_store_read_only, real_now
from gpuwatch.bootstrap.provider_access import has_credentials, identified_account, resolve_provider
from gpuwatch.domain.market.json_view import JsonView, Moment
from gpuwatch.errors import UsageError
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.account_rows import KnownAccount, SqlAccountRepository, is_key_hash, root_of

if TYPE_CHECKING:
    from datetime import datetime

    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.settings import Settings


class AccountStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One account, or the launches with an unknown account.

    Attributes:
        account: None: unknown.
        is_current: the key in the settings belongs to it; None: unknown without a query to the provider.
        known: None: no key of the account was ever used, or there is none.
        launches: its active launches.
    """

    provider: str
    account: str | None
    is_current: bool | None
    known: KnownAccount | None
    launches: tuple[Launch, ...]


def accounts(settings: Settings) -> list[AccountStatus]:
    """Every account that a key was used for, and its active launches. Sends no request. Raises StoreError."""
    with open_store_read_only(settings) as store:
        repository = SqlAccountRepository(store)
        known_accounts = repository.all()
        alive = SqlLaunchRepository(store).alive()
        current = {
            name: repository.account_of_key(name, options.api_key.reveal()) if options.api_key is not None else None
            for name, options in settings.providers.items()
            if has_credentials(options)
        }
    statuses = []
    for provider in dict.fromkeys([*(item.provider for item in known_accounts), *(item.provider for item in alive)]):
        accounts_of_provider = [account for account in known_accounts if account.provider == provider]
        launches = [launch for launch in alive if launch.provider == provider]
        statuses += _at_one_provider(
            provider, accounts_of_provider, launches, current.get(provider), provider in current
        )
    return statuses


def _at_one_provider(
    provider: str, known_accounts: Sequence[KnownAccount], alive: Sequence[Launch], current: str | None, has_key: bool
) -> list[AccountStatus]:
    by_id = {account.account_id: account for account in known_accounts}
    roots = {launch.launch_id: launch.account_id and root_of(by_id, launch.account_id) for launch in alive}
    account_ids: list[str | None] = [
        account.account_id for account in known_accounts if root_of(by_id, account.account_id) == account.account_id
    ]
    return [
        AccountStatus(
            provider=provider,
            account=account,
            is_current=False if account is None or not has_key else None if current is None else account == current,
            known=by_id.get(account) if account is not None else None,
            launches=tuple(launch for launch in alive if roots[launch.launch_id] == account),
        )
        for account in dict.fromkeys([*account_ids, *roots.values()])
    ]


def link_accounts(settings: Settings, provider: str | None, *, actor: str) -> list[Launch]:
    """Confirm, for the owner, that the key in the settings belongs to the account of the active launches.

    Returns:
        The launches that it can now reach.

    Raises:
        UsageError: there is no key, or the provider reports two different accounts.
        ProviderStateUnknown: the account of the key is not known yet, and the provider does not answer.
    """
    name = resolve_provider(settings, provider)
    with open_store(settings) as store, http_client(settings) as http:
        launcher = launcher_of(settings, http, name)
        if launcher is None:
            raise UsageError(f"{name} has no key in the settings, or gpuwatch cannot rent there")
        now = real_now()
        account = identified_account(settings, store, launcher, now)
        current, repository = account.identify(now), SqlAccountRepository(store)
        joined = [launch for launch in SqlLaunchRepository(store).alive(name) if not account.owns(launch)]
        for launch in joined:
            if launch.account_id is None:
                repository.set_launch_account(launch.launch_id, current)
            else:
                _join(repository, name, launch.account_id, current, now)
        if joined:
            action = f"key of {name} confirmed as that of {len(joined)} active launches"
            Outbox(store).enqueue(audit_event(actor, action, subject=name))
        return joined


def _join(repository: SqlAccountRepository, provider: str, former: str, current: str, now: datetime) -> None:
    by_id = {account.account_id: account for account in repository.all(provider)}
    former, current = root_of(by_id, former), root_of(by_id, current)
    if former == current:
        return
    if not is_key_hash(former) and not is_key_hash(current):
        raise UsageError(f"{provider} reports two different accounts, {former} and {current}")
    hashed, full_id = (former, current) if is_key_hash(former) else (current, former)
    repository.link_accounts(provider, hashed, full_id, now)


class AccountView(JsonView, frozen=True, kw_only=True):
    """One account of `gpuwatch providers accounts`. No key is shown, and none can be guessed from its hash."""

    provider: str
    account: str | None
    known_by: str | None = None
    current: Annotated[bool | None, Meta(description="Whether the key in the settings belongs to it.")]
    first_seen: Moment | None = None
    last_seen: Moment | None = None
    launches: list[str]


def account_view(status: AccountStatus) -> AccountView:
    """An account as other programs see it."""
    launches = [launch.launch_id for launch in status.launches]
    return AccountView.of(status, status.known, current=status.is_current, launches=launches)
