"""One pass over a data set: what each row weighs, and where its text lies among the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gpuwatch.app.dataset import minhash
from gpuwatch.app.dataset.before import ROW_TYPE, VECTOR_TYPE, KnownTexts
from gpuwatch.app.dataset.embedding import Embedder, Vectors
from gpuwatch.app.dataset.lines import FileLine, read_lines
from gpuwatch.app.dataset.texts import (
    FieldSelection,
    UnusableLine,
    parse_line,
    row_text,
    select_fields,
)
from gpuwatch.app.dataset.tokens import TokenCounter
from gpuwatch.app.dataset.work_folder import PassState, WorkFolder
from gpuwatch.errors import GpuwatchError, UsageError

AuditProgress = Callable[[str, int, int], None]  # what is done, so much of so much

_FIRST = 200  # rows that say which fields hold the text
_BLOCK_ROWS = 512
_BLOCK_CHARACTERS = 16 << 20


class ScannedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was read. `rows` has one record a row with text, `vectors` and `sketches` one line each."""

    rows: np.ndarray[Any, Any]
    vectors: Vectors
    sketches: np.ndarray[Any, Any]
    skipped: Mapping[str, int]  # reason → lines
    lines: int
    bytes: int
    of: str  # all that this depends on


class RowText(msgspec.Struct, frozen=True):
    """A row that can be read."""

    line: FileLine
    text: str
    digest: bytes


def scan_file(
    path: Path,
    reading: FieldSelection,
    folder: WorkFolder,
    embedder: Embedder,
    counter: TokenCounter,
    progress: AuditProgress,
) -> ScannedFile:
    """Read the file, or what of it was not read yet.

    Raises:
        UsageError: it cannot be read, or it changed meanwhile.
    """
    file_is = fingerprint(path)
    of = f"{file_is}|{','.join(reading.fields)}|{embedder.digest}|{counter.digest}"
    stage = folder.stage("scan", of)
    before = KnownTexts(folder, embedder.dimensions, stage.rows)
    with (
        folder.grown("rows", ROW_TYPE, 1, stage.rows) as rows,
        folder.grown("vectors", VECTOR_TYPE, embedder.dimensions, stage.rows) as vectors,
        folder.grown("sketches", minhash.MINHASH_TYPE, minhash.MINHASH_SIZE, stage.rows) as sketches,
    ):
        for block, stage in blocks(path, reading.fields, stage):  # noqa: B020 each goes on where the last one ended
            if block:
                for file, new in zip(
                    (rows, vectors, sketches), _measured(block, embedder, counter, before), strict=True
                ):
                    file.append(new)
            folder.keep("scan", stage)
            progress("reading", stage.offset, 0 if path.suffix == ".gz" else path.stat().st_size)
    if fingerprint(path) != file_is:
        raise UsageError(f"{path} was changed while it was read; run it again")
    return ScannedFile(
        rows=folder.table("rows", ROW_TYPE, 1, stage.rows),
        vectors=folder.table("vectors", VECTOR_TYPE, embedder.dimensions, stage.rows),
        sketches=folder.table("sketches", minhash.MINHASH_TYPE, minhash.MINHASH_SIZE, stage.rows),
        skipped=stage.skipped,
        lines=stage.line,
        bytes=stage.offset,
        of=of,
    )


def blocks(path: Path, fields: Sequence[str], stage: PassState) -> Iterator[tuple[list[RowText], PassState]]:
    """Rows with text by some hundreds, each with where the pass stands after them; the same blocks in every run."""
    if stage.finished:
        return
    skipped = Counter(stage.skipped)
    block: list[RowText] = []
    characters = 0
    for line in read_lines(path, stage.line, stage.offset):
        try:
            block.append(RowText(line, *row_text(_object(line), fields)))
            characters += len(block[-1].text)
        except UnusableLine as reason:
            skipped[str(reason)] += 1
        stage = msgspec.structs.replace(stage, line=line.number + 1, offset=line.after)
        if len(block) >= _BLOCK_ROWS or characters >= _BLOCK_CHARACTERS:
            stage = msgspec.structs.replace(stage, rows=stage.rows + len(block), skipped=dict(skipped))
            yield block, stage
            block, characters = [], 0
    yield block, msgspec.structs.replace(stage, rows=stage.rows + len(block), skipped=dict(skipped), finished=True)


def read_as(path: Path, named: tuple[str, ...]) -> FieldSelection:
    """Which fields hold the text, by the first rows.

    Raises:
        NoRows: no line can be read.
        UsageError: no field holds text, or the file cannot be read.
    """
    first: list[Mapping[str, Any]] = []
    reasons: Counter[str] = Counter()
    for line in read_lines(path):
        try:
            first.append(_object(line))
        except UnusableLine as reason:
            reasons[str(reason)] += 1
        if len(first) >= _FIRST:
            break
    if not first:
        why = ", ".join(f"{reason} ({count})" for reason, count in reasons.most_common(3))
        raise NoUsableRows(f"{path}: no line is a row of data" + (f": {why}" if why else ": it is empty"))
    return select_fields(first, named)


class NoUsableRows(GpuwatchError):
    """There is nothing in the file that could be judged."""


def fingerprint(path: Path) -> str:
    """Changes when the file does."""
    found = path.stat()
    return f"{found.st_size} {found.st_mtime_ns}"


def _object(line: FileLine) -> Mapping[str, Any]:
    if line.content is None:
        raise UnusableLine("longer than 16 MiB")
    return parse_line(line.content)


def _measured(
    block: Sequence[RowText], embedder: Embedder, counter: TokenCounter, before: KnownTexts
) -> tuple[np.ndarray[Any, Any], ...]:
    """Records, vectors and sketches of some rows."""
    texts = [one.text for one in block]
    digests = [one.digest for one in block]
    rows = np.zeros(len(block), ROW_TYPE)
    rows["line"] = [one.line.number for one in block]
    rows["bytes"] = [one.line.length for one in block]
    rows["tokens"] = counter.counts(texts)
    rows["hash"] = [int.from_bytes(digest[:8], "little") for digest in digests]
    rows["hash_rest"] = [int.from_bytes(digest[8:], "little") for digest in digests]
    vectors, rows["cut"] = before.vectors(texts, digests, embedder)
    return rows, vectors, np.stack([minhash.minhash(text) for text in texts])
