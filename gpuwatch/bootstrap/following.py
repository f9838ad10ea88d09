"""Builds the parts that follow rented instances, for each provider where gpuwatch can rent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from gpuwatch.bootstrap import build_adapters, new_id
from gpuwatch.bootstrap.job_building import job_shells
from gpuwatch.bootstrap.keeper_building import obligations_at
from gpuwatch.bootstrap.provider_access import (
    has_credentials,
    is_polled_for,
    label_lengths,
    orchestrator,
    provider_account,
    with_previous_keys,
)
from gpuwatch.domain.jobs.cluster_task import TOOL
from gpuwatch.domain.launches.life.launch_record import has_volume
from gpuwatch.engine.launches.following.launch_reconciler import LaunchReconciler
from gpuwatch.engine.launches.guarding.guard import ProviderGuard
from gpuwatch.engine.launches.guarding.instance_lists import UnknownStatuses
from gpuwatch.engine.launches.renting.candidate_loop import ProviderContext
from gpuwatch.engine.launches.renting.prerequisite_gate import PrerequisiteGate
from gpuwatch.engine.launches.renting.rehearsal import credentials_of, prerequisites_of, rehearsed_offers
from gpuwatch.engine.launches.renting.requoter import BalanceCache
from gpuwatch.engine.setup.failpoint import pace
from gpuwatch.errors import KeyRejected
from gpuwatch.ports.prerequisites import Prerequisite, PrerequisiteProbe
from gpuwatch.remote.ssh_probe import SshProbe
from gpuwatch.storage.launches.invoice_rows import SqlUtilisationRepository
from gpuwatch.storage.launches.renting_blocks import SqlSkippedScopes

if TYPE_CHECKING:
    from gpuwatch.bootstrap.essentials import Essentials
    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.engine.launches.following.provider_account import ProviderAccount
    from gpuwatch.ports import Launcher


class Following:
    """Launchers, accounts, balances, guards, reconcilers and prerequisite gates, by provider.

    Args:
        may_destroy: called before a destroy; False: not yet.
        may_rent: whether anything can be rented at this moment.
    """

    def __init__(
        self,
        base: Essentials,
        may_destroy: Callable[[Launch, datetime], bool],
        may_rent: Callable[[], bool],
    ) -> None:
        self._base = base
        self._may_destroy = may_destroy
        self._may_rent = may_rent
        settings, time_source = base.settings, base.time_source
        self.launchers = self._build_launchers()
        self._accounts_of: dict[str, list[ProviderAccount]] = {name: [] for name in self.launchers}  # of all keys
        self.accounts = {
            name: provider_account(settings, base.store, launcher, of_provider=self._accounts_of[name])
            for name, launcher in self.launchers.items()
        }
        self.balances = {
            name: BalanceCache(launcher, time_source.monotonic) for name, launcher in self.launchers.items()
        }
        self.guards = {name: self._guard(launcher) for name, launcher in self.launchers.items()}
        self.reconcilers = {
            name: self._reconciler(launcher, self.accounts[name], self.guards[name])
            for name, launcher in self.launchers.items()
        }
        self._follow_previous_keys()
        self.gates = _build_gates(base, self.launchers)

    def contexts(self) -> dict[str, ProviderContext]:
        """Return what a launch needs at its provider; a cluster engine rents by itself."""
        return {
            name: self._context(name, launcher)
            for name, launcher in self.launchers.items()
            if name in self._base.adapters
        }

    def known_accounts(self) -> Mapping[str, str]:
        """The accounts known so far, by provider."""
        return {name: account.account_id for name, account in self.accounts.items() if account.account_id is not None}

    def reaches(self, launch: Launch) -> bool:
        """Whether a configured key is known to reach it."""
        return any(account.owns(launch) for account in self._accounts_of.get(launch.provider, ()))

    def _build_launchers(self) -> dict[str, Launcher]:
        """Of the providers where gpuwatch can rent: with a launcher and credentials; and of the cluster engine."""
        base = self._base
        launchers: dict[str, Launcher] = {
            name: adapter.launcher
            for name, adapter in base.adapters.items()
            if adapter.launcher is not None and has_credentials(base.settings.providers[name])
        }
        engine = orchestrator(
            base.settings, launch_states=lambda: {one.label: one.state for one in base.launches.alive(TOOL)}
        )
        return launchers if engine is None else {**launchers, engine.name: engine}

    def _follow_previous_keys(self) -> None:
        """Follow and end launches under a provider's previous key; nothing is rented with it."""
        base = self._base
        previous = with_previous_keys(base.settings)
        adapters = build_adapters(previous, base.http, stop=base.stopping, time_source=base.time_source)
        for name, adapter in adapters.items():
            if adapter.launcher is None or name not in self.accounts:
                continue
            account = provider_account(previous, base.store, adapter.launcher, of_provider=self._accounts_of[name])
            launcher_name = f"{name} (previous key)"
            self.guards[launcher_name] = self._guard(adapter.launcher)
            self.reconcilers[launcher_name] = self._reconciler(adapter.launcher, account, self.guards[launcher_name])

    def _context(self, name: str, launcher: Launcher) -> ProviderContext:
        base, account = self._base, self.accounts[name]
        return ProviderContext(
            launcher,
            base.adapters[name].market,
            base.settings.providers[name].commission,
            self.balances[name],
            self.reconcilers[name],
            base.obligations,
            renting_fault=base.settings.rescue,
            label_length=label_lengths([name])[name],
            account_id=lambda: account.account_id,
            scopes=SqlSkippedScopes(base.store),
            gate=self.gates.get(name),
            public_key=job_shells(base.settings).public_key,
        )

    def _reconciler(self, launcher: Launcher, account: ProviderAccount, guard: ProviderGuard) -> LaunchReconciler:
        base = self._base
        return LaunchReconciler(
            base.launches,
            launcher,
            base.launch_alerts,
            watches=base.watches,
            in_flight=base.slots.in_flight,
            monotonic=base.time_source.monotonic,
            market=base.adapters[launcher.name].market if launcher.name in base.adapters else None,
            freed=base.slots.launch_over,
            guard=guard,
            may_destroy=self._may_destroy,
            watch_ended=timedelta(seconds=base.settings.launching.watch_ended_s),
            owner=account,
            rents=self._may_rent,
            obligations=partial(obligations_at, launcher.name, base.obligations, base.store),
            on_listed=UnknownStatuses(launcher.name, base.uow_factory, new_id).check,
            close_obligation=base.obligations.close,
            generation=lambda: base.store.generation,
            pace=pace(),
            keeps_disk=partial(self._keeps_disk, launcher.name),
        )

    def _keeps_disk(self, provider: str, launch: Launch) -> bool:
        """Whether a launch can be stopped there with its disk kept, if its launcher is a `DiskKeeper`."""
        found = self._base.adapters.get(provider)
        if found is None:
            return True
        return not found.info.cannot_keep_disk(is_spot=launch.spot, has_volume=has_volume(launch))

    def _guard(self, launcher: Launcher) -> ProviderGuard:
        base = self._base
        return ProviderGuard(
            base.launches,
            SqlUtilisationRepository(base.store),
            launcher,
            SshProbe(),
            base.launch_alerts,
            watches=base.watches,
            budget=base.settings.budget,
            zone=ZoneInfo(base.settings.timezone),
            latest_matches=base.observations.latest_matches,
        )


def _build_gates(base: Essentials, launchers: Mapping[str, Launcher]) -> dict[str, PrerequisiteGate]:
    """By provider that can be probed. In dry run, in rescue mode, or without watches that rent, nothing is probed."""
    settings = base.settings
    if settings.dry_run or settings.rescue:
        return {}
    renting = [watch for watch in settings.watches if watch.rents_itself]

    def probe_of(name: str) -> Callable[[], tuple[Sequence[Prerequisite], Sequence[str]]]:
        adapter, launcher = base.adapters[name], launchers[name]
        commission = settings.providers[name].commission
        watches = [watch for watch in renting if is_polled_for(name, watch)]

        def probe() -> tuple[Sequence[Prerequisite], Sequence[str]]:
            try:
                rehearsals = [
                    rehearsed_offers(watch, adapter.market, commission, adapter.info, base.time_source.now)
                    for watch in watches
                ]
            except KeyRejected:  # for the offers; if listing instances fails as well, nothing is rented there
                credentials = credentials_of(launcher, adapter.info)
                if credentials.met is not False:
                    raise
                return (credentials,), ()
            orders = [order for rehearsal in rehearsals for order in rehearsal.orders]
            return prerequisites_of(launcher, adapter.info, orders), tuple({order.offer_id for order in orders})

        return probe

    return {
        name: PrerequisiteGate(name, probe_of(name), base.holds, base.launches.enqueue, new_id, pace())
        for name, launcher in launchers.items()
        if isinstance(launcher, PrerequisiteProbe) and any(is_polled_for(name, watch) for watch in renting)
    }
