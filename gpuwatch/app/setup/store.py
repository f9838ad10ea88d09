"""Maintenance of the store: copy, prune, measure."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.bootstrap import open_store_read_only, real_now
from gpuwatch.domain.market.json_view import rfc3339
from gpuwatch.domain.setup.history_keep import HistoryKeep
from gpuwatch.errors import StoreError, UsageError
from gpuwatch.storage.history.prune import PruneReport, prune
from gpuwatch.storage.history.store_growth import StoreGrowth, read_growth
from gpuwatch.storage.history.table_ends import is_kept_by_default
from gpuwatch.storage.setup.backup import BackupReport, backup, rebuild
from gpuwatch.storage.setup.daemon_lease import claim_daemon
from gpuwatch.storage.setup.database import open_database, sqlite_path
from gpuwatch.storage.setup.migrate import require_head
from gpuwatch.storage.setup.store_stats import StoreStats, read_store_stats

if TYPE_CHECKING:
    from gpuwatch.settings import Settings


def back_up_store(settings: Settings, target: Path, *, force: bool) -> BackupReport:
    """Copy the database, of any schema, and check the copy. Raises StoreError."""
    with closing(open_database(settings.database_url, read_only=True)) as database:
        return backup(database, target, force=force)


def prune_store(settings: Settings, keep: timedelta | None) -> PruneReport:
    """Delete what is over.

    Args:
        keep: of everything but hourly prices; None: as `[history] keep` says.

    Raises:
        UsageError: neither is set, and the store is older than that setting.
        StoreError: the store failed; earlier deletions remain.
    """
    with closing(open_database(settings.database_url)) as database:
        require_head(database)
        spans = keep or settings.history.keep
        if spans is None:
            with database.read() as connection:
                if not is_kept_by_default(connection):
                    raise UsageError("the store has rows from before [history] keep: set it, or --keep-days")
            spans = HistoryKeep()
        return prune(database, spans, real_now(), settings.history.lake)


def rebuild_store(settings: Settings) -> int:
    """Rewrite SQLite's file without its free pages; return its bytes.

    Raises:
        UsageError: it is PostgreSQL.
        StoreError: a daemon uses it, or the disk is full.
    """
    path = sqlite_path(settings.database_url)
    if path is None:
        raise UsageError("PostgreSQL reuses its free space by itself; to give it back, run VACUUM FULL there")
    if not path.exists():
        raise StoreError(f"there is no database {path} to rewrite")
    with claim_daemon(settings.database_url):
        return rebuild(path)


def store_stats(settings: Settings) -> tuple[StoreStats, StoreGrowth]:
    """The size, the content and the growth of the store. Raises StoreError."""
    with open_store_read_only(settings) as database:
        stats = read_store_stats(database)
        return stats, read_growth(database, settings.history.keep, real_now(), stats.rows)


def backup_json(report: BackupReport) -> dict[str, Any]:
    """JSON of `gpuwatch store backup`."""
    return {**msgspec.structs.asdict(report), "verified": True}


def prune_json(report: PruneReport) -> dict[str, Any]:
    """JSON of `gpuwatch store prune`."""
    return {**msgspec.structs.asdict(report), "kept_from": report.kept_from and rfc3339(report.kept_from)}


def stats_json(stats: StoreStats, growth: StoreGrowth) -> dict[str, Any]:
    """JSON of `gpuwatch store stats`."""
    return {**msgspec.structs.asdict(stats), "growth": growth}
