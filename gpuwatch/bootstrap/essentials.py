"""The common basis of the daemon's parts: settings, repositories, adapters, shared state."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.bootstrap import TimeSource, build_adapters, new_id
from gpuwatch.bootstrap.keeper_building import obligation_file
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.renting.launch_slots import LaunchSlots
from gpuwatch.engine.watches.gather import NewestObservations
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.market.provider_holds import SqlHolds
from gpuwatch.storage.market.search_turns import turns_by_provider
from gpuwatch.storage.setup.daemon_lease import LeaseOfTerm
from gpuwatch.storage.unit_of_work import SqlDecisionStore

if TYPE_CHECKING:
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.ports.declarations import Adapter
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.settings import Settings
    from gpuwatch.storage.launches.obligation_file import ObligationFile
    from gpuwatch.storage.setup.daemon_lease import Lease
    from gpuwatch.storage.setup.database import Database


class ServiceStop(threading.Event):
    """An event that is also set as soon as the lease under which it was made is lost, without waking who waits."""

    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self._lease, self._term, self._leads = lease, lease.term, lease.leads

    @property
    def has_lost_lead(self) -> bool:
        """Whether this process led and no longer does, or not in the same term."""
        return self._leads and not (self._lease.is_held and self._lease.term == self._term)

    @property
    def is_other_term(self) -> bool:
        """Whether the role changed, so that another service follows."""
        return self._lease.term != self._term

    @property
    def is_woken(self) -> bool:
        """Whether who waits was woken."""
        return super().is_set()

    def is_set(self) -> bool:
        """Whether to stop."""
        return super().is_set() or self.has_lost_lead


class Essentials(msgspec.Struct, frozen=True, kw_only=True):
    """The essentials, which are complete before any part is built.

    Attributes:
        stopping: set when the daemon stops or no longer leads: nothing else is searched and ordered.
        ending: set when the daemon stops: it ends the owner's commands and hooks, too.
        observations: the newest observation of each watch at each provider.
    """

    settings: Settings
    store: Database
    http: HttpClient
    time_source: TimeSource
    lease: Lease
    stopping: ServiceStop
    ending: threading.Event
    adapters: Mapping[str, Adapter]
    uow_factory: SqlDecisionStore
    obligations: ObligationFile
    launches: SqlLaunchRepository
    jobs: SqlJobRepository
    holds: SqlHolds
    launch_alerts: LaunchAlerts
    slots: LaunchSlots
    observations: NewestObservations

    @property
    def watches(self) -> dict[str, Watch]:
        """The watches of the settings, by name."""
        return {watch.name: watch for watch in self.settings.watches}


def build_essentials(
    settings: Settings,
    store: Database,
    http: HttpClient,
    run_now: Callable[[str], None],
    time_source: TimeSource,
    lease: Lease,
) -> Essentials:
    """The essentials over an open store.

    Args:
        run_now: runs a periodic task, by name, before its next scheduled time.
        lease: whether this process leads; without it nothing is decided and ordered.
    """
    stopping, holds, own_term = ServiceStop(lease), SqlHolds(store), LeaseOfTerm(lease)
    obligations = obligation_file(settings, time_source.now)
    keys = {name: one.api_key.reveal for name, one in settings.providers.items() if one.api_key is not None}
    turns = turns_by_provider(store, lease, keys, time_source.now)
    adapters = build_adapters(settings, http, stop=stopping, time_source=time_source, holds=holds, turns=turns)
    return Essentials(
        settings=settings,
        store=store,
        http=http,
        time_source=time_source,
        lease=lease,
        stopping=stopping,
        ending=threading.Event(),
        adapters=adapters,
        uow_factory=SqlDecisionStore(store, own_term),
        obligations=obligations,
        launches=SqlLaunchRepository(store, obligations, own_term),
        jobs=SqlJobRepository(store),
        holds=holds,
        launch_alerts=LaunchAlerts(new_id, adapters),
        slots=LaunchSlots(run_now, ("deliver", *(f"hunt {name}" for name in adapters))),
        observations=NewestObservations(),
    )
