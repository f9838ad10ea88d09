"""Renting on and off, and the machines that are left alone: what the owner says on the command line."""

from __future__ import annotations

import shlex
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from gpuwatch.bootstrap import open_store, open_store_read_only, real_now
from gpuwatch.domain.launches.machines import AvoidedMachine, MachineNote, MachineVerdict
from gpuwatch.domain.launches.pause import Pause
from gpuwatch.domain.market.json_values import rfc3339
from gpuwatch.errors import UsageError
from gpuwatch.storage.machine_notes import SqlMachineNoteRepository
from gpuwatch.storage.pauses import PauseTable, SqlPauseRepository

if TYPE_CHECKING:
    from gpuwatch.settings import Settings
    from gpuwatch.storage.database import Database


# --- pauses -----------------------------------------------------------------------------------------------------------


def pauses(settings: Settings) -> PauseTable:
    """What is paused, and which watches' breakers are open. Raises StoreError."""
    with open_store_read_only(settings) as store:
        return SqlPauseRepository(store).load()


def pause(settings: Settings, watch: str | None, for_s: float | None, why: str) -> PauseTable:
    """No new rent by any daemon on this database from its return on; what runs goes on.

    Args:
        watch: None: nothing at all is rented.
        for_s: None: until it is resumed.

    Raises:
        UsageError: there is no such watch: a slip must not leave it renting.
        StoreError: it was not written; nothing is paused.
    """
    if watch is not None:
        _known_watch(settings, watch)
    now = real_now()
    until = None if for_s is None else now + timedelta(seconds=for_s)
    with open_store(settings) as store:
        return SqlPauseRepository(store).pause(Pause(watch=watch, at=now, until=until, why=why))


def resume(settings: Settings, watch: str | None) -> tuple[bool, PauseTable]:
    """Lift a pause; of a watch also close its breaker.

    Returns:
        Whether anything was lifted, and what is paused still.

    Raises:
        UsageError: there is no such watch, and none of that name is paused.
        StoreError: it was not written.
    """
    with open_store(settings) as store:
        book = SqlPauseRepository(store)
        found = book.load()
        named = {one.watch for one in found.by_hand} | {one.watch for one in found.breakers}
        if watch is not None and watch not in named:
            _known_watch(settings, watch)
        return book.resume(watch, real_now(), "resumed by the owner")


def renting_lines(store: Database, now: datetime, zone: str = "UTC") -> list[str]:
    """What keeps watches from renting now, a sentence each; empty: nothing does. Raises StoreError."""
    return pause_lines(SqlPauseRepository(store).load(), now, zone)


def pause_lines(found: PauseTable, now: datetime, zone: str = "UTC") -> list[str]:
    """The same, of pauses that were read already."""
    shown = ZoneInfo(zone)
    by_hand = [f"{one.text(shown)}; to go on: {_resume(one.watch)}" for one in found.holding(now)]
    broken = []
    for breaker in found.open_breakers():
        again = (
            "is trying once more"
            if breaker.until <= now
            else f"tries again, once, after {breaker.until.astimezone(shown):%Y-%m-%d %H:%M %Z}"
        )
        broken.append(f"Watch {breaker.watch!r} {again}: {breaker.why}; to go on: {_resume(breaker.watch)}")
    return by_hand + broken


def status_part(store: Database, now: datetime) -> str | None:
    """For the daemon's one-line status: "PAUSED until 14:00 UTC", "1 watch resting"; None: all may rent.

    Raises:
        StoreError: the pauses cannot be read.
    """
    found = SqlPauseRepository(store).load()
    parts = []
    for one in found.holding(now):
        until = "" if one.until is None else f" until {one.until:%Y-%m-%d %H:%M} UTC"
        parts.append(f"{'renting' if one.watch is None else one.watch} PAUSED{until}")
    if resting := len(found.open_breakers()):
        parts.append(f"{resting} {'watch rests' if resting == 1 else 'watches rest'} after failures")
    return ", ".join(parts) or None


def _resume(watch: str | None) -> str:
    return "gpuwatch resume" if watch is None else f"gpuwatch resume {shlex.quote(watch)}"


def _known_watch(settings: Settings, name: str) -> None:
    known = [*(watch.name for watch in settings.watches), *settings.left_out]
    if name not in known:
        names = ", ".join(known) or "none"
        raise UsageError(f"there is no watch {name!r}; watches: {names}")


# --- machines ---------------------------------------------------------------------------------------------------------


def machines_avoided(settings: Settings) -> list[AvoidedMachine]:
    """Machines that are not rented now, and why. Raises StoreError."""
    with open_store_read_only(settings) as store:
        return _avoided(settings, store)


def block_machine(
    settings: Settings, provider: str | None, machine_id: str, for_s: float | None, why: str
) -> MachineNote:
    """Never rent it, or not before its time is over. Raises UsageError, StoreError."""
    if not machine_id.strip() or not machine_id.isprintable():
        raise UsageError("say which machine: its number, as gpuwatch offers --json names it")
    now = real_now()
    until = None if for_s is None else now + timedelta(seconds=for_s)
    note = MachineNote(
        provider=resolve_provider(settings, provider),
        machine_id=machine_id,
        verdict=MachineVerdict.BLOCKED,
        at=now,
        until=until,
        why=why,
    )
    with open_store(settings) as store:
        SqlMachineNoteRepository(store).note(note)
    return note


def allow_machine(
    settings: Settings, provider: str | None, machine_id: str, forgive_only: bool
) -> AvoidedMachine | None:
    """Rent it again: a block is lifted, and what failed on it is forgotten.

    Args:
        forgive_only: leave a block of the owner's alone.

    Returns:
        What it was avoided for; None: it was not.

    Raises:
        UsageError: it is blocked, and was only to be forgiven; or there is no such provider.
        StoreError: it was not written.
    """
    name = resolve_provider(settings, provider)
    with open_store(settings) as store:
        stood = {(one.provider, one.machine_id): one for one in _avoided(settings, store)}.get((name, machine_id))
        if forgive_only and stood is not None and stood.by_owner:
            raise UsageError(
                f"machine {machine_id} is blocked by you; to lift it: gpuwatch machines allow {machine_id}"
            )
        allowed = MachineNote(provider=name, machine_id=machine_id, verdict=MachineVerdict.ALLOWED, at=real_now())
        SqlMachineNoteRepository(store).note(allowed)
        return stood


def _avoided(settings: Settings, store: Database) -> list[AvoidedMachine]:
    relaunching = [one.name for one in settings.watches if one.launch is not None and one.launch.relaunch]
    found = SqlMachineNoteRepository(store).avoided(real_now(), relaunching)
    return [found[key] for key in sorted(found)]


def resolve_provider(settings: Settings, name: str | None) -> str:
    """The one that is meant: named, or the only one that is enabled."""
    if name is not None and name in settings.providers:
        return name
    enabled = ", ".join(settings.providers) or "none"
    if name is not None:
        raise UsageError(f"there is no enabled provider {name!r}; enabled: {enabled}")
    if len(settings.providers) != 1:
        raise UsageError(f"say which provider: --provider NAME; enabled: {enabled}")
    return next(iter(settings.providers))


def pauses_json(found: PauseTable) -> list[dict[str, Any]]:
    """`until` of a breaker: then it tries once more."""
    from gpuwatch.bootstrap import real_now

    by_hand = [("hand", one.watch, one.at, one.until, one.why) for one in found.holding(real_now())]
    broken = [("breaker", one.watch, one.at, one.until, one.why) for one in found.open_breakers()]
    return [
        {"kind": kind, "watch": watch, "since": rfc3339(since), "until": rfc3339(until), "why": why}
        for kind, watch, since, until, why in [*by_hand, *broken]
    ]


def avoided_machine_json(one: AvoidedMachine) -> dict[str, Any]:

    return {
        "provider": one.provider,
        "machine_id": one.machine_id,
        "reason": "blocked" if one.by_owner else "failed",
        "why": one.why,
        "since": rfc3339(one.since),
        "until": rfc3339(one.until),
        "launch_id": one.launch_id,
    }
