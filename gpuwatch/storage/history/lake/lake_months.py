"""Months that are over: which files of days one file replaces, and the rows of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from gpuwatch.errors import StoreError
from gpuwatch.storage.history.lake.lake_notes import LakePart
from gpuwatch.storage.history.lake.lake_place import LakePlace, checksum_of
from gpuwatch.storage.history.lake.lake_query import LakeQuery
from gpuwatch.storage.history.lake.lake_schema import DATASETS, ROWS_PER_GROUP, PartSpan, month_of
from gpuwatch.storage.history.lake.lake_source import ROW_ORDER, Rows


def months_in_days(parts: Iterable[LakePart], until_s: int) -> Mapping[tuple[str, str, PartSpan], Sequence[LakePart]]:
    """Return the files of each dataset, provider and month that is over by then, where these are several."""
    found: dict[tuple[str, str, PartSpan], list[LakePart]] = {}
    for part in parts:
        if part.dataset in DATASETS and (month := month_of(part.from_s)).until_s <= until_s:
            found.setdefault((part.dataset, part.provider, month), []).append(part)
    return {key: found[key] for key in sorted(found) if len(found[key]) > 1}


def rows_of_days(place: LakePlace, parts: Sequence[LakePart]) -> Iterator[Rows]:
    """Yield the rows of files in the order of one file, some at a time.

    Raises:
        StoreError: a file is missing, or not the one that was written.
    """
    with TemporaryDirectory(prefix="gpuwatch-lake-") as folder, closing(LakeQuery(place, Path(folder))) as query:
        for part in parts:  # what is read here is deleted
            if checksum_of(place.local(part.name, Path(folder))) != part.checksum:
                raise StoreError(f"{place.url}/{part.name} is not what was written; restore it from a backup")
        rows = query.rows(parts, f"true ORDER BY {', '.join(ROW_ORDER[parts[0].dataset])}", {})
        while chunk := list(islice(rows, ROWS_PER_GROUP)):
            yield chunk
