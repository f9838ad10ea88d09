"""Reads files of a lake with DuckDB: with a limit for its memory, and without anything from the network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuwatch.errors import StoreError, UsageError
from gpuwatch.installation import install_hint
from gpuwatch.storage.history.lake.lake_notes import LakePart
from gpuwatch.storage.history.lake.lake_place import LakePlace
from gpuwatch.storage.history.lake.lake_schema import DATASETS, VERSION_KEY, check_version

MEMORY_LIMIT = "128MB"
_ROWS_PER_FETCH = 2_000  # one may be a day of polls
_FILES_PER_QUERY = 64
_FILES = "read_parquet($files, hive_partitioning=false)"
_VERSIONS = f"SELECT file_name, decode(value) FROM parquet_kv_metadata($files) WHERE decode(key) = '{VERSION_KEY}'"  # noqa: S608
_ROW_COUNTS = "SELECT file_name, num_rows FROM parquet_file_metadata($files)"


def open_duckdb(folder: Path) -> Any:
    """An empty DuckDB in memory, which spills into a folder. Raises UsageError: the extra is not installed."""
    try:
        import duckdb  # noqa: PLC0415 an extra
    except ImportError as error:
        raise UsageError(f"prices of the lake are read with DuckDB: {install_hint('lake')}") from error
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": MEMORY_LIMIT,
        "threads": "2",
        "temp_directory": str(folder / "spill"),
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    return duckdb.connect(":memory:", config=config)


class LakeQuery:
    """Queries over files of a lake.

    Args:
        folder: for copies of remote files, and what does not fit in the memory limit.
    """

    def __init__(self, place: LakePlace, folder: Path) -> None:
        self._place = place
        self._folder = folder
        self._duckdb = open_duckdb(folder)
        self._paths: dict[str, str] = {}  # name → local file
        self._checked: set[str] = set()

    def close(self) -> None:
        """End it."""
        self._duckdb.close()

    def rows(
        self, parts: Sequence[LakePart], where: str, values: Mapping[str, Any], columns: str | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """Yield rows of parts of one dataset, in the order of its columns; moments as whole seconds.

        Args:
            where: a condition in DuckDB's SQL, with the values as `$name`.
            columns: other columns, or aggregates of each file.

        Raises:
            StoreError: a file is missing, broken, or of another version; the message names it.
            UsageError: DuckDB is not installed.
        """
        for start in range(0, len(parts), _FILES_PER_QUERY):
            chunk = parts[start : start + _FILES_PER_QUERY]
            yield from self._rows(chunk, where, values, columns or selected(chunk[0].dataset))

    def _rows(
        self, parts: Sequence[LakePart], where: str, values: Mapping[str, Any], columns: str
    ) -> Iterator[tuple[Any, ...]]:
        import duckdb  # noqa: PLC0415 an extra

        for part in parts:
            if part.name not in self._paths:
                self._paths[part.name] = str(self._place.local(part.name, self._folder))
        paths = {self._paths[part.name]: part for part in parts}
        query = f"SELECT {columns} FROM {_FILES} WHERE {where}"  # noqa: S608
        try:
            self._check({path: part for path, part in paths.items() if path not in self._checked})
            result = self._duckdb.execute(query, {"files": list(paths), **values})
            while rows := result.fetchmany(_ROWS_PER_FETCH):
                yield from rows
        except duckdb.Error as error:
            raise self._fault(paths, columns, error) from error

    def _check(self, paths: Mapping[str, LakePart]) -> None:
        """Check the version and the number of rows in the footer of each file: what DuckDB would not miss."""
        if not paths:
            return
        files = {"files": list(paths)}
        versions = dict(self._duckdb.execute(_VERSIONS, files).fetchall())
        for path, rows in self._duckdb.execute(_ROW_COUNTS, files).fetchall():
            part = paths[path]
            check_version(f"{self._place.url}/{part.name}", versions.get(path))
            if rows != part.rows:
                raise self._broken(part, f"it has {rows} rows instead of {part.rows}")
        self._checked.update(paths)

    def _fault(self, paths: Mapping[str, LakePart], columns: str, fault: Exception) -> StoreError:
        """Find the file that cannot be read: DuckDB's errors do not always name it."""
        import duckdb  # noqa: PLC0415 an extra

        for path, part in paths.items():
            try:
                result = self._duckdb.execute(f"SELECT {columns} FROM {_FILES}", {"files": [path]})  # noqa: S608
                while result.fetchmany(_ROWS_PER_FETCH):
                    pass
            except duckdb.Error as error:
                return self._broken(part, error)
        return StoreError(f"cannot read the lake {self._place.url}: {_line(fault)}")

    def _broken(self, part: LakePart, reason: object) -> StoreError:
        return StoreError(
            f"{self._place.url}/{part.name} is broken ({_line(reason)}); restore it, the store no longer has its prices"
        )


def _line(error: object) -> str:
    return " ".join(str(error).split())[:200]


def selected(dataset: str, names: Sequence[str] = ()) -> str:
    """Columns of a dataset, or all in its order, in DuckDB's SQL."""
    of_name = {one.name: one for one in DATASETS[dataset].columns}
    columns = [of_name[name] for name in names or of_name]
    return ", ".join(f"epoch_ms({one.name}) // 1000" if one.kind == "moment" else one.name for one in columns)
