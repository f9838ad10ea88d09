"""What the store notes about lakes: until when all is verified there, in which files, and what an import changed since.

Pruning asks `lake_verified_until_s`: it drops nothing that is not verified.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, delete, select, update

from gpuwatch.storage.history.lake.lake_schema import month_start_s
from gpuwatch.storage.history.recording.late_rows import late_of, write_late
from gpuwatch.storage.setup.side_tables import lake, lake_part
from gpuwatch.storage.setup.stored_values import insert_if_absent, upsert
from gpuwatch.storage.setup.tables import history_state

REPLACED = "replaced"  # in place of its dataset: a file that is to be deleted


class LakePart(NamedTuple):
    """A verified file of a lake."""

    name: str
    dataset: str
    provider: str
    from_s: int
    until_s: int
    rows: int
    bytes: int
    checksum: str


class LakeState(NamedTuple):
    """How far a lake is; see the table."""

    complete_from_s: int | None
    verified_until_s: int | None
    next_until_s: int | None
    late: dict[str, int]


_PART_COLUMNS = [lake_part.c[name] for name in LakePart._fields]


def lake_state(connection: Connection, url: str) -> LakeState | None:
    """Return the state of a lake; None: it was never written."""
    row = connection.execute(
        select(lake.c.complete_from_s, lake.c.verified_until_s, lake.c.next_until_s, lake.c.late).where(
            lake.c.url == url
        )
    ).first()
    return None if row is None else LakeState(*row[:3], late_of(row[3]))


def lake_verified_until_s(connection: Connection, url: str) -> int | None:
    """Return until when everything that is over is in a lake and verified; None: nothing is."""
    state = lake_state(connection, url)
    if state is None or state.verified_until_s is None:
        return None
    return min((state.verified_until_s, *map(month_start_s, state.late.values())))


def lake_parts(connection: Connection, url: str) -> Sequence[LakePart]:
    """Return all files of a lake, also those to be deleted, by name."""
    rows = connection.execute(select(*_PART_COLUMNS).where(lake_part.c.url == url).order_by(lake_part.c.name))
    return [LakePart(*row) for row in rows]


def begin_lake(connection: Connection, url: str) -> LakeState:
    """Note that a lake exists, if it is new; return its state."""
    kept_from_s = connection.execute(select(history_state.c.kept_from_s)).scalar_one()
    insert_if_absent(connection, lake, {"url": url, "complete_from_s": kept_from_s})
    state = lake_state(connection, url)
    assert state is not None
    return state


def note_next(connection: Connection, url: str, next_until_s: int) -> None:
    """Note what is being written: after an interruption, the same files are."""
    connection.execute(update(lake).where(lake.c.url == url).values(next_until_s=next_until_s))


def note_verified(connection: Connection, url: str, until_s: int) -> None:
    """Note that all files until then are written and verified."""
    connection.execute(update(lake).where(lake.c.url == url).values(verified_until_s=until_s, next_until_s=None))


def note_part(connection: Connection, url: str, part: LakePart) -> None:
    """Note a verified file."""
    upsert(connection, lake_part, {"url": url, **part._asdict()})


def replace_parts(connection: Connection, url: str, old: Iterable[LakePart], new: LakePart | None) -> None:
    """Note a verified file in place of others; these can be deleted then."""
    names = [part.name for part in old]
    connection.execute(
        update(lake_part).where(lake_part.c.url == url, lake_part.c.name.in_(names)).values(dataset=REPLACED)
    )
    if new is not None:
        note_part(connection, url, new)


def forget_part(connection: Connection, url: str, name: str) -> None:
    """Forget a deleted file."""
    connection.execute(delete(lake_part).where(lake_part.c.url == url, lake_part.c.name == name))


def rewritten(connection: Connection) -> int:
    """Return a number that grows with every change of what was over."""
    return int(connection.execute(select(history_state.c.rewritten)).scalar_one())


def forget_late(connection: Connection, url: str, provider: str, since: int) -> None:
    """Forget it, once the parts are written anew; an import in the meantime stays noted.

    Args:
        since: `rewritten` before the first row was read.
    """
    state = lake_state(connection, url)
    if state is not None and rewritten(connection) == since:
        write_late(connection, url, {name: at_s for name, at_s in state.late.items() if name != provider})
