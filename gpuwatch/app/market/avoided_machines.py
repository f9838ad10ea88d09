"""Machines that watches avoid: list them, block one, allow one again."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from gpuwatch.app.owner_audit import audit_event
from gpuwatch.bootstrap import open_store, open_store_read_only, real_now
from gpuwatch.bootstrap.provider_access import resolve_provider
from gpuwatch.domain.launches.instances.machines_and_places import AvoidedMachine, MachineNote, MachineVerdict
from gpuwatch.domain.market.json_view import JsonView, Moment
from gpuwatch.domain.watches.past_limits import UNKNOWN_RELIABILITY, reputation
from gpuwatch.errors import RefusalScope, UsageError
from gpuwatch.storage.launches.renting_blocks import SqlMachineNoteRepository, SqlSkippedScopes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuwatch.domain.launches.life.refused_scopes import SkippedScope
    from gpuwatch.domain.watches.past_limits import MachineRecords
    from gpuwatch.ports import OutboxAlert
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database


def avoided_machines(settings: Settings) -> list[AvoidedMachine]:
    """Machines that gpuwatch does not rent now, and why. Raises StoreError."""
    with open_store_read_only(settings) as store:
        return _read_avoided(settings, store)


def machine_records(settings: Settings) -> MachineRecords:
    """The record of your launches of the last 90 days, by machine. Raises StoreError."""
    with open_store_read_only(settings) as store:
        return SqlMachineNoteRepository(store).records(real_now())


def skipped_scopes(settings: Settings) -> Sequence[SkippedScope]:
    """Scopes in which no orders are sent for a while, because an order was refused. Raises StoreError."""
    with open_store_read_only(settings) as store:
        return SqlSkippedScopes(store).in_force(real_now())


def block_machine(
    settings: Settings, provider: str | None, machine_id: str, for_s: float | None, why: str, *, actor: str
) -> MachineNote:
    """Block this machine for a while, or (None) permanently. Raises UsageError, StoreError."""
    if not machine_id.strip() or not machine_id.isprintable():
        raise UsageError("expected a machine number, as shown by gpuwatch offers --json")
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
        blocked = [one for one in _read_avoided(settings, store) if one.by_owner and one.machine_id == machine_id]
        is_repeated = any(
            one.provider == note.provider and one.until is None is until and why in {"", one.why} for one in blocked
        )
        if not is_repeated:
            audit = _audit(actor, note, f"blocked{f': {why}' if why else ''}")
            SqlMachineNoteRepository(store).note(note, audit)
    return note


def allow_machine(
    settings: Settings, provider: str | None, machine_id: str, forgive_only: bool, *, actor: str
) -> AvoidedMachine | None:
    """Rent a machine again: unblock it and clear its failures.

    Args:
        forgive_only: only clear failures; a machine that the owner blocked is an error.

    Returns:
        Why it was avoided; None: it was not avoided.

    Raises:
        UsageError: the owner blocked it and `forgive_only` is set, or no such provider.
        StoreError: nothing was written.
    """
    name = resolve_provider(settings, provider)
    with open_store(settings) as store:
        before = {
            (avoided_machine.provider, avoided_machine.machine_id): avoided_machine
            for avoided_machine in _read_avoided(settings, store)
        }.get((name, machine_id))
        if forgive_only and before is not None and before.by_owner:
            raise UsageError(
                f"you blocked machine {machine_id}; unblock it with: gpuwatch providers machines allow {machine_id}"
            )
        allowed = MachineNote(provider=name, machine_id=machine_id, verdict=MachineVerdict.ALLOWED, at=real_now())
        SqlMachineNoteRepository(store).note(allowed, None if before is None else _audit(actor, allowed, "allowed"))
        return before


def _audit(actor: str, note: MachineNote, action: str) -> OutboxAlert:
    return audit_event(actor, f"machine {note.machine_id} at {note.provider} {action}", subject=note.machine_id)


def _read_avoided(settings: Settings, store: Database) -> list[AvoidedMachine]:
    relaunching = [watch.name for watch in settings.watches if watch.launch is not None and watch.launch.relaunch]
    avoided = SqlMachineNoteRepository(store).avoided(real_now(), relaunching)
    return [avoided[key] for key in sorted(avoided)]


class AvoidedMachineView(JsonView, frozen=True, kw_only=True):
    """One machine of `gpuwatch providers machines`."""

    provider: str
    machine_id: str
    reason: Literal["blocked", "failed"]
    why: str
    since: Moment
    until: Moment | None
    launch_id: str | None


def avoided_machine_view(avoided: AvoidedMachine) -> AvoidedMachineView:
    """An avoided machine as other programs see it."""
    return AvoidedMachineView.of(avoided, reason="blocked" if avoided.by_owner else "failed")


class MachineRecordView(JsonView, frozen=True, kw_only=True):
    """One row of `gpuwatch providers machines --reputation`; an unknown reliability is shown as assumed."""

    provider: str
    machine_id: str
    good: int
    failed: int
    reputation: float
    reliability_assumed: float = UNKNOWN_RELIABILITY


def machine_record_views(records: MachineRecords) -> list[MachineRecordView]:
    """The records as other programs see them, worst first."""
    views = [
        MachineRecordView(
            provider=provider,
            machine_id=machine_id,
            good=record.good,
            failed=record.bad,
            reputation=round(reputation(None, record), 4),
        )
        for (provider, machine_id), record in records.items()
    ]
    return sorted(views, key=lambda view: (view.reputation, view.provider, view.machine_id))


class SkippedScopeView(JsonView, frozen=True, kw_only=True):
    """One row of `gpuwatch providers machines --scopes`."""

    provider: str
    scope: RefusalScope
    key: str
    watch: str | None
    why: str
    since: Moment
    until: Moment
    launch_id: str | None
