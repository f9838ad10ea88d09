"""Builds and connects the daemon's parts; `daemon/tasks.py` defines what runs when."""

from __future__ import annotations

import logging
import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from hmac import digest
from typing import TYPE_CHECKING

from gpuwatch.bootstrap import (
    REAL_TIME,
    TimeSource,
    build_channels,
    build_hooks,
    log_alert,
    new_id,
    open_http,
    real_now,
)
from gpuwatch.bootstrap.essentials import Essentials, build_essentials
from gpuwatch.bootstrap.following import Following
from gpuwatch.bootstrap.job_building import (
    build_cluster_jobs,
    build_job_queue,
    build_job_runner,
    build_series_starter,
    own_machines,
)
from gpuwatch.bootstrap.polling import Polling
from gpuwatch.bootstrap.provider_access import account_faults, not_rentable, providers_to_follow
from gpuwatch.bootstrap.rules import build_routing
from gpuwatch.domain.watches.owner_names import owned_name
from gpuwatch.domain.watches.watch import Action
from gpuwatch.engine.alerts.alert_buttons import AlertButtons, ButtonSigner
from gpuwatch.engine.alerts.alert_delivery import AlertDelivery
from gpuwatch.engine.alerts.channel_failures import FallbackAlerts
from gpuwatch.engine.alerts.launch_alerts import abandoned_alerts
from gpuwatch.engine.launches.renting.launch_commands import LaunchCommands
from gpuwatch.engine.launches.renting.launch_executor import LaunchExecutor
from gpuwatch.engine.setup.leadership import role_of
from gpuwatch.engine.watches.watch_lists import StandbyWatchList, differing_lists
from gpuwatch.errors import StoreError
from gpuwatch.hooks.owner_hooks import LaunchCommandRunner
from gpuwatch.ports.alerts import ButtonChannel
from gpuwatch.redaction import register_secret
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.alerts.pauses import SqlPauseRepository
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.launches.approval_rows import SqlApprovalRepository
from gpuwatch.storage.launches.invoice_rows import SqlInvoiceRepository
from gpuwatch.storage.setup.account_rows import ensure_installation
from gpuwatch.storage.setup.daemon_lease import NO_LEASE
from gpuwatch.storage.watches.watch_identities import SqlWatchIdentities

if TYPE_CHECKING:
    from datetime import datetime

    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.engine.jobs.job_queue import JobQueue
    from gpuwatch.engine.launches.renting.candidate_selection import UnavailableProviders
    from gpuwatch.ports import Channel
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.daemon_lease import Lease
    from gpuwatch.storage.setup.database import Database

log = logging.getLogger(__name__)

_NONCE = "abcdefghijklmnopqrstuvwxyz0123456789"


class Service:
    """The daemon's parts over an open store.

    Args:
        run_now: runs a periodic task, by name, before its next scheduled time.
        lease: whether this process leads. A standby delivers, shows and keeps; it polls, follows and rents nothing.
    """

    def __init__(  # noqa: PLR0913 every argument has a caller
        self,
        settings: Settings,
        store: Database,
        http: HttpClient,
        extra_channels: Mapping[str, Channel] | None = None,
        run_now: Callable[[str], None] = lambda name: None,
        time_source: TimeSource = REAL_TIME,
        *,
        lease: Lease = NO_LEASE,
    ) -> None:
        base = build_essentials(settings, store, http, run_now, time_source, lease)
        self.lease = lease
        self.settings, self.store, self.time_source, self._http = settings, store, time_source, http
        self.stopping, self.slots, self.adapters = base.stopping, base.slots, base.adapters
        self._ending = base.ending
        self.launch_repository, self.launch_alerts = base.launches, base.launch_alerts
        self.history = SqlHistoryRecorder(store)
        self.invoices = SqlInvoiceRepository(store)
        self.watch_list = StandbyWatchList(
            SqlWatchIdentities(store), settings.watches, socket.gethostname(), role_of(settings.owner)
        )
        self.pauses = SqlPauseRepository(store)
        named = {**build_channels(settings, http), **(extra_channels or {})}
        self.channels = {owned_name(settings.owner, name): channel for name, channel in named.items()}
        attach_buttons(store, self.channels.values(), not_rentable(settings))
        routing = build_routing(settings, self.channels)
        self.deliverer = AlertDelivery(
            Outbox(store),
            self.channels,
            routing=routing,
            log_alert=log_alert,
            public_url=settings.web.public_url,
            language=settings.language,
        )
        self.fallback_alerts = FallbackAlerts(self.channels, new_id, log_alert, settings.language)
        self.hooks = build_hooks(settings, store, http, base.ending, time_source)
        self.series_starter = build_series_starter(base)
        self.job_queue = build_job_queue(base)
        self.rents = partial(_may_rent, settings, self.job_queue)
        self.following = Following(base, self.hooks.may_destroy, self.rents)
        self.executor = LaunchExecutor(
            base.launches, self.following.contexts(), base.launch_alerts, time_source.now, settings.budget, base.slots
        )
        self.commands = _build_commands(base)
        self.polling = Polling(base, self.history, self.following, self.executor, self.commands, self.job_queue)
        self.job_runner = build_job_runner(
            base, self.following.launchers, self.polling.limits.of, self.polling.replacements
        )
        self.cluster_jobs = build_cluster_jobs(
            base, self.following.launchers, self.following.reconcilers, self.following.accounts
        )

        self.own_machines = own_machines(
            settings, [machine.host for machine in settings.own_machines.machines], settings.own_machines.ssh_key
        )

    def unmanaged(self, settings: Settings) -> list[Launch]:
        """Active launches that these settings could not manage: the provider or its key is gone."""
        alive = self.launch_repository.own_alive()
        managed = providers_to_follow(settings, self._http, {launch.provider for launch in alive})
        return [launch for launch in alive if launch.provider not in managed and not launch.is_by_command]

    def account_faults(self, settings: Settings) -> list[str]:
        """Why these settings could not reach launches that are reachable now: their keys belong to other accounts."""
        reachable = [one for one in self.launch_repository.own_alive() if self.following.reaches(one)]
        return account_faults(settings, self.store, self._http, reachable, self.time_source.now())

    def close(self) -> bool:
        """Give work in progress a short time to reach a recorded state; return whether no message is being sent.

        The owner's commands and hooks go on if only the role of this host changed.
        """
        self.stopping.set()
        if not self.stopping.is_other_term:
            self._ending.set()
        self.polling.gathering.end()
        self.job_runner.close()
        self.executor.shutdown()
        self.commands.close(within_s=0.0 if self.stopping.is_other_term else 3.0)
        hooks_ended = self.hooks.close(within_s=1.5)
        with suppress(StoreError):  # then the next start logs it
            self.deliverer.route_new(self.time_source.now())
        return self.deliverer.close(timeout_s=1.0) and hooks_ended

    def wait_for_messages(self) -> None:
        """Wait until the last alert and hook that were being sent when it closed are over, and recorded."""
        while not (self.deliverer.close(timeout_s=60.0) and self.hooks.close(within_s=60.0)):
            pass


def _may_rent(settings: Settings, job_queue: JobQueue) -> bool:
    """Whether anything may be rented: jobs may be queued at any time."""
    watches = (*settings.watches, *job_queue.watches)
    return not settings.dry_run and any(watch.action is not Action.ALERT for watch in watches)


@contextmanager
def build_service(
    settings: Settings,
    store: Database,
    extra_channels: Mapping[str, Channel] | None = None,
    run_now: Callable[[str], None] = lambda name: None,
    time_source: TimeSource = REAL_TIME,
    *,
    lease: Lease = NO_LEASE,
) -> Iterator[Service]:
    """The service over an open, upgraded database; closed at the end."""
    with ExitStack() as opened:
        http = open_http(settings)
        opened.callback(http.close)
        if lease.leads and not settings.rescue:  # a watch missing from rescued settings may still exist
            apply_watch_changes(settings, store, time_source.now())
        service = Service(settings, store, http, extra_channels, run_now, time_source, lease=lease)
        if lease.leads:
            service.polling.quotes.start()
        try:
            yield service
        finally:
            if not service.close():
                _close_later(service, opened.pop_all())


def _close_later(service: Service, connections: ExitStack) -> None:
    """Keep the connections while a slow channel may still answer: after a reload this process continues.

    Without its answer, an alert that arrived would be sent again.
    """

    def close() -> None:
        service.wait_for_messages()
        connections.close()

    threading.Thread(target=close, name="last messages", daemon=True).start()


def _build_commands(base: Essentials) -> LaunchCommands:
    """Return the part that runs the commands of watches; setting `base.ending` ends running ones."""
    from gpuwatch.storage.setup.database import sqlite_path

    return LaunchCommands(
        base.launches,
        base.launch_alerts,
        LaunchCommandRunner(base.ending),
        base.slots,
        clock=base.time_source.now,
        monotonic=base.time_source.monotonic,
        is_alone=sqlite_path(base.settings.database_url) is not None,
        renting_fault=base.settings.rescue,
        generation=lambda: base.store.generation,
    )


def apply_watch_changes(settings: Settings, store: Database, now: datetime) -> None:
    """Take over renames, and report launches whose watch is gone. Raises StoreError."""
    identities, host = SqlWatchIdentities(store), None if store.is_sqlite else socket.gethostname()
    applied = identities.apply(settings.watches, now, host=host, role=role_of(settings.owner))
    for old, new in applied.changes.renamed.items():
        log.info("watch %s is now %s: its launches, limits and history continue", old, new)
    alerts = list(abandoned_alerts(applied.abandoned, applied.changes.blocked, new_id, now))
    alerts += differing_lists(applied.elsewhere, host or "", now, is_leader=True)
    for alert in alerts:
        log.warning("%s; %s", alert.alert.headline, "; ".join(alert.alert.can_do))
    identities.report(alerts)


# --- buttons of alerts ------------------------------------------------------------------------------------------------


def button_signer(channel: ButtonChannel, store: Database) -> ButtonSigner:
    """A signer with secrets of this installation only: the channel's secret, and the salt in the database.

    Raises:
        StoreError: the installation cannot be read.
    """
    return ButtonSigner(
        _key(channel, store, "buttons"), channel.address, lambda: "".join(secrets.choice(_NONCE) for _ in range(6))
    )


def webhook_secret(channel: ButtonChannel, store: Database) -> str:
    """The secret that a channel's service sends with each request to this installation. Raises StoreError."""
    secret = _key(channel, store, "webhook").hex()
    register_secret(secret)
    return secret


def attach_buttons(store: Database, channels: Iterable[Channel], unable: UnavailableProviders) -> None:
    """Add buttons to alerts on channels whose users may press them. Raises StoreError."""
    for channel in channels:
        if isinstance(channel, ButtonChannel) and channel.users:
            channel.buttons = AlertButtons(
                button_signer(channel, store),
                SqlApprovalRepository(store).get,
                real_now,
                lambda provider: unable.why_not(provider) is None,
            )


def _key(channel: ButtonChannel, store: Database, purpose: str) -> bytes:
    with store.write() as connection:
        installation = ensure_installation(connection, real_now())
    message = f"gpuwatch {purpose} {installation.install_id} {installation.key_salt}"
    return digest(channel.button_secret.encode(), message.encode(), "sha256")
