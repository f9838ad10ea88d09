"""What waits for the owner, each with the command that settles it: the first part of `gpuwatch status`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

from msgspec import Meta

from gpuwatch.app.launches.running_machines import running_machines
from gpuwatch.domain.jobs.job import JobState
from gpuwatch.domain.launches.launch import LaunchState, RefusalReason
from gpuwatch.domain.launches.life.admission import BlockReason
from gpuwatch.domain.launches.life.owner_decisions import ApprovalState
from gpuwatch.domain.market.json_view import JsonView
from gpuwatch.domain.market.money import per_hour, usd
from gpuwatch.domain.market.offer import hardware_text
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.alerts.pauses import SqlPauseRepository
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.launches.approval_rows import SqlApprovalRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

if TYPE_CHECKING:
    from gpuwatch.app.watches.watch_status import WatchStatus
    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database

APPROVAL, HELD, IDLE = "approval", "held", "idle"
_FAILED_FOR = timedelta(days=7)  # a job that failed earlier is not shown
_DELIVERED_WITHIN = timedelta(minutes=10)
# blocks that last until the owner does something: the others end by themselves, or are meant
_SETTLED_BY: Mapping[str, str] = {
    BlockReason.NOT_READY: "gpuwatch doctor",
    RefusalReason.CHECKLIST: "gpuwatch watches checklist {watch}",
    RefusalReason.RENAMED: "gpuwatch config show",
}


class NeedView(JsonView, frozen=True, kw_only=True):
    """Something that waits for the owner."""

    kind: str
    text: str
    command: str
    subject: Annotated[str, Meta(description="The launch, instance, watch, job, channel or approval that it is about.")]
    reason: Annotated[str | None, Meta(description="Why, as recorded.")] = None


def needs_of_owner(
    settings: Settings, store: Database, statuses: Sequence[WatchStatus], alive: Sequence[Launch], now: datetime
) -> list[NeedView]:
    """What waits for the owner, most urgent first. Raises StoreError.

    Args:
        alive: the active launches.
    """
    zone = ZoneInfo(settings.timezone)
    needs = [
        *_launch_needs(settings, store, alive),
        *_idle_needs(settings, store, alive, now, zone),
        *_approval_needs(store, now, zone),
        *_watch_needs(store, statuses),
        *_job_needs(store, now),
        *_alert_needs(settings, store, now, zone),
    ]
    if settings.rescue:
        text = f"rescue mode: {settings.rescue}"
        rescue = NeedView(kind="rescue", text=text, command="gpuwatch doctor", subject="", reason=settings.rescue)
        needs.insert(0, rescue)
    return needs


def _launch_needs(settings: Settings, store: Database, alive: Sequence[Launch]) -> Iterator[NeedView]:
    for launch in alive:
        if launch.state is LaunchState.HELD:
            text = f"launch {launch.launch_id} is held: check at {launch.provider} whether its instance exists"
            command = f"gpuwatch launches resolve {launch.launch_id} --absent"
            yield NeedView(kind=HELD, text=text, command=command, subject=launch.launch_id)
    unknown_instances = SqlLaunchRepository(store).unknown_instances()
    for name in settings.providers:
        for instance_id in (unknown.instance_id for unknown in unknown_instances if unknown.provider == name):
            text = f"instance {instance_id} at {name} has gpuwatch's label and belongs to no launch"
            command = f"gpuwatch launches adopt {shlex.quote(instance_id)} --provider {name}"
            yield NeedView(kind="unknown_instance", text=text, command=command, subject=instance_id, reason=name)


def _idle_needs(
    settings: Settings, store: Database, alive: Sequence[Launch], now: datetime, zone: ZoneInfo
) -> Iterator[NeedView]:
    for machine in running_machines(settings, store, alive, now):
        if machine.idle_since is None:
            continue
        launch_id = machine.launch.launch_id
        text = f"launch {launch_id} uses {machine.used_percent or 0:.0f} % of its GPU"
        if machine.idle_ends_at is not None:
            text += f" and ends at {format_moment(machine.idle_ends_at, zone)} if that stays so"
        yield NeedView(kind=IDLE, text=text, command=f"gpuwatch launches show {launch_id}", subject=launch_id)


def _approval_needs(store: Database, now: datetime, zone: ZoneInfo) -> Iterator[NeedView]:
    for approval in SqlApprovalRepository(store).recent(now):
        if approval.state_at(now) is ApprovalState.OPEN:
            offer, price = approval.match.offer, per_hour(usd(approval.match.price.price_microusd_hour))
            what = f"{hardware_text(offer.gpu, offer.gpu_count)} at {offer.provider} for {price}"
            text = f"approve {what} (watch {approval.watch}), open until {format_moment(approval.deadline, zone)}"
            command = f"gpuwatch approvals approve {approval.approval_id}"
            yield NeedView(kind=APPROVAL, text=text, command=command, subject=approval.approval_id)


def _watch_needs(store: Database, statuses: Sequence[WatchStatus]) -> Iterator[NeedView]:
    for breaker in SqlPauseRepository(store).load().open_breakers():
        text = f"watch {breaker.watch} is paused by its circuit breaker: {breaker.why}"
        resume = f"gpuwatch watches resume {shlex.quote(breaker.watch)}"
        yield NeedView(kind="breaker", text=text, command=resume, subject=breaker.watch, reason=breaker.why)
    for status in statuses:
        command = None if status.blocked is None else _SETTLED_BY.get(status.blocked.reason)
        if status.blocked is not None and command is not None:
            name = status.watch.name
            text = f"watch {name} matches and cannot act: {status.blocked.text}"
            yield NeedView(
                kind=status.blocked.reason.value,
                text=text,
                command=command.format(watch=shlex.quote(name)),
                subject=name,
                reason=status.blocked.text,
            )


def _job_needs(store: Database, now: datetime) -> Iterator[NeedView]:
    repository = SqlJobRepository(store)
    for job in repository.recent(20, JobState.PAUSED):
        yield _job_need(job.name, "is paused", job.reason or "by you", "retry")
    for job in repository.recent(20, JobState.FAILED):
        if job.ended_at is not None and now - job.ended_at < _FAILED_FOR:
            yield _job_need(job.name, "failed", job.reason or "see its output", "show")


def _job_need(name: str, what: str, why: str, verb: str) -> NeedView:
    text = f"job {name} {what}: {why}"
    command = f"gpuwatch jobs {verb} {shlex.quote(name)}"
    return NeedView(kind="job", text=text, command=command, subject=name, reason=why)


def _alert_needs(settings: Settings, store: Database, now: datetime, zone: ZoneInfo) -> Iterator[NeedView]:
    for pending in Outbox(store).pending():
        if pending.channel in settings.channels and now - pending.oldest_at > _DELIVERED_WITHIN:
            since = format_moment(pending.oldest_at, zone)
            why = f": {pending.last_error}" if pending.last_error else ""
            text = f"{pending.count} undelivered on {pending.channel} since {since}{why}"
            yield NeedView(
                kind="undelivered",
                text=text,
                command="gpuwatch alerts test",
                subject=pending.channel,
                reason=pending.last_error,
            )
