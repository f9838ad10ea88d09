"""Converts launches to rows and back; their transitions to events."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, and_, func, inspect, select

from gpuwatch.domain.launches.instance import SshAddress
from gpuwatch.domain.launches.interruption import InterruptionNotice
from gpuwatch.domain.launches.kept_disk import KeptDisk
from gpuwatch.domain.launches.launch import InstanceCondition, Launch, LaunchState, PriceSpan, Promise
from gpuwatch.domain.launches.life.launch_record import LaunchEvent
from gpuwatch.domain.launches.money.launch_costs import cost_microusd
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.stored_values import from_ms, to_ms
from gpuwatch.storage.setup.tables import IS_ALIVE
from gpuwatch.storage.setup.tables import launch as launch_table

_TIMES = ("intended_at", "requested_at", "running_at", "ended_at", "condition_since")
_SPANS_DECODER = msgspec.json.Decoder(list[tuple[int, int, int]])
_PROMISE_DECODER = msgspec.json.Decoder(Promise)
_SSH_DECODER = msgspec.json.Decoder(SshAddress)
_KEPT_DECODER = msgspec.json.Decoder(KeptDisk)
_NOTICE_DECODER = msgspec.json.Decoder(InterruptionNotice)
_MAX_CAUSE_LENGTH = 200
_MAX_MESSAGE_LENGTH = 500


def alive_in_any_schema(connection: Connection) -> list[tuple[str, str | None, str]]:
    """Return provider, instance id and label of active launches: columns that exist in every schema."""
    query = select(launch_table.c.provider, launch_table.c.instance_id, launch_table.c.label)
    rows = connection.execute(query.where(IS_ALIVE))
    return [(row.provider, row.instance_id, row.label) for row in rows]


def launch_row_of(launch: Launch) -> dict[str, Any]:
    """Return the row of a launch."""
    row = msgspec.structs.asdict(launch)
    for name in _TIMES:
        row[f"{name}_ms"] = to_ms(row.pop(name))
    spans = [[to_ms(s.since), s.listed_microusd_hour, s.price_microusd_hour] for s in launch.spans]
    notice = launch.interruption
    ended_at = launch.ended_at if launch.is_over and not launch.dry_run else None
    return row | {
        "spent_microusd": None if ended_at is None else cost_microusd(launch, ended_at),
        "state": launch.state.value,
        "spot": int(launch.spot),
        "condition": None if launch.condition is None else launch.condition.value,
        "spans": msgspec.json.encode(spans).decode() if spans else None,
        "promised": msgspec.json.encode(launch.promised).decode(),
        "ssh": None if launch.ssh is None else msgspec.json.encode(launch.ssh).decode(),
        "kept": None if launch.kept is None else msgspec.json.encode(launch.kept).decode(),
        "interruption": None if notice is None else msgspec.json.encode(notice).decode(),
    }


def launch_of(row: Row[Any]) -> Launch:
    """Return the launch of a row."""
    values = dict(row._mapping)
    for name in _TIMES:
        values[name] = from_ms(values.pop(f"{name}_ms"))
    condition, notice = values["condition"], values["interruption"]
    del values["spent_microusd"]  # it follows from the rest
    return Launch(
        **values
        | {
            "state": LaunchState(values["state"]),
            "spot": bool(values["spot"]),
            "condition": None if condition is None else InstanceCondition(condition),
            "spans": _spans(values["spans"]),
            "ssh": None if values["ssh"] is None else _SSH_DECODER.decode(values["ssh"]),
            "kept": None if values["kept"] is None else _KEPT_DECODER.decode(values["kept"]),
            "interruption": None if notice is None else _NOTICE_DECODER.decode(notice),
            "promised": Promise() if values["promised"] is None else _PROMISE_DECODER.decode(values["promised"]),
        }
    )


def _spans(encoded: str | None) -> tuple[PriceSpan, ...]:
    rows = _SPANS_DECODER.decode(encoded or "[]")
    return tuple(PriceSpan(from_ms(since_ms), listed, price) for since_ms, listed, price in rows)


def row_of_event(
    launch: Launch, from_: LaunchState | None, cause: str, now: datetime, message: str | None = None
) -> dict[str, Any]:
    """Return the row of a transition: its cause, the provider's message, and the price from then on."""
    return {
        "launch_id": launch.launch_id,
        "at_ms": to_ms(now),
        "from_state": None if from_ is None else from_.value,
        "to_state": launch.state.value,
        "cause": cause[:_MAX_CAUSE_LENGTH],
        "provider_message": message[:_MAX_MESSAGE_LENGTH] if message else None,
        "listed_microusd_hour": launch.listed_microusd_hour,
        "price_microusd_hour": launch.price_microusd_hour,
    }


def event_of_row(row: Row[Any]) -> LaunchEvent:
    """Return the event of a row."""
    return LaunchEvent(
        at=from_ms(row.at_ms),
        from_state=None if row.from_state is None else LaunchState(row.from_state),
        to_state=LaunchState(row.to_state),
        cause=row.cause,
        provider_words=row.provider_message,
        listed_microusd_hour=row.listed_microusd_hour,
        price_microusd_hour=row.price_microusd_hour,
    )


def count_alive(database: Database) -> int:
    """Return the number of active launches, in any schema. Raises StoreError."""
    with database.read() as connection:
        if not inspect(connection).has_table(launch_table.name):
            return 0
        alive = and_(IS_ALIVE, launch_table.c.dry_run.is_(False))
        return int(connection.execute(select(func.count()).select_from(launch_table).where(alive)).scalar_one())
