"""What the owner allows: approvals of single quotes, and pauses of renting. Works with and without a running daemon."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from gpuwatch.app.market.offers import offer_json
from gpuwatch.app.watches.watch_selection import require_watch
from gpuwatch.bootstrap import (
    build_adapters,
    http_client,
    monotonic,
    new_id,
    open_store,
    open_store_read_only,
    real_now,
)
from gpuwatch.bootstrap.job_building import job_shells
from gpuwatch.bootstrap.keeper_building import obligation_file, obligations_at
from gpuwatch.bootstrap.provider_access import has_credentials, identified_account, label_lengths
from gpuwatch.bootstrap.rules import commissions_of
from gpuwatch.domain.jobs.job import JobState
from gpuwatch.domain.jobs.job_watch import price_cap, waiting_job_watch
from gpuwatch.domain.launches.life.owner_decisions import ApprovalState, Pause
from gpuwatch.domain.market.money import rfc3339
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.domain.watches.watch import Purpose
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.following.provider_account import other_account_reason
from gpuwatch.engine.launches.following.strays import LostLaunches
from gpuwatch.engine.launches.renting.candidate_loop import ProviderContext
from gpuwatch.engine.launches.renting.launch_executor import LaunchExecutor
from gpuwatch.engine.launches.renting.owner_decisions import ApprovalHandler, ApprovalReply, ApprovalTerms
from gpuwatch.engine.launches.renting.prerequisite_gate import why_held
from gpuwatch.engine.launches.renting.requoter import BalanceCache
from gpuwatch.errors import UsageError
from gpuwatch.storage.alerts.pauses import PauseTable, SqlPauseRepository
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.launches.approval_rows import SqlApprovalRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.launches.renting_blocks import SqlSkippedScopes
from gpuwatch.storage.market.provider_holds import SqlHolds

if TYPE_CHECKING:
    from gpuwatch.domain.launches.life.owner_decisions import Approval
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.ports.declarations import Adapter
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database


# --- approvals --------------------------------------------------------------------------------------------------------


def approve(settings: Settings, approval_id: str) -> ApprovalReply:
    """Rent the quoted offer at its price or less, and wait for the provider's answer.

    Raises:
        UsageError: no such approval, or the settings no longer allow it.
        StoreError: nothing was started, or the store holds what was started.
    """
    with _handler(settings) as handler:
        return handler.approve(approval_id)


def deny(settings: Settings, approval_id: str, why: str = "") -> ApprovalReply:
    """Deny the quoted offer, so that it is not requested again for a day. Raises UsageError, StoreError."""
    with _handler(settings) as handler:
        return handler.deny(approval_id, why)


def recent_approvals(settings: Settings) -> list[Approval]:
    """Open approvals and those of the last week, newest first. Raises StoreError."""
    with open_store_read_only(settings) as store:
        return SqlApprovalRepository(store).recent(real_now())


def open_approvals(settings: Settings, now: datetime) -> list[Approval]:
    """Those that await a decision, newest first. Raises StoreError."""
    return [approval for approval in recent_approvals(settings) if approval.state_at(now) is ApprovalState.OPEN]


@contextmanager
def _handler(settings: Settings) -> Iterator[ApprovalHandler]:
    with open_store(settings) as store, http_client(settings) as http:
        yield build_approval_handler(settings, store, http)


def build_approval_handler(settings: Settings, store: Database, http: HttpClient) -> ApprovalHandler:
    """The approval handler for an open store. It sends no request before a decision."""
    accounts: dict[str, str] = {}
    terms = ApprovalTerms(
        budget=settings.budget,
        dry_run=settings.dry_run,
        zone=ZoneInfo(settings.timezone),
        commissions=commissions_of(settings),
        label_lengths=label_lengths(settings.providers),
        accounts=lambda: accounts,
    )
    return ApprovalHandler(
        SqlApprovalRepository(store),
        {watch.name: watch for watch in (*settings.watches, *_job_watches(store))},
        terms,
        market_of=lambda name: _adapter(settings, http, name).market,
        executor_of=lambda name, watch: _executor(settings, store, http, name, watch, accounts),
        clock=real_now,
    )


def _job_watches(store: Database) -> list[Watch]:
    """Watches of the queued jobs, at the highest price that their limits allow."""
    now = real_now()
    waiting = [job for job in SqlJobRepository(store).open_jobs() if job.state is JobState.QUEUED]
    return [waiting_job_watch(job, price_cap(job), now) for job in waiting]


def _adapter(settings: Settings, http: HttpClient, name: str) -> Adapter:
    if name not in settings.providers:
        raise UsageError(f"{name} is no longer enabled in the settings; nothing was rented")
    return build_adapters(settings, http, [name])[name]


def _executor(
    settings: Settings, store: Database, http: HttpClient, name: str, watch: str, accounts: dict[str, str]
) -> LaunchExecutor:
    """The provider context for renting; its account is recorded in `accounts`."""
    adapter = _adapter(settings, http, name)
    if adapter.launcher is None:
        raise UsageError(f"gpuwatch cannot rent at {name}")
    if not has_credentials(settings.providers[name]):
        raise UsageError(f"there is no key for {name}, so gpuwatch cannot rent there; see: gpuwatch providers")
    account = identified_account(settings, store, adapter.launcher, real_now())
    elsewhere = [launch for launch in SqlLaunchRepository(store).alive(name) if account.is_elsewhere(launch)]
    if (reason := other_account_reason(elsewhere)) is not None:
        raise UsageError(f"nothing was rented: {reason}")
    if lacks := why_held(SqlHolds(store), name, real_now(), is_job=Purpose.of(watch).job is not None):
        raise UsageError(f"nothing was rented: {lacks}")
    if lost := _lost_launches(settings, store, name):
        raise UsageError(f"nothing was rented: {lost}")
    accounts[name] = account.identify(real_now())
    balance = BalanceCache(adapter.launcher, monotonic)
    balance.refresh()
    commission, obligations = settings.providers[name].commission, obligation_file(settings)
    scopes, key = SqlSkippedScopes(store), job_shells(settings).public_key
    context = ProviderContext(
        adapter.launcher,
        adapter.market,
        commission,
        balance,
        obligations=obligations,
        scopes=scopes,
        public_key=key,
    )
    return LaunchExecutor(
        SqlLaunchRepository(store, obligations),
        {name: context},
        LaunchAlerts(new_id, {adapter.name: adapter}),
        real_now,
        settings.budget,
    )


def _lost_launches(settings: Settings, store: Database, name: str) -> str | None:
    """Recall launches that only the keeper's file still has; return why nothing can be rented, or None."""
    obligations = partial(obligations_at, name, obligation_file(settings), store)
    lost = LostLaunches(SqlLaunchRepository(store), name, obligations)
    lost.recall(real_now())  # those with an instance now hold the reservation
    return lost.reason()


def approval_json(ask: Approval, now: datetime) -> dict[str, Any]:
    """JSON of one approval; `offer`: as in `gpuwatch offers --json`."""

    return {
        "ask_id": ask.approval_id,
        "watch": ask.watch,
        "state": ask.state_at(now).value,
        "created_at": rfc3339(ask.created_at),
        "deadline": rfc3339(ask.deadline),
        "answered_at": rfc3339(ask.answered_at),
        "launch_id": ask.launch_id,
        "words": ask.words,
        "offer": offer_json(ask.match.offer, ask.match.price),
    }


def reply_json(reply: ApprovalReply) -> dict[str, Any]:
    """JSON of `gpuwatch approve` and `gpuwatch deny`."""
    return {
        "outcome": reply.outcome.value,
        "text": reply.text,
        "launch_id": None if reply.launch is None else reply.launch.launch_id,
        "instance_id": None if reply.launch is None else reply.launch.instance_id,
    }


# --- pauses -----------------------------------------------------------------------------------------------------------


def pauses(settings: Settings) -> PauseTable:
    """The pauses, and the circuit breakers of the watches. Raises StoreError."""
    with open_store_read_only(settings) as store:
        return SqlPauseRepository(store).load()


def pause(settings: Settings, watch: str | None, for_s: float | None, why: str) -> PauseTable:
    """Stop all daemons on this database from renting anything new. Running instances continue.

    Args:
        watch: None: all watches.
        for_s: None: until `resume`.

    Raises:
        UsageError: no such watch. A typo must not leave the watch renting.
        StoreError: nothing was written and nothing is paused.
    """
    if watch is not None:
        require_watch(settings, watch)
    now = real_now()
    until = None if for_s is None else now + timedelta(seconds=for_s)
    with open_store(settings) as store:
        return SqlPauseRepository(store).pause(Pause(watch=watch, at=now, until=until, why=why))


def resume(settings: Settings, watch: str | None) -> tuple[bool, PauseTable]:
    """Lift a pause; for a watch, also close its circuit breaker.

    Returns:
        Whether anything was lifted, and what is still paused.

    Raises:
        UsageError: there is no such watch, and no pause with that name.
        StoreError: nothing was written.
    """
    with open_store(settings) as store:
        repository = SqlPauseRepository(store)
        pauses = repository.load()
        paused_watches = {pause_.watch for pause_ in pauses.by_hand} | {pause_.watch for pause_ in pauses.breakers}
        if watch is not None and watch not in paused_watches:
            require_watch(settings, watch)
        return repository.resume(watch, real_now(), "resumed by the owner")


def pause_lines(pauses: PauseTable, now: datetime, zone: str) -> list[str]:
    """The reasons why watches cannot rent now, one sentence each."""
    zone_info = ZoneInfo(zone)
    by_hand = [
        f"{pause_.text(zone_info)}; to resume: {_resume_command(pause_.watch)}" for pause_ in pauses.in_force(now)
    ]
    breaker_lines = []
    for breaker in pauses.open_breakers():
        later = f"retries once after {format_moment(breaker.until, zone_info)}"
        again = "is retrying once" if breaker.until <= now else later
        breaker_lines.append(
            f"Watch {breaker.watch!r} {again}: {breaker.why}; to resume: {_resume_command(breaker.watch)}"
        )
    return by_hand + breaker_lines


def pauses_json(pauses: PauseTable) -> list[dict[str, Any]]:
    """JSON of `gpuwatch pause`. The `until` of a breaker is the time of its next attempt."""
    by_hand = [("hand", pause_.watch, pause_.at, pause_.until, pause_.why) for pause_ in pauses.in_force(real_now())]
    breakers = [
        ("breaker", breaker.watch, breaker.at, breaker.until, breaker.why) for breaker in pauses.open_breakers()
    ]
    return [
        {"kind": kind, "watch": watch, "since": rfc3339(since), "until": rfc3339(until), "why": why}
        for kind, watch, since, until, why in [*by_hand, *breakers]
    ]


def _resume_command(watch: str | None) -> str:
    return "gpuwatch resume" if watch is None else f"gpuwatch resume {shlex.quote(watch)}"
