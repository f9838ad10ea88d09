"""Files of price rows into the store, and the store into files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections import Counter

    from gpuwatch.analysis.price_rows import PriceRow
    from gpuwatch.analysis.scope import Scope
    from gpuwatch.market.offer import OfferKind
    from gpuwatch.settings import Settings
    from gpuwatch.storage.database import Database
    from gpuwatch.storage.imports import Imported

Told = Callable[[str, int, int], None]


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """The store's own looks in the time of an import."""

    provider: str
    since: datetime
    until: datetime


class FileImport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a file, and what its owner should know."""

    found: Imported
    unknown: tuple[str, ...]  # providers that gpuwatch has no adapter for
    overlaps: tuple[Overlap, ...]


@contextmanager
def writable_store(settings: Settings, *, dry_run: bool) -> Iterator[Database]:
    """The store, brought to this program's schema; for a dry run it stays as it is. Raises StoreError."""
    from gpuwatch.storage.database import open_database
    from gpuwatch.storage.migrate import require_head, upgrade

    database = open_database(settings.database_url)
    try:
        if dry_run:
            require_head(database)
        else:
            upgrade(database)
        yield database
    finally:
        database.close()


def import_file(
    database: Database, path: Path, kind: OfferKind | None, now: datetime, *, dry_run: bool, told: Told
) -> FileImport:
    """Join a file with the history.

    Args:
        kind: what all its prices are; None: as the file says, else as is usual for the provider.

    Raises:
        UsageError: the file is no good.
        StoreError: the database did not take it.
    """
    from gpuwatch.providers import names
    from gpuwatch.storage.imports import import_file as join
    from gpuwatch.storage.imports import own_looks

    found = join(database, path, (kind, usual_kinds()), int(now.timestamp()), dry_run=dry_run, told=told)
    known = set(names())
    providers = sorted({provider for provider, _ in found.sources})
    overlaps = []
    if found.first_s is not None and found.last_s is not None:
        for provider in providers:
            own = own_looks(database, provider, found.first_s, found.last_s)
            if own is not None:
                overlaps.append(Overlap(provider=provider, since=own[0], until=own[1]))
    unknown = tuple(provider for provider in providers if provider not in known)
    return FileImport(found=found, unknown=unknown, overlaps=tuple(overlaps))


def usual_kinds() -> dict[str, OfferKind]:
    """What the prices of each provider are where nothing says it."""
    from gpuwatch.providers import names
    from gpuwatch.wiring.past import kinds_of_providers

    return kinds_of_providers(set(names()))


def export_file(path: Path, rows: Iterator[PriceRow]) -> int:
    """Write rows; answers how many there are. Raises UsageError, GpuwatchError."""
    from gpuwatch.storage.exports import write_rows

    first = next(rows, None)
    return 0 if first is None else write_rows(path, chain((first,), rows))


def all_meant(settings: Settings, texts: tuple[str, ...], data: Path | None) -> tuple[str, ...] | None:
    """Canonical names of what an owner wrote; None: all. Raises UsageError, StoreError."""
    from gpuwatch.wiring.past import gpus_meant

    return tuple(dict.fromkeys(name for text in texts for name in gpus_meant(settings, text, data))) or None


@contextmanager
def exported_rows(
    settings: Settings,
    scope: Scope,
    span: tuple[datetime, datetime],
    data: Path | None,
    skipped: Counter[str],
    *,
    imported_too: bool,
) -> Iterator[Iterator[PriceRow]]:
    """The rows that an export writes.

    Args:
        data: a file instead of the store.
        skipped: is added to: reason → rows of the file that could not be understood.

    Raises:
        UsageError: the file is no good.
        StoreError: the store cannot be read.
    """
    from gpuwatch.storage.exports import history_rows
    from gpuwatch.wiring.past import opened_store

    if data is not None:
        yield _file_rows(data, scope, span, skipped)
        return
    with opened_store(settings) as database:
        yield history_rows(database, scope, *span, usual_kinds(), imported_too=imported_too)


def _file_rows(data: Path, scope: Scope, span: tuple[datetime, datetime], skipped: Counter[str]) -> Iterator[PriceRow]:
    from collections import Counter

    from msgspec.structs import replace

    from gpuwatch.analysis.price_rows import gpu_of
    from gpuwatch.storage.exports import looked_at
    from gpuwatch.storage.price_files import rows_in

    kinds = usual_kinds()
    start_s, end_s = (int(moment.timestamp()) for moment in span)
    models = frozenset(gpu_of(row.gpu_wire, row.gpu_memory_gib)[0] for row in rows_in(data, Counter()))
    for row in rows_in(data, skipped):
        if start_s <= row.at_s < end_s and _is_meant(row, scope, models, kinds):
            yield from [row] if row.gpu_wire else (replace(row, gpu_wire=gpu) for gpu in looked_at("", scope))


def _is_meant(row: PriceRow, scope: Scope, models: frozenset[str], kinds: dict[str, OfferKind]) -> bool:
    from gpuwatch.analysis.price_rows import gpu_of, kind_of
    from gpuwatch.market.offer import OfferKind

    wanted, _, word = (scope.provider or "").partition(":")
    is_listed = kind_of(row, kinds) is OfferKind.LISTED
    return (
        (not wanted or (row.provider == wanted and is_listed == (word == "listed")))
        and (not row.gpu_wire or scope.has_gpu(*gpu_of(row.gpu_wire, row.gpu_memory_gib), models))
        and (row.is_look or scope.has_count(row.gpu_count))
        and scope.has_spot(row.spot)
    )
