"""One pass over a data set: the size of each row, its vector, and a sketch of its wording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gpuwatch.dataset.embedding import Embedder, Vectors
from gpuwatch.dataset.fields import select_fields
from gpuwatch.dataset.onnx_models import Array, TokenCounter
from gpuwatch.dataset.rows import FileLine, UnusableLine, parse_content, read_lines
from gpuwatch.dataset.shared_text import with_shared_text
from gpuwatch.dataset.text_rows import FieldSelection, ReadRow, read_text_row
from gpuwatch.dataset.wording import MINHASH_SIZE, MINHASH_TYPE, minhashes
from gpuwatch.dataset.work_folder import PassState, WorkFolder
from gpuwatch.errors import GpuwatchError, UsageError

AuditProgress = Callable[[str, int, int], None]  # the pass, the amount done, the total

ROW_TYPE = np.dtype(
    [
        ("line", "<u8"),
        ("bytes", "<u4"),
        ("tokens", "<u4"),
        ("cut", "u1"),
        ("unread", "u1"),  # the model's tokenizer does not know most of the text
        ("hash", "<u8"),
        ("hash_rest", "<u8"),
        ("rest", "<u8"),  # of what must be equal besides the text
    ]
)
VECTOR_TYPE = np.dtype("<f4")
_FIRST_ROWS = 200  # determine which fields hold the text
_BLOCK_ROWS = 512
_BLOCK_CHARACTERS = 16 << 20
_KNOWN_TEXTS = 500_000  # about 150 bytes each


class ScannedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was read. `rows` has one record per row with text, `vectors` and `sketches` one line each."""

    rows: Array
    vectors: Vectors
    sketches: Array
    skipped: Mapping[str, int]  # reason → lines
    lines: int
    bytes: int
    of: str  # everything that the result depends on


class ScannedRow(msgspec.Struct, frozen=True):
    """A row with usable text, and its line."""

    line: FileLine
    row: ReadRow


class NoUsableRows(GpuwatchError):
    """The file contains nothing that can be judged."""


def detect_fields(path: Path, field_names: tuple[str, ...]) -> FieldSelection:
    """Select the fields that contain the text, by the first rows.

    Raises:
        NoUsableRows: no line can be read.
        UsageError: no field contains text, or the file cannot be read.
    """
    first: list[Mapping[str, Any]] = []
    reasons: Counter[str] = Counter()
    for line in read_lines(path):
        try:
            first.append(parse_content(line.content))
        except UnusableLine as reason:
            reasons[str(reason)] += 1
        if len(first) >= _FIRST_ROWS:
            break
    if not first:
        details = ", ".join(f"{reason} ({count})" for reason, count in reasons.most_common(3))
        why = f": {details}; expected a JSON object per line" if details else ": it is empty"
        raise NoUsableRows(f"{path}: no line is a valid row{why}")
    return with_shared_text([(path, select_fields(first, field_names))])[0]


def scan_file(
    path: Path,
    reading: FieldSelection,
    folder: WorkFolder,
    embedder: Embedder,
    counter: TokenCounter,
    progress: AuditProgress,
) -> ScannedFile:
    """Read the file, or the part of it that has not been read before.

    Raises:
        UsageError: it cannot be read, or it changed meanwhile.
    """
    identity = fingerprint(path)
    of = f"{identity}|{reading.key}|{embedder.digest}|{counter.digest}|rensa"
    state = folder.state("scan", of)
    known_texts = KnownTexts(folder, embedder.dimensions, state.rows)
    with (
        folder.open_table("rows", ROW_TYPE, 1, state.rows) as rows,
        folder.open_table("vectors", VECTOR_TYPE, embedder.dimensions, state.rows) as vectors,
        folder.open_table("sketches", MINHASH_TYPE, MINHASH_SIZE, state.rows) as sketches,
    ):
        for block, state in blocks(path, reading, state):  # noqa: B020 each continues where the last one ended
            if block:
                measured = _scan_block(block, embedder, counter, known_texts)
                for file, new in zip((rows, vectors, sketches), measured, strict=True):
                    file.append(new)
            folder.save_state("scan", state)
            progress("reading", state.offset, 0 if path.suffix == ".gz" else path.stat().st_size)
    if fingerprint(path) != identity:
        raise UsageError(f"{path} changed during the run; run the command again")
    return ScannedFile(
        rows=folder.table("rows", ROW_TYPE, 1, state.rows),
        vectors=folder.table("vectors", VECTOR_TYPE, embedder.dimensions, state.rows),
        sketches=folder.table("sketches", MINHASH_TYPE, MINHASH_SIZE, state.rows),
        skipped=state.skipped,
        lines=state.line,
        bytes=state.offset,
        of=of,
    )


def blocks(path: Path, reading: FieldSelection, state: PassState) -> Iterator[tuple[list[ScannedRow], PassState]]:
    """Rows with text in blocks, each with the state of the pass after it; the blocks are the same in every run."""
    if state.finished:
        return
    skipped = Counter(state.skipped)
    block: list[ScannedRow] = []
    characters = 0
    for line in read_lines(path, state.line, state.offset):
        try:
            block.append(ScannedRow(line, read_text_row(parse_content(line.content), reading)))
            characters += len(block[-1].row.text)
        except UnusableLine as reason:
            skipped[str(reason)] += 1
        state = msgspec.structs.replace(state, line=line.number + 1, offset=line.after)
        if len(block) >= _BLOCK_ROWS or characters >= _BLOCK_CHARACTERS:
            state = msgspec.structs.replace(state, rows=state.rows + len(block), skipped=dict(skipped))
            yield block, state
            block, characters = [], 0
    yield block, msgspec.structs.replace(state, rows=state.rows + len(block), skipped=dict(skipped), finished=True)


def fingerprint(path: Path) -> str:
    """An identifier that changes when the file does."""
    stat = path.stat()
    return f"{stat.st_size} {stat.st_mtime_ns}"


def _scan_block(
    block: Sequence[ScannedRow], embedder: Embedder, counter: TokenCounter, known_texts: KnownTexts
) -> tuple[Array, ...]:
    """Records, vectors and sketches of some rows."""
    compared = [one.row.compared for one in block]
    digests = [one.row.digest for one in block]
    rows = np.zeros(len(block), ROW_TYPE)
    rows["line"] = [one.line.number for one in block]
    rows["bytes"] = [one.line.length for one in block]
    rows["tokens"] = counter.counts([one.row.text for one in block])
    rows["hash"] = [int.from_bytes(digest[:8], "little") for digest in digests]
    rows["hash_rest"] = [int.from_bytes(digest[8:], "little") for digest in digests]
    rows["rest"] = [one.row.rest for one in block]
    vectors, rows["cut"], rows["unread"] = known_texts.vectors(compared, digests, embedder)
    return rows, vectors, minhashes(compared)


class KnownTexts:
    """The first row of each text read so far, up to a limit: a repeated text is embedded only once."""

    def __init__(self, folder: WorkFolder, dimensions: int, rows: int) -> None:
        self._folder, self._dimensions, self._rows = folder, dimensions, rows
        self._known: dict[bytes, int] = {}
        read = folder.table("rows", ROW_TYPE, 1, rows)
        for row in range(rows):
            if len(self._known) == _KNOWN_TEXTS:
                break
            self._known.setdefault(read["hash"][row].tobytes() + read["hash_rest"][row].tobytes(), row)

    def vectors(
        self, texts: Sequence[str], digests: Sequence[bytes], embedder: Embedder
    ) -> tuple[Vectors, Array, Array]:
        """A vector for each of the next rows, whether its text was cut, and whether it is unread."""
        new = {digest: text for digest, text in zip(digests, texts, strict=True) if digest not in self._known}
        index_of = {digest: index for index, digest in enumerate(new)}
        vectors = np.empty((len(texts), self._dimensions), VECTOR_TYPE)
        cut, unread = np.zeros(len(texts), bool), np.zeros(len(texts), bool)
        if new:
            fresh = embedder.vectors(list(new.values()))
            own = [index for index, digest in enumerate(digests) if digest in index_of]
            sources = [index_of[digests[index]] for index in own]
            vectors[own] = fresh.vectors[sources]
            cut[own], unread[own] = np.asarray(fresh.cut)[sources], np.asarray(fresh.unread)[sources]
        old = [index for index, digest in enumerate(digests) if digest not in index_of]
        if old:
            rows = [self._known[digests[index]] for index in old]
            vectors[old] = self._folder.table("vectors", VECTOR_TYPE, self._dimensions, self._rows)[rows]
            known = self._folder.table("rows", ROW_TYPE, 1, self._rows)[rows]
            cut[old], unread[old] = known["cut"], known["unread"]
        self._add(digests)
        return vectors, cut, unread

    def _add(self, digests: Sequence[bytes]) -> None:
        for row, digest in enumerate(digests, self._rows):
            if len(self._known) < _KNOWN_TEXTS:
                self._known.setdefault(digest, row)
        self._rows += len(digests)
