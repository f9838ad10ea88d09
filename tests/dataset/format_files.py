"""Small files of each format, and how tests read and copy them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, settings
from pyarrow import ipc, parquet

from gpuwatch.dataset.formats.file_lines import FileLine
from gpuwatch.dataset.formats.row_files import format_of, read_lines
from tests.checkout import TESTS

RECORDED = TESTS / "recorded" / "datasets"
IN_ANY_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
SCHEMA = pa.schema(
    [("text", pa.string()), ("number", pa.int64()), ("inner", pa.struct([("a", pa.list_(pa.string()))]))],
    {"made by": "a test"},
)


def rows_of(path: Path) -> list[Any]:
    return [json.loads(line.content) for line in read_lines(path) if isinstance(line.content, bytes)]


def copied(path: Path, target: Path, keeps: Callable[[FileLine], bool]) -> list[bytes | str]:
    """Copy some rows, and return their content."""
    kept = [line for line in read_lines(path) if keeps(line)]
    with target.open("wb") as file:
        copier = format_of(path).copier(file)
        for line in kept:
            copier.write(line)
        copier.close()
    return [line.content for line in kept]


def write_columns(table: Any, path: Path, rows: int) -> None:
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=rows)
        return
    new = ipc.new_file if path.suffix == ".arrow" else ipc.new_stream
    with path.open("wb") as file, new(file, table.schema) as writer:
        writer.write_table(table, rows)


def read_table(path: Path) -> Any:
    if path.suffix == ".parquet":
        return parquet.read_table(path)
    return (ipc.open_file if path.suffix == ".arrow" else ipc.open_stream)(path.read_bytes()).read_all()
