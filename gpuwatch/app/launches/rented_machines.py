"""What the owner asks about each rented machine: what it costs at most, when it ends, and whether it is used."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.app.launches.most_cost import most_cost_microusd
from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.domain.launches.instances.obligation import latest_end
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.launches.life.launch_record import governing_watch
from gpuwatch.domain.launches.money.launch_costs import cost_microusd
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.launches.invoice_rows import SqlUtilisationRepository

if TYPE_CHECKING:
    from gpuwatch.domain.jobs.job import Job
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.settings import Settings

_USE_IS_CURRENT = timedelta(minutes=10)  # an older sample does not say what the GPU does now


class RentedMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A launch with the facts that follow from the store.

    Attributes:
        most_microusd: the most that it can cost in all; None: no latest end is set.
        began_at: when it ran, or before that its order.
        ends_at: its latest end; None: none is set.
        used_s: time from its beginning until now, or its end.
        whole_s: time from its beginning to its latest end.
        gpu_percent: the newest sample of its GPU use, in percent; None: unknown.
        low_percent: the use below which its watch ends it or warns; None: none is set.
        job: the job that it was rented for.
    """

    launch: Launch
    cost_microusd: int
    most_microusd: int | None
    began_at: datetime
    ends_at: datetime | None
    used_s: float
    whole_s: float | None
    gpu_percent: float | None
    low_percent: float | None
    job: Job | None

    @property
    def is_under_used(self) -> bool:
        """Whether its GPUs are used less than its watch wants."""
        is_known = self.gpu_percent is not None and self.low_percent is not None
        return is_known and self.gpu_percent < self.low_percent  # type: ignore[operator]

    @property
    def can_extend(self) -> bool:
        """Whether it has an end that `app.launches.extend` could move."""
        return self.ends_at is not None and not self.launch.dry_run and self.launch.state in _EXTENDABLE

    @property
    def can_stop(self) -> bool:
        """Whether gpuwatch can end it: not what a command rented, and not twice."""
        return not (self.launch.is_over or self.launch.is_by_command or self.launch.state is LaunchState.STOPPING)


_EXTENDABLE = frozenset({LaunchState.STARTING, LaunchState.RUNNING})


def rented_machines(settings: Settings, launches: Sequence[Launch], now: datetime) -> list[RentedMachine]:
    """The facts about these launches, in their order. Raises StoreError."""
    watches = {watch.name: watch for watch in settings.watches}
    with open_store_read_only(settings) as store:
        jobs, uses = SqlJobRepository(store), SqlUtilisationRepository(store)
        return [
            machine_of(
                launch,
                governing_watch(launch, watches),
                uses.newest_percent(launch.launch_id, now - _USE_IS_CURRENT),
                None if (name := launch.purpose.job) is None else jobs.find_job(name),
                now,
            )
            for launch in launches
        ]


def machine_of(
    launch: Launch, watch: Watch | None, gpu_percent: float | None, job: Job | None, now: datetime
) -> RentedMachine:
    """Return the facts about one launch.

    Args:
        watch: whose rules end it; None: unknown.
    """
    began_at = launch.running_at or launch.requested_at or launch.intended_at
    ends_at = latest_end(launch)
    spec = None if watch is None else watch.launch
    low = [] if spec is None else [percent for percent in (spec.idle_below, spec.wasteful_below) if percent is not None]
    return RentedMachine(
        launch=launch,
        cost_microusd=cost_microusd(launch, now),
        most_microusd=most_cost_microusd(launch, now),
        began_at=began_at,
        ends_at=ends_at,
        used_s=max(0.0, ((launch.ended_at or now) - began_at).total_seconds()),
        whole_s=None if ends_at is None else (ends_at - began_at).total_seconds(),
        gpu_percent=None if launch.is_over else gpu_percent,
        low_percent=max(low, default=None),
        job=job,
    )
