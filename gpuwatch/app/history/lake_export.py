"""Bring a lake up to date: all that is over, in Parquet files; for the daemon, too."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.domain.history.market_history import moment_of
from gpuwatch.domain.market.json_view import rfc3339
from gpuwatch.storage.history.lake.lake_notes import lake_verified_until_s
from gpuwatch.storage.history.lake.lake_place import open_place
from gpuwatch.storage.history.lake.lake_writer import write_lake

if TYPE_CHECKING:
    from gpuwatch.settings import Settings


class LakeExport(msgspec.Struct, frozen=True, kw_only=True):
    """What was added to a lake."""

    url: str
    files: int
    rows: int
    bytes: int
    verified_until: datetime | None  # everything that is over is in it until then; None: nothing is


def export_lake(settings: Settings, place: str, on_progress: Callable[[str, int, int], None]) -> LakeExport:
    """Write all that is over and not in the lake yet.

    Args:
        place: a folder, or s3://bucket/prefix.

    Raises:
        UsageError: the extra is not installed.
        StoreError: the store or the lake cannot be used; the files so far stay, and the next run continues.
    """
    lake = open_place(place)
    files = rows = size = 0
    with open_store(settings) as store:
        for part in write_lake(store, lake, real_now()):
            files, rows, size = files + 1, rows + part.rows, size + part.bytes
            on_progress(f"{part.dataset} {part.provider}", files, files)
        with store.read() as connection:
            until_s = lake_verified_until_s(connection, lake.url)
    return LakeExport(url=lake.url, files=files, rows=rows, bytes=size, verified_until=moment_of(until_s))


def lake_json(result: LakeExport) -> dict[str, Any]:
    """JSON of `gpuwatch store export --lake`."""
    return {**msgspec.structs.asdict(result), "verified_until": rfc3339(result.verified_until)}
