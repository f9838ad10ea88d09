"""Writes what is over into a lake: each part once, verified before the store notes it.

The files of an interrupted run have the same names again. What an import changed later is written anew, by months. A
month that is over becomes one file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from gpuwatch.errors import StoreError
from gpuwatch.storage.history.lake.lake_files import installation_of, verify_part, write_part
from gpuwatch.storage.history.lake.lake_months import months_in_days, rows_of_days
from gpuwatch.storage.history.lake.lake_notes import (
    REPLACED,
    LakePart,
    LakeState,
    begin_lake,
    forget_late,
    forget_part,
    lake_parts,
    lake_state,
    note_next,
    note_verified,
    replace_parts,
    rewritten,
)
from gpuwatch.storage.history.lake.lake_place import LakePlace, checksum_of
from gpuwatch.storage.history.lake.lake_query import LakeQuery
from gpuwatch.storage.history.lake.lake_schema import (
    DATASETS,
    LakeDataset,
    PartSpan,
    import_arrow,
    month_start_s,
    months_between,
    part_name,
)
from gpuwatch.storage.history.lake.lake_source import LakeSource, Rows, sort_key
from gpuwatch.storage.history.recording.late_rows import note_late
from gpuwatch.storage.history.recording.recording import seconds_since_1970
from gpuwatch.storage.setup.database import Database


def write_lake(database: Database, place: LakePlace, now: datetime) -> Iterator[LakePart]:
    """Write all that is over and not in the lake yet; yields after each file.

    Raises:
        StoreError: the store or the lake failed; the files so far stay, and the next run continues.
        UsageError: the extra is not installed.
    """
    import_arrow()
    yield from LakeWriter(database, place).add_parts(seconds_since_1970(now))


class LakeWriter:
    """Writes one lake. One at a time: two would write the same files."""

    def __init__(self, database: Database, place: LakePlace) -> None:
        self._database = database
        self._place = place
        self._source = LakeSource(database)

    def add_parts(self, now_s: int) -> Iterator[LakePart]:
        """Yield the files that are written; see `write_lake`."""
        with self._database.write() as connection:
            state, since = begin_lake(connection, self._place.url), rewritten(connection)
        self._source = LakeSource(self._database)  # has what is late by now
        self._require_mounted()
        self._delete_replaced()
        over_until_s = self._source.over_until_s(now_s)
        if over_until_s < (state.verified_until_s or 0):  # the clock was set back: what follows is not in it
            with self._database.write() as connection:
                for provider in self._source.providers:
                    note_late(connection, provider, over_until_s)
            return
        yield from self._late(state, since)
        yield from self._new(state, over_until_s)
        yield from self._join_months()

    def _new(self, state: LakeState, over_until_s: int) -> Iterator[LakePart]:
        start_s = self._start_s(state)
        until_s = over_until_s if state.next_until_s is None else state.next_until_s
        if start_s is None or start_s >= until_s:
            return
        if state.next_until_s is None:
            with self._database.write() as connection:
                note_next(connection, self._place.url, until_s)
            self._source = LakeSource(self._database)  # with what an import has added; later ones are noted as late
            start_s = self._start_s(state) or start_s
        done = {part.name for part in self._noted()}
        for span in months_between(start_s, until_s):
            for dataset in DATASETS.values():
                for provider in self._source.providers:
                    if part_name(dataset, provider, span) not in done:
                        yield from self._write(dataset, provider, span, ())
        with self._database.write() as connection:
            note_verified(connection, self._place.url, until_s)
        if state.next_until_s is not None:  # an interrupted run is complete; what was over since follows
            yield from self._new(state._replace(verified_until_s=until_s, next_until_s=None), over_until_s)

    def _start_s(self, state: LakeState) -> int | None:
        return self._source.first_s() if state.verified_until_s is None else state.verified_until_s

    def _late(self, state: LakeState, since: int) -> Iterator[LakePart]:
        """Write the months anew that an import changed; parts that the store has dropped are kept."""
        for provider, from_s in state.late.items():
            first_s = month_start_s(from_s)
            for span in months_between(first_s, state.verified_until_s or first_s):
                for dataset in DATASETS.values():
                    yield from self._write(dataset, provider, span, self._old(dataset, provider, span))
                    self._delete_replaced()
            if state.next_until_s is None:  # else parts of the interrupted run may be from before the import, too
                with self._database.write() as connection:
                    forget_late(connection, self._place.url, provider, since)

    def _join_months(self) -> Iterator[LakePart]:
        """Write each month that is over as one file, which replaces those of its days at once: in one transaction."""
        with self._database.read() as connection:
            state = lake_state(connection, self._place.url)
        until_s = 0 if state is None else state.verified_until_s or 0
        for (name, provider, month), days in months_in_days(self._noted(), until_s).items():
            rows = rows_of_days(self._place, days)
            yield from self._replace(DATASETS[name], provider, month, days, rows)
            self._delete_replaced()

    def _old(self, dataset: LakeDataset, provider: str, span: PartSpan) -> Sequence[LakePart]:
        return [
            part
            for part in self._noted()
            if (part.dataset, part.provider) == (dataset.name, provider) and span.from_s <= part.from_s < span.until_s
        ]

    def _noted(self) -> Sequence[LakePart]:
        with self._database.read() as connection:
            return lake_parts(connection, self._place.url)

    def _write(
        self, dataset: LakeDataset, provider: str, span: PartSpan, old: Sequence[LakePart]
    ) -> Iterator[LakePart]:
        """Write one file; without rows, none."""
        chunks = self._source.rows(dataset.name, provider, span)
        if old:
            chunks = iter([self._with_dropped(dataset, old, [row for rows in chunks for row in rows])])
        yield from self._replace(dataset, provider, span, old, chunks)

    def _replace(
        self, dataset: LakeDataset, provider: str, span: PartSpan, old: Sequence[LakePart], chunks: Iterator[Rows]
    ) -> Iterator[LakePart]:
        rows = next((rows for rows in chunks if rows), None)
        new = None
        if rows is not None:
            name = part_name(dataset, provider, span)
            if name in (part.name for part in old):  # a noted file stays as it is until another one is noted
                name = name.replace(".parquet", "-2.parquet")
            new = self._publish(dataset, provider, span, name, _chain(rows, chunks))
        with self._database.write() as connection:
            replace_parts(connection, self._place.url, old, new)
        if new is not None:
            yield new

    def _publish(
        self, dataset: LakeDataset, provider: str, span: PartSpan, name: str, chunks: Iterator[Rows]
    ) -> LakePart:
        self._require_own(name)
        with self._place.staged(name) as path:
            totals = write_part(path, dataset, chunks, self._source.install_id)
            verify_part(path, dataset, totals)
            size, checksum = path.stat().st_size, checksum_of(path)
        return LakePart(name, dataset.name, provider, *span, totals.rows, size, checksum)

    def _require_mounted(self) -> None:
        """Write nothing below the mount point of a disk that is not there. Raises StoreError."""
        newest = max(
            (part for part in self._noted() if part.dataset != REPLACED), key=lambda part: part.until_s, default=None
        )
        if newest is not None and not self._place.has(newest.name):
            raise StoreError(
                f"{self._place.url}/{newest.name} is missing; mount the lake's disk, restore the file from a backup, or"
                " choose another folder or prefix"
            )

    def _require_own(self, name: str) -> None:
        """Replace no file of another installation: both would miss what the other one writes. Raises StoreError."""
        if not self._place.has(name):
            return
        with TemporaryDirectory(prefix="gpuwatch-lake-") as folder:
            owner = installation_of(self._place.local(name, Path(folder)))
        if owner and owner != self._source.install_id:
            raise StoreError(f"{self._place.url} is the lake of installation {owner}; choose another folder or prefix")

    def _with_dropped(self, dataset: LakeDataset, old: Sequence[LakePart], rows: Rows) -> Rows:
        """Add the rows of files that are replaced, as far as the store has dropped them."""
        kept_from_s = self._source.kept_from_s
        if kept_from_s is None:
            return rows
        with TemporaryDirectory(prefix="gpuwatch-lake-") as folder:
            query = LakeQuery(self._place, Path(folder))
            try:
                where = f"{dataset.moment} <= make_timestamp($kept_us)"  # a price that ended then is dropped, too
                dropped = list(query.rows(old, where, {"kept_us": kept_from_s * 1_000_000}))
            finally:
                query.close()
        key = sort_key(dataset.name)
        stored = {key(row) for row in rows}
        return sorted([*rows, *(row for row in dropped if key(row) not in stored)], key=key)

    def _delete_replaced(self) -> None:
        for part in self._noted():
            if part.dataset == REPLACED:
                self._place.delete(part.name)
                with self._database.write() as connection:
                    forget_part(connection, self._place.url, part.name)


def _chain(rows: Rows, later: Iterator[Rows]) -> Iterator[Rows]:
    yield rows
    yield from later
