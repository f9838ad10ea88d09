"""Pauses of renting, by the owner and by the watches' circuit breakers. Works with and without a running daemon."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Literal
from zoneinfo import ZoneInfo

from msgspec import Meta

from gpuwatch.app.owner_audit import audit_event
from gpuwatch.app.watches.watch_selection import in_group, job_watch_name, require_watches
from gpuwatch.bootstrap import open_store, open_store_read_only, real_now
from gpuwatch.domain.launches.life.owner_decisions import Pause
from gpuwatch.domain.market.json_view import JsonView, Moment
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.domain.watches.owner_names import JOB_PREFIX, Purpose, owned_name
from gpuwatch.errors import ResourceNotFound
from gpuwatch.storage.alerts.pauses import PauseTable, SqlPauseRepository
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.jobs.series_repository import SqlSeriesRepository

if TYPE_CHECKING:
    from gpuwatch.ports import OutboxAlert
    from gpuwatch.settings import Settings


def pauses(settings: Settings) -> PauseTable:
    """The pauses, and the circuit breakers of the watches. Raises StoreError."""
    with open_store_read_only(settings) as store:
        return SqlPauseRepository(store).load()


def pause(
    settings: Settings, watch: str | None, for_s: float | None, why: str, *, actor: str, group: str | None = None
) -> tuple[bool, PauseTable]:
    """Stop all daemons on this database from renting anything new. Running instances continue.

    Args:
        watch: a watch, or an open or recurring job as `job:NAME`; None: all watches, or those of the group.
        for_s: None: until `resume`.
        group: pause each of its watches; one that joins later is not paused.

    Returns:
        Whether this changed anything, and what is paused.

    Raises:
        UsageError: no such watch, job or group. A typo must not leave the watch renting.
        StoreError: nothing was written, or not all watches of a group are paused.
    """
    names, now = paused_names(settings, watch, group), real_now()
    until = None if for_s is None else now + timedelta(seconds=for_s)

    def audit(name: str | None) -> OutboxAlert:
        text = _paused(name)
        return _audit(actor, name, f"{text}: {why}" if why else text)

    with open_store(settings) as store:
        repository = SqlPauseRepository(store)
        done = [repository.pause(Pause(watch=name, at=now, until=until, why=why), audit(name)) for name in names]
    return any(changed for changed, _ in done), done[-1][1]


def resume(settings: Settings, watch: str | None, *, actor: str, group: str | None = None) -> tuple[bool, PauseTable]:
    """Lift a pause; for a watch, and each of a group, also close its circuit breaker.

    Returns:
        Whether anything was lifted, and what is still paused.

    Raises:
        UsageError: there is no such watch or group, and no pause with that name.
        StoreError: nothing was written, or not all watches of a group are resumed.
    """
    with open_store(settings) as store:
        repository = SqlPauseRepository(store)
        names = _paused_names(settings, repository.load(), watch, group)
        done = [
            repository.resume(name, real_now(), "resumed by the owner", _audit(actor, name, _resumed(name)))
            for name in names
        ]
    return any(changed for changed, _ in done), done[-1][1]


def _paused_names(settings: Settings, pauses: PauseTable, watch: str | None, group: str | None) -> Sequence[str | None]:
    if watch is not None and group is None:
        stored = job_watch_name(settings, watch) or owned_name(settings.owner, watch)
        if stored in {*(one.watch for one in pauses.by_hand), *(one.watch for one in pauses.breakers)}:
            return [stored]  # of a watch that may be gone from the settings, or of a job that is over
    return paused_names(settings, watch, group)


def paused_names(settings: Settings, watch: str | None, group: str | None) -> Sequence[str | None]:
    """The stored names of what is paused together: of watches and open jobs; None: all renting.

    Raises:
        UsageError: there is no such watch, job or group.
        StoreError: the store cannot be read.
    """
    if watch is None and group is None:
        return [None]
    with open_store_read_only(settings) as store:
        of_group = {job.watch_name: job.definition.resources.group for job in SqlJobRepository(store).open_jobs()}
        of_group |= {one.watch_name: one.definition.resources.group for one in SqlSeriesRepository(store).every()}
    if watch is None or group is not None:
        jobs = [name for name, its_group in of_group.items() if group == its_group and Purpose.of(name).series is None]
        is_of_jobs = bool(jobs) and watch is None and not in_group(settings, group)
        return jobs if is_of_jobs else [*require_watches(settings, watch, group), *jobs]
    jobs = list(of_group)
    if (job := job_watch_name(settings, watch)) is not None:
        if job not in jobs:
            raise ResourceNotFound(f"there is no open job {Purpose.of(job).job!r}; see: gpuwatch jobs list")
        return [job]
    try:
        return require_watches(settings, watch, None)
    except ResourceNotFound:
        if job_watch_name(settings, JOB_PREFIX + watch) not in jobs:
            raise
        raise ResourceNotFound(f"there is no watch {watch!r}; the job of that name is {JOB_PREFIX}{watch}") from None


def _paused(watch: str | None) -> str:
    if watch is None:
        return "renting paused"
    job = Purpose.of(watch).job
    return f"watch {watch} paused" if job is None else f"job {job} paused"


def _resumed(watch: str | None) -> str:
    if watch is None:
        return "renting resumed"
    job = Purpose.of(watch).job
    return f"watch {watch} resumed" if job is None else f"job {job} resumed"


def _audit(actor: str, watch: str | None, text: str) -> OutboxAlert:
    return audit_event(actor, text, subject=watch or "renting", watch=watch)


def pause_lines(pauses: PauseTable, now: datetime, zone: str) -> list[str]:
    """The reasons why watches cannot rent now, one sentence each."""
    zone_info = ZoneInfo(zone)
    by_hand = []
    for pause_ in pauses.in_force(now):
        command = _resume_command(pause_.watch)
        how = f"to resume: {command}"
        by_hand.append(f"{pause_.text(zone_info)}; {how}")
    breaker_lines = []
    for breaker in pauses.open_breakers():
        later = f"retries once after {format_moment(breaker.until, zone_info)}"
        again = "is retrying once" if breaker.until <= now else later
        breaker_lines.append(
            f"Watch {breaker.watch!r} {again}: {breaker.why}; to resume: {_resume_command(breaker.watch)}"
        )
    return by_hand + breaker_lines


class PauseView(JsonView, frozen=True, kw_only=True):
    """One pause; the `until` of a breaker is the time of its next attempt."""

    kind: Literal["hand", "breaker"]
    watch: Annotated[str | None, Meta(description="Null: all watches.")]
    since: Moment
    until: Moment | None
    why: str


def pause_views(pauses: PauseTable) -> list[PauseView]:
    """What is paused now: by the owner, and by circuit breakers."""
    by_hand = [PauseView.of(pause_, kind="hand", since=pause_.at) for pause_ in pauses.in_force(real_now())]
    return by_hand + [PauseView.of(breaker, kind="breaker", since=breaker.at) for breaker in pauses.open_breakers()]


def _resume_command(watch: str | None) -> str:
    return "gpuwatch watches resume" if watch is None else f"gpuwatch watches resume {shlex.quote(watch)}"
