"""Admits a launch (`launches.life.admission`): reads the state and writes the intent in one transaction.

With two daemons on one PostgreSQL, a reservation takes a transaction lock, so that budgets are counted by one at a
time; in addition, unique rows protect whatever must be unique (a slot of a watch, an offer).

At the end the circuit breaker of a watch: opened in the transaction of a failure, closed in that of a successful start.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, and_, bindparam, exists, func, insert, not_, or_, select
from sqlalchemy.exc import IntegrityError

from gpuwatch.domain.alerts.launch_texts import BREAKER
from gpuwatch.domain.jobs.job import JobState
from gpuwatch.domain.launches.instances.machines_and_places import (
    AVOID_FOR,
    LOST_SPOT,
    AvoidedMachine,
    MachineNote,
    find_avoided_machines,
    machine_refusal,
    offer_machine_refusal,
)
from gpuwatch.domain.launches.launch import (
    EndReason,
    Intent,
    Launch,
    LaunchConflict,
    LaunchRefusal,
    LaunchState,
    RefusalReason,
)
from gpuwatch.domain.launches.life.admission import (
    Admission,
    AdmissionState,
    active_check,
    admit_launch,
    alive_launches,
    failed_place_refusal,
    free_offer_slot,
    rest_refusal,
)
from gpuwatch.domain.launches.life.circuit_breaker import (
    FAILURE_THRESHOLD,
    after_failure,
    after_run,
    is_counted_failure,
    newest_by_place,
)
from gpuwatch.domain.launches.life.launch_record import terms_of
from gpuwatch.domain.launches.life.owner_decisions import pause_refusal
from gpuwatch.domain.launches.life.refused_scopes import scope_refusal, scopes_in_force
from gpuwatch.domain.launches.money.budgets import all_budgets_refusal
from gpuwatch.domain.launches.refusal_words import first_refusal
from gpuwatch.domain.launches.rule_check import RuleCheck
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.past_limits import ProviderMachine
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.redaction import redact
from gpuwatch.storage.alerts.alert_rows import enqueue
from gpuwatch.storage.alerts.pauses import PauseTable, load_pauses, lock_reservations, save_breaker
from gpuwatch.storage.launches.renting_blocks import load_notes, load_scopes, ticked_items, unknown_refusals
from gpuwatch.storage.setup.account_rows import INSTALL_ID, ensure_installation
from gpuwatch.storage.setup.daemon_lease import NO_LEASE, Lease
from gpuwatch.storage.setup.launch_rows import launch_of, launch_row_of, row_of_event
from gpuwatch.storage.setup.schema.job_tables import job
from gpuwatch.storage.setup.schema.launch_side_tables import machine_note, pause
from gpuwatch.storage.setup.side_tables import skipped_scope, unknown_instance
from gpuwatch.storage.setup.stored_values import to_ms
from gpuwatch.storage.setup.tables import IS_ALIVE, OVER_STATES, launch_event
from gpuwatch.storage.setup.tables import launch as launches
from gpuwatch.storage.watches.watch_identities import WATCH_ID, identify, renamed_candidate

_FAILURE_WINDOW = timedelta(days=1)


def _ended_by(end: EndReason) -> ColumnElement[bool]:
    return func.coalesce(launches.c.end_reason, "").startswith(end.value, autoescape=True)


# Built once: these run between an offer and its rent.
_RELEVANT_LAUNCHES = select(launches).where(
    or_(IS_ALIVE, and_(launches.c.state.in_(OVER_STATES), launches.c.ended_at_ms >= bindparam("since"))),
    launches.c.dry_run.is_(False),
)
_TOTAL_COUNT = select(func.count()).where(
    launches.c.watch == bindparam("of_watch"),
    launches.c.dry_run.is_(False),
    or_(launches.c.state != LaunchState.FAILED.value, _ended_by(EndReason.CRASHED)),  # a launch that ran counts
)
_IS_LOST_SPOT = and_(launches.c.state == LaunchState.ENDED.value, or_(*map(_ended_by, LOST_SPOT)))
_TOTAL_COUNT_RELAUNCHING = _TOTAL_COUNT.where(not_(_IS_LOST_SPOT))
# Most stores have no pause, no note and no unknown instance: one row that is read anyway tells whether they have any.
_DECISIONS = (
    exists(select(pause)).label("pauses"),
    exists(select(machine_note)).label("notes"),
    exists(select(unknown_instance)).label("unknown"),
    exists(select(skipped_scope)).label("scopes"),
)
_STANDING_QUERIES = {
    relaunching: select(
        total.scalar_subquery().label("total"), INSTALL_ID.label("install_id"), WATCH_ID.label("watch_id"), *_DECISIONS
    )
    for relaunching, total in ((False, _TOTAL_COUNT), (True, _TOTAL_COUNT_RELAUNCHING))
}
_RESERVED_STATE = select(launches.c.state, launches.c.version, *_DECISIONS).where(
    launches.c.launch_id == bindparam("of_launch")
)
_JOB_STATE = select(job.c.state).where(job.c.job_id == bindparam("of_job"))
_INSERT_LAUNCH, _INSERT_EVENT = insert(launches), insert(launch_event)


def reserve(
    connection: Connection, intent: Intent, budget: Budget, now: datetime, lease: Lease = NO_LEASE
) -> tuple[Launch, Match] | LaunchRefusal:
    """Take a free slot of the watch, an offer that no launch has, and its budget; or return why not.

    The launch is written as `requested` at once: from then on, after any crash, it may have been sent.

    Raises:
        LeaseLost: another daemon leads.
    """
    lock_reservations(connection)
    lease.verify(connection)
    watch = intent.watch
    stored = connection.execute(_STANDING_QUERIES[_relaunches(watch)], {"of_watch": watch.name}).one()
    if (renamed := first_refusal(_rename_checks(connection, watch, stored.watch_id))) is not None:
        return renamed
    watch_id = stored.watch_id or identify(connection, watch.name, now)
    if (no_job := first_refusal(_job_checks(connection, watch, watch_id))) is not None:
        return no_job
    installation = stored.install_id or ensure_installation(connection, now).install_id
    standing = _standing(connection, stored, watch, now)
    standing = msgspec.structs.replace(standing, watch_id=watch_id, install_id=installation)
    admitted = admit_launch(intent, standing, budget, now)
    if isinstance(admitted, LaunchRefusal):
        return admitted
    launch = msgspec.structs.replace(admitted[0], terms=terms_of(watch))
    # after a failed statement PostgreSQL rolls back the whole transaction, SQLite only the statement
    savepoint = nullcontext() if connection.dialect.name == "sqlite" else connection.begin_nested()
    try:
        with savepoint:
            connection.execute(_INSERT_LAUNCH, launch_row_of(launch))  # as parameters: values() examines each for 2 ms
            connection.execute(_INSERT_EVENT, row_of_event(launch, None, "intent", now, intent.compared or None))
    except IntegrityError:
        return LaunchRefusal(RefusalReason.OFFER_TAKEN, "another launch has just taken the slot or the offer")
    return launch, admitted[1]


def checks_of_rehearsal(connection: Connection, intent: Intent, budget: Budget, now: datetime) -> Iterator[RuleCheck]:
    """Yield what each rule of `reserve` would say about this intent now, in their order. Writes and locks nothing."""
    stored = connection.execute(_STANDING_QUERIES[_relaunches(intent.watch)], {"of_watch": intent.watch.name}).one()
    watch, watch_id = intent.watch, stored.watch_id
    unidentified = list(_rename_checks(connection, watch, watch_id))
    yield from unidentified or _job_checks(connection, watch, watch_id)
    yield from Admission(intent, _standing(connection, stored, watch, now), budget, now).checks()


def refusal_of_rehearsal(connection: Connection, intent: Intent, budget: Budget, now: datetime) -> LaunchRefusal | None:
    """Return why `reserve` would refuse this intent now, or None. Writes and locks nothing."""
    return first_refusal(checks_of_rehearsal(connection, intent, budget, now))


def refusal_instead(
    connection: Connection, intent: Intent, leaving: Launch, budget: Budget, now: datetime
) -> LaunchRefusal | None:
    """Return why `reserve` would refuse this intent if `leaving`, of the same watch, had just ended; or None."""
    stored = connection.execute(_STANDING_QUERIES[_relaunches(intent.watch)], {"of_watch": intent.watch.name}).one()
    known = _relevant_launches(connection, now)
    old = [one for one in known if one.launch_id == leaving.launch_id]
    ended = [msgspec.structs.replace(one, state=LaunchState.ENDED, ended_at=now) for one in old]
    known = [*ended, *(one for one in known if one.launch_id != leaving.launch_id)]
    standing = msgspec.structs.replace(_standing(connection, stored, intent.watch, now), known=lambda: known)
    return first_refusal(Admission(intent, standing, budget, now).checks())


def _standing(connection: Connection, stored: Row[Any], watch: Watch, now: datetime) -> AdmissionState:
    """Return the stored state that decides about a launch of this watch, without the identities."""
    pauses = load_pauses(connection) if stored.pauses else PauseTable()
    return AdmissionState(
        known=lambda: _relevant_launches(connection, now),
        total=lambda: int(stored.total),
        avoided=lambda known: _avoided_machines(load_notes(connection) if stored.notes else (), known, watch, now),
        ticked=lambda: ticked_items(connection, watch),
        pauses=pauses.by_hand,
        breaker=pauses.breaker_of(watch.name),
        scopes=lambda: load_scopes(connection) if stored.scopes else (),
        unknown=lambda: unknown_refusals(connection) if stored.unknown else {},
    )


def _rename_checks(connection: Connection, watch: Watch, watch_id: str | None) -> Iterator[RuleCheck]:
    """Yield why a watch must not rent under its name: it may be a renamed one."""
    if watch_id is None and watch.renamed_from != "":
        previous_name = renamed_candidate(connection, watch.name)
        if previous_name is not None:
            refusal = LaunchRefusal(
                RefusalReason.RENAMED,
                f"watch {watch.name!r} is new, and watch {previous_name!r} is gone while one of its launches is "
                f'active: if it was renamed, set renamed_from = "{previous_name}", else renamed_from = ""',
            )
            yield RuleCheck(rule=refusal.reason, refusal=refusal)


def _job_checks(connection: Connection, watch: Watch, watch_id: str | None) -> Iterator[RuleCheck]:
    """Yield why the job of a watch does not rent."""
    if watch_id is not None and watch.purpose.job is not None:
        state = connection.scalar(_JOB_STATE, {"of_job": watch_id})
        if state not in {None, JobState.QUEUED}:  # cancelled, or on another job's instance, since its watch was created
            refusal = LaunchRefusal(RefusalReason.MAX_ACTIVE, f"the job is {state}; it does not rent")
            yield RuleCheck(rule=refusal.reason, refusal=refusal)


def admit_retarget(  # noqa: PLR0913 everything that it depends on
    connection: Connection,
    retargeted: Launch,
    match: Match,
    watch: Watch,
    budget: Budget,
    now: datetime,
    *,
    previous: Launch,
    is_last_resort: bool = False,
) -> Launch | LaunchRefusal:
    """Decide whether a launch may change its offer or price, by the rules of `reserve` without two: its slot, which
    it already has, and its provider's cooldown, which it has passed.

    Args:
        previous: the launch as it was reserved or last requested.
        is_last_resort: no other candidate is left, so its place may be one that failed lately.

    Returns:
        The launch to write, or why not.
    """
    pauses = load_pauses(connection)
    paused = pause_refusal(pauses.by_hand, retargeted.watch, now)
    if paused is not None:
        return paused
    breaker = pauses.breaker_of(retargeted.watch)
    skipped = scope_refusal(scopes_in_force(load_scopes(connection), now, breaker), match.offer, retargeted.watch)
    if skipped is not None:
        return skipped
    others = [launch for launch in _relevant_launches(connection, now) if launch.launch_id != retargeted.launch_id]
    hold, is_elsewhere = None, retargeted.provider != previous.provider
    if is_elsewhere or retargeted.offer_id != previous.offer_id:
        hold = None if is_last_resort else failed_place_refusal(others, breaker, match.offer, now)
        if is_elsewhere or is_last_resort:
            hold = hold or rest_refusal(others, breaker, watch, match.offer, now)
    if is_elsewhere:
        hold = hold or unknown_refusals(connection).get(retargeted.provider)
    if hold is not None:
        return hold
    number = free_offer_slot(alive_launches(others), match.offer, watch)
    if number is None:
        return LaunchRefusal(RefusalReason.OFFER_TAKEN, f"another of your launches has offer {retargeted.offer_id}")
    retargeted = msgspec.structs.replace(retargeted, offer_slot=number)
    avoided = _avoided_machines(load_notes(connection), others, watch, now)
    refused = offer_machine_refusal(avoided, match.offer)
    return refused or all_budgets_refusal(retargeted, others, budget, watch.budget, now) or retargeted


def extension_refusal(
    connection: Connection, extended: Launch, budget: Budget, watch_budget: Budget, now: datetime
) -> LaunchRefusal | None:
    """Return why the budgets do not allow an extension, or None. Pauses do not matter: the launch runs already."""
    others = [launch for launch in _relevant_launches(connection, now) if launch.launch_id != extended.launch_id]
    without_count = msgspec.structs.replace(budget, max_instances=None)
    watch_without_count = msgspec.structs.replace(watch_budget, max_instances=None)
    return all_budgets_refusal(extended, others, without_count, watch_without_count, now)


def start_refusal(
    connection: Connection, starting: Launch, budget: Budget, watch: Watch | None, now: datetime
) -> LaunchRefusal | None:
    """Return why a launch whose disk is kept must not start again, or None: by the rules of an order that still apply.

    Args:
        watch: its watch; None: it is gone, and only the global budget applies.
    """
    others = [launch for launch in _relevant_launches(connection, now) if launch.launch_id != starting.launch_id]
    avoided = find_avoided_machines((), load_notes(connection), now)
    refused = (
        pause_refusal(load_pauses(connection).by_hand, starting.watch, now)
        or unknown_refusals(connection).get(starting.provider)
        or machine_refusal(avoided, starting.provider, starting.machine_id)
    )
    if watch is not None and refused is None:
        mine = [launch for launch in alive_launches(others) if launch.watch == watch.name]
        refused = active_check(watch.launch or LaunchSpec(), watch.name, mine).refusal
    watch_budget = Budget() if watch is None else watch.budget
    return refused or all_budgets_refusal(starting, others, budget, watch_budget, now)


def refusal_before_send(
    connection: Connection, launch: Launch, now: datetime, lease: Lease = NO_LEASE
) -> LaunchRefusal | None:
    """Check the owner's decisions since the reservation, right before an order is sent.

    Raises:
        LeaseLost: another daemon leads.
        LaunchConflict: another process took it over; a process that slept long must not send an abandoned order.
    """
    lease.verify(connection)
    stored = connection.execute(_RESERVED_STATE, {"of_launch": launch.launch_id}).first()
    if stored is None or (stored.state, stored.version) != (launch.state.value, launch.version):
        raise LaunchConflict(f"launch {launch.launch_id} was changed concurrently before it was sent")
    paused = pause_refusal(load_pauses(connection).by_hand, launch.watch, now) if stored.pauses else None
    avoided = find_avoided_machines((), load_notes(connection), now) if stored.notes else {}
    hold = unknown_refusals(connection).get(launch.provider) if stored.unknown else None
    return paused or hold or machine_refusal(avoided, launch.provider, launch.machine_id)


def _relevant_launches(connection: Connection, now: datetime) -> list[Launch]:
    """Return the launches that limits and budget depend on: active ones, and those that ended this month or lately."""
    since = min(now.replace(day=1, hour=0, minute=0, second=0, microsecond=0), now - AVOID_FOR - timedelta(hours=1))
    return [launch_of(row) for row in connection.execute(_RELEVANT_LAUNCHES, {"since": to_ms(since)})]


def _avoided_machines(
    notes: Sequence[MachineNote], relevant: Sequence[Launch], watch: Watch, now: datetime
) -> Mapping[ProviderMachine, AvoidedMachine]:
    """Return the machines that this watch must not rent."""
    ended = [launch for launch in relevant if launch.is_over]
    return find_avoided_machines(ended, notes, now, (watch.name,) if _relaunches(watch) else ())


def _relaunches(watch: Watch) -> bool:
    return watch.launch is not None and watch.launch.relaunch


_ENDED_LAUNCHES = select(launches).where(
    launches.c.watch == bindparam("of_watch"),
    launches.c.state.in_(OVER_STATES),
    launches.c.ended_at_ms >= bindparam("since"),
    launches.c.dry_run.is_(False),
)


def update_breaker(connection: Connection, launch: Launch, now: datetime) -> None:
    """Update the breaker of a launch's watch after a transition was written."""
    if launch.state is LaunchState.RUNNING:
        breaker = after_run(load_pauses(connection).breaker_of(launch.watch), launch, now)
        if breaker is not None:
            save_breaker(connection, breaker)
    elif is_counted_failure(launch):
        _note_failure(connection, launch, now)


def _note_failure(connection: Connection, launch: Launch, now: datetime) -> None:
    rows = connection.execute(_ENDED_LAUNCHES, {"of_watch": launch.watch, "since": to_ms(now - _FAILURE_WINDOW)})
    failed = [launch_of(row) for row in rows]
    breaker = after_failure(load_pauses(connection).breaker_of(launch.watch), failed, launch, now)
    if breaker is None:
        return
    save_breaker(connection, breaker)
    counted = sorted(filter(is_counted_failure, failed), key=lambda each: each.ended_at or now)
    newest = newest_by_place(counted)[-FAILURE_THRESHOLD:]
    alert = BREAKER.outbox(
        None,
        now,
        watch=breaker.watch,
        at_ms=to_ms(breaker.at),
        name=shlex.quote(breaker.watch),
        facts=[(f"Launch {one.launch_id}", redact(one.end_reason or "")) for one in newest],
        why=breaker.why,
        threshold=FAILURE_THRESHOLD,
        until=format_moment(breaker.until),
    )
    enqueue(connection, alert)


def with_free_slots(connection: Connection, launch: Launch) -> Launch:
    """Return its own slot and offer slot, or others if those are taken: it already exists, beyond every limit."""
    slots = set(connection.execute(select(launches.c.slot).where(IS_ALIVE, launches.c.watch == launch.watch)).scalars())
    offer_slots = select(launches.c.offer_slot).where(
        IS_ALIVE, launches.c.provider == launch.provider, launches.c.offer_id == launch.offer_id
    )
    used_slots = set(connection.execute(offer_slots).scalars())
    return msgspec.structs.replace(
        launch, slot=_free_slot(launch.slot, slots), offer_slot=_free_slot(launch.offer_slot, used_slots)
    )


def _free_slot(preferred: int, used: set[int]) -> int:
    if preferred not in used:
        return preferred
    return next(number for number in range(len(used) + 1) if number not in used)
