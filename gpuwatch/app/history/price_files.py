"""Import files of price rows into the store, and export the store into files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec.structs import replace

from gpuwatch.app.history.past_prices import default_kinds, known_gpu_names_of
from gpuwatch.app.history.recorded_prices import RECORDED, recorded_prices
from gpuwatch.bootstrap import open_history, open_store, open_store_read_only, real_now
from gpuwatch.domain.history.market_history import moment_of
from gpuwatch.domain.history.price_rows import canonical_gpu, offer_kind_of
from gpuwatch.domain.market.json_view import rfc3339
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.errors import UsageError
from gpuwatch.providers import names
from gpuwatch.storage.history.imports.price_export import (
    check_export_target,
    history_rows,
    polled_gpus,
    write_csv,
    write_rows,
)
from gpuwatch.storage.history.imports.price_file_rows import read_columns
from gpuwatch.storage.history.imports.price_import import ImportReport, own_poll_span
from gpuwatch.storage.history.imports.price_import import import_file as merge_file
from gpuwatch.storage.setup.migrate import upgrade_unused

if TYPE_CHECKING:
    from gpuwatch.domain.history.market_history import MarketFilter
    from gpuwatch.domain.history.price_rows import PriceRow
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database

ReportProgress = Callable[[str, int, int], None]


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """The store's own polls in the period of an import."""

    provider: str
    since: datetime
    until: datetime


class FileImport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of importing one file."""

    path: Path
    dry_run: bool
    report: ImportReport
    unknown: tuple[str, ...]  # providers without an adapter
    overlaps: tuple[Overlap, ...]

    @property
    def is_understood(self) -> bool:
        """Whether any row was parsed, or there was none."""
        return bool(self.report.sources) or not self.report.rows


class ExportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The export request.

    Attributes:
        data: a file to read instead of the store.
        imported_too: include imported prices.
    """

    scope: MarketFilter
    since: datetime
    until: datetime
    data: Path | None
    imported_too: bool


class PriceExport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an export."""

    rows: int
    bytes: int  # of the file; 0 for a stream
    skipped: dict[str, int]  # reason → unusable rows of the file
    why_none: str | None  # why there are no rows


def import_files(
    settings: Settings,
    paths: Sequence[Path],
    kind: OfferKind | None,
    *,
    dry_run: bool,
    progress: Callable[[str], AbstractContextManager[ReportProgress]],
) -> Iterator[FileImport]:
    """Merge files into the history one after another.

    Args:
        kind: kind of all prices; None: as stated in a file, else the usual kind of the provider.
        dry_run: only count; write nothing.
        progress: a file's name → shows its progress.

    Raises:
        UsageError: a file cannot be used.
        StoreError: the store cannot be used, or rejected it.
    """
    with open_store_read_only(settings) if dry_run else open_store(settings, upgrade_unused) as database:
        for path in paths:
            with progress(f"{path.name}: ") as report:
                file_import = _import_file(database, path, kind, report, dry_run=dry_run)
            yield file_import


def import_recorded(
    settings: Settings,
    now: datetime,
    *,
    dry_run: bool,
    progress: Callable[[str], AbstractContextManager[ReportProgress]],
    provider: str = RECORDED,
) -> FileImport:
    """Merge the prices that come with gpuwatch, moved to end now, into a store that has not got them yet.

    Args:
        provider: whose prices they are said to be: that of a simulated market, or nobody's.

    Raises:
        UsageError: the store has them: moved to another moment, they would lie beside themselves.
        StoreError: the store cannot be used, or rejected them.
    """
    with open_store_read_only(settings) if dry_run else open_store(settings, upgrade_unused) as database:
        if own_poll_span(database, f"{provider}:history", 0, int(now.timestamp())) is not None:
            raise UsageError("the store already holds the recorded prices that come with gpuwatch")
        with recorded_prices(now, provider) as path, progress(f"{path.name}: ") as report:
            return replace(_import_file(database, path, None, report, dry_run=dry_run), path=Path(path.name))


def _import_file(
    database: Database, path: Path, kind: OfferKind | None, report: ReportProgress, *, dry_run: bool
) -> FileImport:
    kinds = (kind, default_kinds(set(names())))
    imported = merge_file(database, path, kinds, int(real_now().timestamp()), dry_run=dry_run, on_progress=report)
    providers = sorted({provider for provider, _ in imported.sources})
    overlaps = []
    if imported.first_s is not None and imported.last_s is not None:
        for provider in providers:
            own = own_poll_span(database, provider, imported.first_s, imported.last_s)
            if own is not None:
                overlaps.append(Overlap(provider=provider, since=own[0], until=own[1]))
    unknown = tuple(provider for provider in providers if provider not in {*names(), RECORDED})
    return FileImport(path=path, dry_run=dry_run, report=imported, unknown=unknown, overlaps=tuple(overlaps))


def known_names_of_all(settings: Settings, texts: tuple[str, ...], data: Path | None) -> tuple[str, ...] | None:
    """The canonical names for some texts; None: all. Raises UsageError, StoreError."""
    return tuple(dict.fromkeys(name for text in texts for name in known_gpu_names_of(settings, text, data))) or None


def export_prices(settings: Settings, request: ExportRequest, target: Path | IO[str], *, force: bool) -> PriceExport:
    """Write prices to a file, or as CSV to a stream. Without rows, no file is written.

    Args:
        force: replace a file of that name.

    Raises:
        UsageError: a file cannot be used, or its type cannot be written.
        StoreError: the store cannot be read.
    """
    if isinstance(target, Path):
        check_export_target(target, force=force)
    skipped: Counter[str] = Counter()
    with _rows(settings, request, skipped) as rows:
        written = write_rows(target, rows) if isinstance(target, Path) else write_csv(target, rows)
    why_none = None if written else _empty_reason(settings, request)
    size = target.stat().st_size if isinstance(target, Path) and written else 0
    return PriceExport(rows=written, bytes=size, skipped=dict(skipped), why_none=why_none)


def _empty_reason(settings: Settings, request: ExportRequest) -> str:
    if request.data is not None:
        return f"{request.data} has no such rows"
    if not request.imported_too:
        with _rows(settings, replace(request, imported_too=True), Counter()) as rows:
            if next(rows, None) is not None:
                return "all of these prices were imported; include them with --imported-too"
    return "the store has no such prices"


@contextmanager
def _rows(settings: Settings, request: ExportRequest, skipped: Counter[str]) -> Iterator[Iterator[PriceRow]]:
    """The rows of an export; `skipped` receives the reasons for unusable rows."""
    kinds = default_kinds(set(names()))
    if request.data is not None:
        yield _file_rows(request.data, request, kinds, skipped)
        return
    span = (request.since, request.until)
    with open_history(settings, request.scope, *span) as database:
        yield history_rows(database, request.scope, *span, kinds, with_imported=request.imported_too)


def _file_rows(
    data: Path, request: ExportRequest, kinds: dict[str, OfferKind], skipped: Counter[str]
) -> Iterator[PriceRow]:
    scope = request.scope
    start_s, end_s = int(request.since.timestamp()), int(request.until.timestamp())
    columns, left_out = read_columns(data)
    skipped.update(left_out)
    offers = columns.offers
    models = frozenset(canonical_gpu(offer.gpu_wire, offer.gpu_memory_gib)[0] for offer in offers)
    meant = np.array([_is_selected(offer, scope, models, kinds) for offer in offers], bool)
    for row in columns.where((start_s <= columns.at_s) & (columns.at_s < end_s) & meant[columns.offer]).rows():
        yield from [row] if row.gpu_wire else (replace(row, gpu_wire=gpu) for gpu in polled_gpus("", scope))


def _is_selected(row: PriceRow, scope: MarketFilter, models: frozenset[str], kinds: dict[str, OfferKind]) -> bool:
    provider, _, kind = (scope.provider or "").partition(":")
    is_listed = offer_kind_of(row, kinds) is OfferKind.LISTED
    return (
        (not provider or (row.provider == provider and is_listed == (kind == "listed")))
        and (not row.gpu_wire or scope.has_gpu(*canonical_gpu(row.gpu_wire, row.gpu_memory_gib), models))
        and (row.is_poll or scope.has_count(row.gpu_count))
        and scope.has_spot(row.spot)
    )


def import_json(files: Sequence[FileImport]) -> dict[str, Any]:
    """JSON of `gpuwatch store import`."""
    return {"files": [_file_json(file_import) for file_import in files]}


def _file_json(file_import: FileImport) -> dict[str, Any]:
    report = file_import.report
    return {
        "path": str(file_import.path),
        "dry_run": file_import.dry_run,
        "rows": report.rows,
        "new": report.new,
        "known": report.known,
        "twice": report.duplicates,
        "skipped": dict(report.skipped),
        "skipped_lines": {reason: list(lines) for reason, lines in report.skipped_lines.items()},
        "looks": report.polls,
        "since": rfc3339(moment_of(report.first_s)),
        "until": rfc3339(moment_of(report.last_s)),
        "sources": [
            {"provider": provider, "kind": kind.value, "rows": rows}
            for (provider, kind), rows in report.sources.items()
        ],
        "unknown_providers": list(file_import.unknown),
        "jumps": [
            {
                "provider": jump.provider,
                "gpu_family": jump.gpu_family,
                "spot": jump.spot,
                "at": rfc3339(moment_of(jump.at_s)),
                "before_usd_gpu_hour": jump.before / 1e6,
                "after_usd_gpu_hour": jump.after / 1e6,
            }
            for jump in report.jumps
        ],
        "rate_cards": list(report.rate_cards),
        "own_looks": [
            {"provider": overlap.provider, "since": rfc3339(overlap.since), "until": rfc3339(overlap.until)}
            for overlap in file_import.overlaps
        ],
    }


def export_json(target: Path, price_export: PriceExport) -> dict[str, Any]:
    """JSON of `gpuwatch store export`."""
    return {"path": str(target), "rows": price_export.rows, "bytes": price_export.bytes}
