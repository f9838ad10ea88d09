"""Which launches a key may judge. Another account's launches are in no list of this one, and its 404 proves nothing.

The account is queried once in the life of a key. Until it is known, no launch is judged or ended with that key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.domain.alerts.launch_texts import OF_NO_KNOWN_ACCOUNT, OTHER_ACCOUNT
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.engine.alerts.alert_reporter import AlertReporter
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.ports import AccountLookup, Launcher

if TYPE_CHECKING:
    from gpuwatch.storage.setup.account_rows import SqlAccountRepository

log = logging.getLogger(__name__)


class ProviderAccount:
    """The account of one key at one provider.

    Args:
        key: None: the provider finds credentials by itself, and must return their account.
        takes_older: launches of an older gpuwatch, which stored no account, belong to this one, as the owner confirmed.
        of_provider: the accounts of all keys of the provider, to which this one is added; None: there is one key.
    """

    def __init__(
        self,
        launcher: Launcher,
        accounts: SqlAccountRepository,
        key: str | None,
        *,
        takes_older: bool = False,
        of_provider: list[ProviderAccount] | None = None,
    ) -> None:
        self._launcher = launcher
        self._accounts = accounts
        self._key = key
        self._takes_older = takes_older
        self._account_id: str | None = None  # None: unknown so far
        self._of_provider = [] if of_provider is None else of_provider
        self._of_provider.append(self)

    @property
    def of_other_keys(self) -> Sequence[ProviderAccount]:
        """The accounts of the provider's other keys."""
        return [account for account in self._of_provider if account is not self]

    @property
    def account_id(self) -> str | None:
        """The account; None: unknown so far."""
        return self._account_id

    def is_same(self, account_id: str | None) -> bool:
        """Whether both ids mean this account. Raises StoreError."""
        if account_id is None or self._account_id is None:
            return False
        return account_id == self._account_id or self._same(account_id) == self._same(self._account_id)

    def identify(self, now: datetime) -> str:
        """Return the account's id; queries the provider if the key is new. Raises ProviderError, StoreError."""
        if self._account_id is None:
            self._account_id = self._look_up(now)
        return self._account_id

    def _look_up(self, now: datetime) -> str:
        name = self._launcher.name
        of_key = self._accounts.ensure_key_account(name, self._key or "", now)
        known = self._accounts.canonical_account(name, of_key) if self._key is not None else None
        asked = self._launcher if isinstance(self._launcher, AccountLookup) else None
        if known is not None and (asked is None or known != of_key):
            return known
        named = asked.account_id() if asked is not None else None
        if named is not None and self._key is None:  # such credentials may later belong to another account
            return self._accounts.record(name, None, named, now)
        return self._accounts.record(name, of_key, named, now)

    def owns(self, launch: Launch) -> bool:
        """Whether the launch is known to belong to this account. Raises StoreError."""
        if self.account_id is None:
            return False
        if launch.account_id is None:
            return self._takes_older
        return self.is_same(launch.account_id)

    def is_elsewhere(self, launch: Launch) -> bool:
        """Whether the launch is known to belong to another account. Raises StoreError."""
        return launch.account_id is not None and self.account_id is not None and not self.owns(launch)

    def is_reached(self, launch: Launch) -> bool:
        """Whether one of the provider's keys can manage it; assumed while the account of a key is unknown."""
        return self.owns(launch) or any(
            account.account_id is None or account.owns(launch) for account in self.of_other_keys
        )

    def _same(self, account_id: str) -> str:
        """Return the canonical id; read each time, because the owner may have confirmed that two accounts are one."""
        return self._accounts.canonical_account(self._launcher.name, account_id) or account_id

    def own(self, launches: Sequence[Launch]) -> list[Launch]:
        """Return the launches of this account. Raises StoreError."""
        return [launch for launch in launches if self.owns(launch)]

    def claimed(self, launches: Sequence[Launch], is_listed: Callable[[Launch], bool]) -> list[Launch]:
        """Return this account's launches. Those of an older gpuwatch join once its list shows one of them.

        Raises:
            StoreError: the change could not be stored.
        """
        account_id = self.account_id
        older = [launch for launch in launches if launch.account_id is None]
        shown = [launch for launch in older if is_listed(launch)]
        if account_id is None or not shown:
            return self.own(launches)
        joined = {launch.launch_id for launch in (shown if self.of_other_keys else older)}
        for launch_id in joined:
            self._accounts.set_launch_account(launch_id, account_id)
        return self.own(
            [
                msgspec.structs.replace(launch, account_id=account_id) if launch.launch_id in joined else launch
                for launch in launches
            ]
        )


class OtherAccounts:
    """Active launches at a provider that its key cannot manage: reported daily; they block renting there."""

    def __init__(self, reporter: AlertReporter, launch_alerts: LaunchAlerts, provider: str) -> None:
        self._reporter = reporter
        self._launch_alerts = launch_alerts
        self._provider = provider
        self._launches: Sequence[Launch] = ()

    def update(self, unreached: Sequence[Launch], now: datetime) -> None:
        """Store and report active launches that no key can manage."""
        self._launches = unreached
        name = self._provider
        for launch in unreached:
            spec = OF_NO_KNOWN_ACCOUNT if launch.account_id is None else OTHER_ACCOUNT
            if self._reporter.report(self._launch_alerts.of(spec, launch, now, account=launch.account_id)):
                log.error(
                    "launch %s does not belong to the account of the configured key of %s", launch.launch_id, name
                )

    def reason(self) -> str | None:
        """Return why nothing can be rented at this provider, in one line, or None."""
        return other_account_reason(self._launches)


def other_account_reason(launches: Sequence[Launch]) -> str | None:
    """Return why these active launches of another account block renting; None: there are none."""
    if not launches:
        return None
    first = launches[0]
    return (
        f"launch {first.launch_id} is active at {first.provider} under another account than the configured key; "
        "see: gpuwatch providers accounts"
    )
