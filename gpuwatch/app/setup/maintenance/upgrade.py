"""The upgrade of a store: what would change, the backup before it, the upgrade."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.bootstrap import real_now
from gpuwatch.errors import StoreMissing, UsageError
from gpuwatch.storage.setup.backup import backup, dump_command
from gpuwatch.storage.setup.daemon_lease import claim_daemon
from gpuwatch.storage.setup.database import open_database, sqlite_path
from gpuwatch.storage.setup.migrate import newest_schema, pending_migrations, revision, upgrade

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

BACKUP_TIME = "%Y%m%dT%H%M%SZ"  # in the name of a backup


class StoreUpgrade(msgspec.Struct, frozen=True, kw_only=True):
    """What an upgrade would change, or changed.

    Attributes:
        schema_from: the schema that the database has or had; None: there is none yet.
        steps: the missing migrations, oldest first; empty: the schema is up to date.
        changes: what each of them does, by revision.
        settings_file: read and valid for this version; None: there is none.
        backup: the copy of the database before the upgrade; None: none is needed, or PostgreSQL.
        backup_command: copies a PostgreSQL database before the upgrade.
        is_done: whether the steps ran; False: nothing was changed.
    """

    database: str
    schema_from: str | None
    schema_to: str
    steps: list[str]
    changes: dict[str, str]
    settings_file: str | None
    backup: str | None = None
    backup_bytes: int | None = None
    backup_command: str | None = None
    is_done: bool = False


def planned_upgrade(settings: Settings) -> StoreUpgrade:
    """What `upgrade_store` would do now. Changes nothing. Raises StoreError, such as if a newer gpuwatch wrote it."""
    url, path = settings.database_url, sqlite_path(settings.database_url)
    try:
        with closing(open_database(url, read_only=True)) as database:
            place, schema = database.place, revision(database)
    except StoreMissing:
        place, schema = str(path), None
    changes = pending_migrations(schema, place)
    has_rows = schema is not None and bool(changes)
    return StoreUpgrade(
        database=place,
        schema_from=schema,
        schema_to=newest_schema(),
        steps=list(changes),
        changes=changes,
        settings_file=settings.source_file,
        backup=str(backup_path(path, f"{schema}")) if has_rows and path is not None else None,
        backup_command=dump_command(url, f"gpuwatch-schema-{schema}.dump") if has_rows and path is None else None,
    )


def upgrade_store(settings: Settings, *, is_backed_up: bool) -> StoreUpgrade:
    """Create the database, or back it up and upgrade it to this program's schema.

    Args:
        is_backed_up: the owner has a backup, and none is written.

    Raises:
        UsageError: PostgreSQL, which gpuwatch does not back up itself.
        StoreError: such as if a daemon uses it, or the backup cannot be written; nothing was changed.
    """
    planned = planned_upgrade(settings)
    if not planned.steps:
        return planned
    if planned.backup_command is not None and not is_backed_up:
        raise UsageError(
            f"back up {planned.database} first: {planned.backup_command} ; then run gpuwatch upgrade --backed-up"
        )
    target = None if planned.backup is None or is_backed_up else Path(planned.backup)
    with claim_daemon(settings.database_url), closing(open_database(settings.database_url)) as database:
        copied = None if target is None else backup(database, target)
        steps = upgrade(database)
    return msgspec.structs.replace(
        planned,
        steps=steps,
        backup=copied and copied.path,
        backup_bytes=copied and copied.bytes,
        backup_command=None,
        is_done=True,
    )


def backup_path(database: Path, schema: str) -> Path:
    """A new name beside the database, which says which schema the copy has, and when it was made."""
    return database.with_name(f"{database.stem}-schema-{schema}-{real_now():{BACKUP_TIME}}{database.suffix}")
