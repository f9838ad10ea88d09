"""The machines that are rented now: what each costs so far and at most, when it ends, and how busy its GPU is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from gpuwatch import providers
from gpuwatch.app.launches.most_cost import most_cost_microusd
from gpuwatch.domain.launches.instances.instance_checks import LOOK_BACK, low_samples
from gpuwatch.domain.launches.instances.obligation import latest_end
from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.domain.launches.life.launch_record import governing_watch, has_volume
from gpuwatch.domain.launches.money.budgets import current_rate_microusd_hour
from gpuwatch.domain.launches.money.launch_costs import cost_microusd
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.launches.invoice_rows import SqlUtilisationRepository

if TYPE_CHECKING:
    from gpuwatch.domain.jobs.job import Job
    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.domain.watches.launch_spec import LaunchSpec
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database

_RECENT_S = 600.0  # an older sample says nothing about now
_FRESH = timedelta(seconds=_RECENT_S)
_WORTH_MENTIONING = 1 / 3  # of the time after which an idle machine ends


class RunningMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A launch that is not over, and its figures now.

    Attributes:
        most_microusd: the most that it can cost in all; None: it has no latest end.
        used_percent: of its GPU, newest sample; None: unknown.
        idle_since: since when its GPU has been under the share below which it ends, or is reported as wasteful; None:
            not for long.
        idle_ends_at: when it ends if that stays so; None: it does not end for that.
        job: the job that it was rented for.
    """

    launch: Launch
    rate_microusd_hour: int
    cost_microusd: int
    most_microusd: int | None
    began_at: datetime
    ends_at: datetime | None
    used_percent: float | None
    idle_since: datetime | None
    idle_ends_at: datetime | None
    job: Job | None

    @property
    def whole_s(self) -> float | None:
        """The time from its beginning to its latest end."""
        return None if self.ends_at is None else (self.ends_at - self.began_at).total_seconds()

    @property
    def can_extend(self) -> bool:
        """Whether it has an end that `app.launches.extend` could move."""
        return self.ends_at is not None and self.launch.state in {LaunchState.STARTING, LaunchState.RUNNING}

    @property
    def can_keep_disk(self) -> bool:
        """Whether it can be stopped with its disk kept."""
        return can_keep_disk(self.launch)

    @property
    def can_stop(self) -> bool:
        """Whether gpuwatch can end it: not what a command rented, and not twice."""
        return not (self.launch.is_by_command or self.launch.is_over or self.launch.state is LaunchState.STOPPING)


def can_keep_disk(launch: Launch) -> bool:
    """Whether it can be stopped now with its disk kept."""
    is_running = launch.state is LaunchState.RUNNING and launch.condition is None and launch.kept is None
    return is_running and not launch.dry_run and launch.purpose.job is None and cannot_keep_disk(launch) is None


def cannot_keep_disk(launch: Launch) -> str | None:
    """Return why its provider cannot stop it with its disk kept, in one line, or None."""
    if launch.is_by_command or launch.provider not in providers.names():
        return "gpuwatch does not manage what was rented"
    reason = providers.info(launch.provider).cannot_keep_disk(is_spot=launch.spot, has_volume=has_volume(launch))
    return f"{launch.provider} cannot keep the disk of a stopped machine: {reason}" if reason else None


def running_machines(
    settings: Settings, store: Database, alive: Sequence[Launch], now: datetime
) -> list[RunningMachine]:
    """The figures of launches that are not over, in their order. Raises StoreError."""
    watches = {watch.name: watch for watch in settings.watches}
    samples, jobs = SqlUtilisationRepository(store), SqlJobRepository(store)
    return [
        _running(launch, watches, samples, None if (job := launch.purpose.job) is None else jobs.find_job(job), now)
        for launch in alive
    ]


def _running(
    launch: Launch,
    watches: Mapping[str, Watch],
    samples: SqlUtilisationRepository,
    job: Job | None,
    now: datetime,
) -> RunningMachine:
    used, since, ends_at = _use(launch, watches, samples, now)
    return RunningMachine(
        launch=launch,
        rate_microusd_hour=current_rate_microusd_hour(launch, now),
        cost_microusd=cost_microusd(launch, now),
        most_microusd=most_cost_microusd(launch, now),
        began_at=launch.running_at or launch.intended_at,
        ends_at=latest_end(launch),
        used_percent=used,
        idle_since=since,
        idle_ends_at=ends_at,
        job=job,
    )


def _use(
    launch: Launch, watches: Mapping[str, Watch], samples: SqlUtilisationRepository, now: datetime
) -> tuple[float | None, datetime | None, datetime | None]:
    """Return the newest share of its GPU, since when it is idle, and when it ends for that."""
    if launch.state is not LaunchState.RUNNING:
        return None, None, None
    watch = governing_watch(launch, watches)
    below, for_s, ends = _idle_rule(None if watch is None else watch.launch)
    found = samples.samples_since(launch.launch_id, now - max(LOOK_BACK * timedelta(seconds=for_s), _FRESH))
    used = next((one.percent for one in reversed(found) if one.percent is not None and now - one.at <= _FRESH), None)
    low = low_samples(found, below, for_s, now) if below is not None else []
    whole = timedelta(seconds=for_s)
    if len(low) < 2 or now - low[-1].at < whole * (_WORTH_MENTIONING if ends else 1):
        return used, None, None
    return used, low[-1].at, max(now, low[-1].at + whole) if ends else None


def _idle_rule(spec: LaunchSpec | None) -> tuple[float | None, float, bool]:
    """Return the share below which a GPU counts as idle, for how long, and whether its machine ends then."""
    if spec is None:
        return None, _RECENT_S, False
    if spec.idle_below is not None and spec.idle_for_s is not None:
        return spec.idle_below, spec.idle_for_s, True
    return spec.wasteful_below, spec.wasteful_for_s, False
