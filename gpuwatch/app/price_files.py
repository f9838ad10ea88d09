"""Import files of price rows into the store, and export the store into files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from gpuwatch.app.past_prices import default_kinds, known_gpu_names_of
from gpuwatch.bootstrap import open_store, open_store_read_only
from gpuwatch.domain.analysis.price_rows import canonical_gpu, offer_kind_of
from gpuwatch.domain.market.json_values import rfc3339
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.providers import names
from gpuwatch.storage.price_files import rows_in

if TYPE_CHECKING:
    from gpuwatch.domain.analysis.market_history import MarketFilter
    from gpuwatch.domain.analysis.price_rows import PriceRow
    from gpuwatch.settings import Settings
    from gpuwatch.storage.database import Database
    from gpuwatch.storage.price_import import ImportReport

ReportProgress = Callable[[str, int, int], None]


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """The store's own polls in the period of an import."""

    provider: str
    since: datetime
    until: datetime


class FileImport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an import."""

    found: ImportReport
    unknown: tuple[str, ...]  # providers without an adapter
    overlaps: tuple[Overlap, ...]


@contextmanager
def writable_store(settings: Settings, *, dry_run: bool) -> Iterator[Database]:
    """The store, created or upgraded if need be; for a dry run it stays as it is. Raises StoreError."""

    with open_store_read_only(settings) if dry_run else open_store(settings) as database:
        yield database


def import_file(
    database: Database, path: Path, kind: OfferKind | None, now: datetime, *, dry_run: bool, reported: ReportProgress
) -> FileImport:
    """Merge a file into the history.

    Args:
        kind: of all its prices; None: as the file says, else the provider's usual kind.

    Raises:
        UsageError: the file cannot be used.
        StoreError: the database rejected it.
    """
    from gpuwatch.storage.price_import import import_file as join
    from gpuwatch.storage.price_import import own_poll_span

    found = join(
        database, path, (kind, all_default_kinds()), int(now.timestamp()), dry_run=dry_run, on_progress=reported
    )
    known = set(names())
    providers = sorted({provider for provider, _ in found.sources})
    overlaps = []
    if found.first_s is not None and found.last_s is not None:
        for provider in providers:
            own = own_poll_span(database, provider, found.first_s, found.last_s)
            if own is not None:
                overlaps.append(Overlap(provider=provider, since=own[0], until=own[1]))
    unknown = tuple(provider for provider in providers if provider not in known)
    return FileImport(found=found, unknown=unknown, overlaps=tuple(overlaps))


def all_default_kinds() -> dict[str, OfferKind]:
    """The kind of price of each provider whose rows do not say it."""

    return default_kinds(set(names()))


def export_file(path: Path, rows: Iterator[PriceRow]) -> int:
    """Write rows. Returns their number. Raises UsageError, GpuwatchError."""
    from gpuwatch.storage.price_export import write_rows

    first = next(rows, None)
    return 0 if first is None else write_rows(path, chain((first,), rows))


def known_names_of_all(settings: Settings, texts: tuple[str, ...], data: Path | None) -> tuple[str, ...] | None:
    """The canonical names that some texts mean; None: all. Raises UsageError, StoreError."""

    return tuple(dict.fromkeys(name for text in texts for name in known_gpu_names_of(settings, text, data))) or None


@contextmanager
def exported_rows(
    settings: Settings,
    scope: MarketFilter,
    span: tuple[datetime, datetime],
    data: Path | None,
    skipped: Counter[str],
    *,
    imported_too: bool,
) -> Iterator[Iterator[PriceRow]]:
    """The rows of an export.

    Args:
        data: a file instead of the store.
        skipped: receives reason → number of rows that were not understood.

    Raises:
        UsageError: the file cannot be used.
        StoreError: the store cannot be read.
    """
    from gpuwatch.storage.price_export import history_rows

    if data is not None:
        yield _file_rows(data, scope, span, skipped)
        return
    with open_store_read_only(settings) as database:
        yield history_rows(database, scope, *span, all_default_kinds(), imported_too=imported_too)


def _file_rows(
    data: Path, scope: MarketFilter, span: tuple[datetime, datetime], skipped: Counter[str]
) -> Iterator[PriceRow]:

    from gpuwatch.storage.price_export import polled_gpus

    kinds = all_default_kinds()
    start_s, end_s = (int(moment.timestamp()) for moment in span)
    models = frozenset(canonical_gpu(row.gpu_wire, row.gpu_memory_gib)[0] for row in rows_in(data, Counter()))
    for row in rows_in(data, skipped):
        if start_s <= row.at_s < end_s and _is_meant(row, scope, models, kinds):
            yield from [row] if row.gpu_wire else (replace(row, gpu_wire=gpu) for gpu in polled_gpus("", scope))


def _is_meant(row: PriceRow, scope: MarketFilter, models: frozenset[str], kinds: dict[str, OfferKind]) -> bool:

    wanted, _, word = (scope.provider or "").partition(":")
    is_listed = offer_kind_of(row, kinds) is OfferKind.LISTED
    return (
        (not wanted or (row.provider == wanted and is_listed == (word == "listed")))
        and (not row.gpu_wire or scope.has_gpu(*canonical_gpu(row.gpu_wire, row.gpu_memory_gib), models))
        and (row.is_poll or scope.has_count(row.gpu_count))
        and scope.has_spot(row.spot)
    )


def import_json(path: Path, done: FileImport, dry_run: bool) -> dict[str, Any]:

    found = done.found
    return {
        "path": str(path),
        "dry_run": dry_run,
        "rows": found.rows,
        "new": found.new,
        "known": found.known,
        "twice": found.twice,
        "skipped": dict(found.skipped),
        "looks": found.looks,
        "since": rfc3339(moment_of(found.first_s)),
        "until": rfc3339(moment_of(found.last_s)),
        "sources": [
            {"provider": provider, "kind": kind.value, "rows": rows} for (provider, kind), rows in found.sources.items()
        ],
        "unknown_providers": list(done.unknown),
        "own_looks": [
            {"provider": one.provider, "since": rfc3339(one.since), "until": rfc3339(one.until)}
            for one in done.overlaps
        ],
    }


def moment_of(stored_s: int | None) -> datetime | None:
    """A stored time as a datetime."""
    return None if stored_s is None else datetime.fromtimestamp(stored_s, UTC)
