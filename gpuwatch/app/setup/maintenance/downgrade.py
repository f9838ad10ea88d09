"""The way back: the database as it was before an upgrade, from the backup that the upgrade wrote."""

from __future__ import annotations

import re
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gpuwatch.app.setup.maintenance.upgrade import BACKUP_TIME, backup_path
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.json_view import rfc3339
from gpuwatch.errors import StoreError, UsageError
from gpuwatch.storage.setup.backup import backup, launches_missing_in, put_in_place
from gpuwatch.storage.setup.daemon_lease import claim_daemon
from gpuwatch.storage.setup.database import Database, open_database, sqlite_path
from gpuwatch.storage.setup.migrate import revision

if TYPE_CHECKING:
    from gpuwatch.settings import Settings


class StoreDowngrade(msgspec.Struct, frozen=True, kw_only=True):
    """What a downgrade would change, or changed.

    Attributes:
        backup: what takes the place of the database.
        written_at: when that backup was made, as RFC 3339.
        kept: the copy of the database as it is now.
        launches_lost: launches that the backup does not have; they are over.
        is_done: False: nothing was changed.
    """

    database: str
    schema_from: str
    schema_to: str
    backup: str
    written_at: str
    kept: str
    launches_lost: int
    is_done: bool = False


class _Backup(NamedTuple):
    """A file that an upgrade wrote."""

    at: datetime
    schema: str
    path: Path


def planned_downgrade(settings: Settings) -> StoreDowngrade:
    """What `downgrade_store` would do now. Changes nothing. The errors are the same."""
    path = sqlite_path(settings.database_url)
    if path is None:
        raise UsageError("gpuwatch does not copy a PostgreSQL database: restore your dump with pg_restore --clean")
    with closing(open_database(settings.database_url, read_only=True)) as database:
        schema = revision(database) or ""
        newest = max((one for one in _backups(path) if one.schema < schema), default=None)
        if newest is None:
            raise StoreError(f"beside {path} is no backup of a schema before {schema}: there is nothing to go back to")
        return StoreDowngrade(
            database=database.place,
            schema_from=schema,
            schema_to=newest.schema,
            backup=str(newest.path),
            written_at=rfc3339(newest.at),
            kept=str(backup_path(path, schema)),
            launches_lost=_launches_lost(database, newest.path),
        )


def downgrade_store(settings: Settings) -> StoreDowngrade:
    """Copy the database, and put the newest backup of an older schema in its place.

    Raises:
        UsageError: PostgreSQL.
        StoreError: there is no such backup, a daemon uses the database, or a launch runs that the backup does not have;
            nothing was changed.
    """
    planned = planned_downgrade(settings)
    with claim_daemon(settings.database_url):
        with closing(open_database(settings.database_url, read_only=True)) as database:
            _launches_lost(database, Path(planned.backup))  # again: nobody changes it from here on
            backup(database, Path(planned.kept))
        put_in_place(Path(planned.backup), Path(planned.database))
    return msgspec.structs.replace(planned, is_done=True)


def _backups(database: Path) -> list[_Backup]:
    """The files that upgrades of this database wrote beside it."""
    name = re.compile(rf"{re.escape(database.stem)}-schema-(\d{{4}})-(\d{{8}}T\d{{6}}Z){re.escape(database.suffix)}")
    found = [(name.fullmatch(path.name), path) for path in database.parent.iterdir()]
    return [
        _Backup(datetime.strptime(match[2], BACKUP_TIME).replace(tzinfo=UTC), match[1], path)
        for match, path in found
        if match
    ]


def _launches_lost(database: Database, copy: Path) -> int:
    """How many launches the copy does not have. Raises StoreError: one of them is not over."""
    lost, running = launches_missing_in(copy, database)
    if running:
        raise StoreError(
            f"the backup {copy.name} does not have {count_text(len(running), 'launch')} that "
            f"{'is' if len(running) == 1 else 'are'} not over ({', '.join(running[:3])}): run `gpuwatch launches stop"
            " --all` first"
        )
    return lost
