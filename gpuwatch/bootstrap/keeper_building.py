"""Builds the keeper from its own parts: it shares no client, rate limit, channel or lock with the rest."""

from __future__ import annotations

import hashlib
import hmac
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from gpuwatch.bootstrap import (
    build_adapters,
    build_channels,
    log_alert,
    new_id,
    open_http,
    real_monotonic,
    real_now,
)
from gpuwatch.engine.setup.failpoint import keeper_after_s
from gpuwatch.errors import ProviderError, UsageError
from gpuwatch.ports import AccountLookup

if TYPE_CHECKING:
    from gpuwatch.domain.launches.instances.obligation import Obligation
    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.engine.launches.guarding.keeper import Keeper
    from gpuwatch.ports import Alert, Launcher
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.ports.market import Hold
    from gpuwatch.ports.store import ObligationReader
    from gpuwatch.settings import Settings
    from gpuwatch.storage.launches.obligation_file import ObligationFile
    from gpuwatch.storage.setup.database import Database

_DELIVERY_S = 30.0  # for which a process that ends waits for a channel


def obligations_at(provider: str, file: ObligationReader, store: Database) -> list[Obligation]:
    """The open obligations of this installation; a folder may hold the databases of several. Raises StoreError."""
    from gpuwatch.storage.setup.account_rows import READ_INSTALLATION

    with store.read() as connection:
        installation = connection.execute(READ_INSTALLATION).first()
    install_id = None if installation is None else installation.install_id
    return [
        obligation
        for obligation in file.open_obligations()
        if obligation.provider == provider and obligation.install in {None, install_id}
    ]


def obligation_file(settings: Settings, now: Callable[[], datetime] = real_now) -> ObligationFile:
    """The keeper's file of this database, for one user of it. Raises StoreError."""
    from gpuwatch.settings.external_values import state_folder
    from gpuwatch.storage.launches.obligation_file import ObligationFile, obligation_path

    path = obligation_path(settings.database_url, lambda: state_folder(os.environ))
    watches = {watch.name: watch for watch in settings.watches}
    return ObligationFile(
        path,
        now,
        lambda launch: key_hash(settings, launch.provider, launch.launch_id),
        lambda launch: _keep_s(launch, watches),
    )


def _keep_s(launch: Launch, watches: Mapping[str, Watch]) -> float:
    """For how long its disk is kept after the end of its run, in seconds; 0: it is destroyed then."""
    from gpuwatch import providers
    from gpuwatch.domain.launches.life.kept_disks import kept_after_end_s
    from gpuwatch.domain.launches.life.launch_events import on_end_keep_s
    from gpuwatch.domain.launches.life.launch_record import governing_watch, has_volume

    keeps = launch.provider in providers.names() and not providers.info(launch.provider).cannot_keep_disk(
        is_spot=launch.spot, has_volume=has_volume(launch)
    )
    return kept_after_end_s(launch, on_end_keep_s(governing_watch(launch, watches)) if keeps else None)


def key_hash(settings: Settings, provider: str, launch_id: str) -> str | None:
    """A hash of the provider's key, salted with the launch id; None: no key is configured."""
    provider_settings = settings.providers.get(provider)
    if provider_settings is None or provider_settings.api_key is None:
        return None
    return hmac.new(launch_id.encode(), provider_settings.api_key.reveal().encode(), hashlib.sha256).hexdigest()[:16]


def build_keeper(
    settings: Settings,
    daemon_fault: Callable[[], str | None],
    is_followed: Callable[[str], bool],
    *,
    is_alone: bool = False,
) -> Keeper:
    """The keeper for these settings. Opens no connection before an instance is overdue.

    Args:
        daemon_fault: one line: why the daemon itself may not be ending instances; None: it works.
        is_followed: whether the daemon follows launches at a provider.
        is_alone: no daemon runs here: it waits for none, and its process ends soon, so that it waits for its alerts.
    """
    from gpuwatch.engine.alerts.channel_failures import FallbackAlerts
    from gpuwatch.engine.launches.guarding.keeper import AFTER_S, ALONE_AFTER_S, WATCH_AFTER_S, Keeper
    from gpuwatch.storage.launches.extension_lookup import ExtensionLookup

    clients: list[HttpClient] = []

    def http() -> HttpClient:
        if not clients:
            clients.append(open_http(settings))
        return clients[0]

    def report(alert: Alert) -> None:
        alerts = FallbackAlerts(build_channels(settings, http()), new_id, log_alert, settings.language)
        for delivery in alerts.send(alert):
            if is_alone:
                delivery.join(_DELIVERY_S)

    file = obligation_file(settings)
    return Keeper(
        file,
        _with_either_key(settings, http),
        report,
        daemon_fault=daemon_fault,
        run=lambda name, action: threading.Thread(target=action, name=name, daemon=True).start(),
        new_id=new_id,
        monotonic=real_monotonic,
        after_s=keeper_after_s(ALONE_AFTER_S if is_alone else AFTER_S),
        watch_after_s=0.0 if is_alone else WATCH_AFTER_S,
        watch_ended=timedelta(seconds=settings.launching.watch_ended_s),
        is_followed=is_followed,
        is_extended=ExtensionLookup(settings.database_url, file, real_now).is_extended,
    )


def _with_either_key(settings: Settings, http: Callable[[], HttpClient]) -> Callable[[Obligation], Launcher]:
    """The launcher for an obligation: with the provider's key, or with its previous one."""
    from gpuwatch.bootstrap.provider_access import with_previous_keys

    previous = with_previous_keys(settings)
    current_key, previous_key = _Launchers(settings, http), _Launchers(previous, http)

    def launcher_for(obligation: Obligation) -> Launcher:
        try:
            return current_key(obligation)
        except (UsageError, ProviderError):
            if obligation.provider not in previous.providers:
                raise
            return previous_key(obligation)

    return launcher_for


class _Launchers:
    """The keeper's own launchers, built on first use."""

    def __init__(self, settings: Settings, http: Callable[[], HttpClient]) -> None:
        self._settings = settings
        self._http = http
        self._built: dict[str, Launcher] = {}

    def __call__(self, obligation: Obligation) -> Launcher:
        """The launcher for it. Raises UsageError (gpuwatch cannot end it), ProviderError."""
        name = obligation.provider
        if name not in self._built:
            self._built[name] = self._build(name)
        launcher = self._built[name]
        if not self._has_account(launcher, obligation):
            raise UsageError(
                f"the key of {name} may belong to another account than this launch; destroy its instance manually, or "
                "restore the old key"
            )
        return launcher

    def _has_account(self, launcher: Launcher, obligation: Obligation) -> bool:
        """Does its key belong to the launch's account? A 404 under another key proves nothing. Raises ProviderError."""
        order_hash, name = obligation.key_hash, obligation.provider
        if order_hash is not None and order_hash == key_hash(self._settings, name, obligation.launch_id):
            return True
        if obligation.account is None:
            return order_hash is None  # an older gpuwatch ordered it, when there was only one key
        return isinstance(launcher, AccountLookup) and launcher.account_id() == obligation.account

    def _build(self, name: str) -> Launcher:
        from gpuwatch.bootstrap.provider_access import has_credentials, orchestrator

        if (engine := orchestrator(self._settings, name)) is not None:
            return engine
        if name not in self._settings.providers or not has_credentials(self._settings.providers[name]):
            raise UsageError(f"{name} is not configured, or has no key")
        adapter = build_adapters(self._settings, self._http(), [name], is_patient=False, holds=_NoHolds())[name]
        if adapter.launcher is None:
            raise UsageError(f"gpuwatch cannot end instances at {name} with these settings")
        return adapter.launcher


class _NoHolds:
    """The keeper ignores holds of searches, and does not read the database for them."""

    def load(self, provider: str) -> Sequence[Hold]:
        return ()

    def save(self, hold: Hold) -> None:
        pass
