"""Maintenance of the store: upgrade, copy, prune, measure."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.bootstrap import open_store_read_only, real_now
from gpuwatch.domain.market.json_view import rfc3339
from gpuwatch.storage.history.prune import PruneReport, prune
from gpuwatch.storage.setup.backup import BackupReport, backup
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.migrate import require_head, upgrade_unused
from gpuwatch.storage.setup.store_stats import StoreStats, read_store_stats

if TYPE_CHECKING:
    from gpuwatch.settings import Settings


class StoreUpgrade(msgspec.Struct, frozen=True, kw_only=True):
    """The migrations that ran; empty: the schema was up to date."""

    database: str
    steps: list[str]


def upgrade_store(settings: Settings) -> StoreUpgrade:
    """Upgrade the database to this program's schema, or create it. Raises StoreError, such as if a daemon uses it."""
    with closing(open_database(settings.database_url)) as database:
        return StoreUpgrade(database=database.place, steps=upgrade_unused(database))


def back_up_store(settings: Settings, target: Path, *, force: bool) -> BackupReport:
    """Copy the database, of any schema, and check the copy. Raises StoreError."""
    with closing(open_database(settings.database_url, read_only=True)) as database:
        return backup(database, target, force=force)


def prune_store(settings: Settings, keep: timedelta) -> PruneReport:
    """Drop exact prices, polls and sent alerts older than `keep`. Raises StoreError."""
    with closing(open_database(settings.database_url)) as database:
        require_head(database)
        return prune(database, keep, real_now())


def store_stats(settings: Settings) -> StoreStats:
    """The size and content of the store. Raises StoreError."""
    with open_store_read_only(settings) as database:
        return read_store_stats(database)


def backup_json(report: BackupReport) -> dict[str, Any]:
    """JSON of `gpuwatch store backup`."""
    return {**msgspec.structs.asdict(report), "verified": True}


def prune_json(report: PruneReport) -> dict[str, Any]:
    """JSON of `gpuwatch store prune`."""
    return {**msgspec.structs.asdict(report), "kept_from": rfc3339(report.kept_from)}
