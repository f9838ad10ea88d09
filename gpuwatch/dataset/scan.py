"""One pass over a data set: the size of each row, its vector, and a sketch of its wording.

Before it, text that many rows share is found: a system prompt, an instruction, the lines of a template. It would decide
every comparison, because it is most of the text of each row.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from gpuwatch.dataset.embedding import Embedder, Vectors
from gpuwatch.dataset.formats.file_lines import FileLine
from gpuwatch.dataset.formats.row_files import extent_of, format_of, read_lines
from gpuwatch.dataset.onnx_models import Array, TokenCounter, import_extra
from gpuwatch.dataset.text_rows import (
    FieldSelection,
    ReadRow,
    UnusableLine,
    parse_content,
    read_text_row,
    select_fields,
    shareable_parts,
    texts_of,
)
from gpuwatch.dataset.work_folder import PassState, StepClock, WorkFolder
from gpuwatch.errors import GpuwatchError, UsageError

# --- text that many rows share ----------------------------------------------------------------------------------------

_SAMPLE: Final = 4_096  # rows
_PLACES: Final = 64  # of a large file, at which rows are read
_LARGE_BYTES: Final = 64 << 20
_TEXT_SHARE, _PIECE_SHARE = 0.01, 0.5  # of the rows
_MIN_ROWS: Final = 5


def with_shared_text(files: Sequence[tuple[Path, FieldSelection]]) -> list[FieldSelection]:
    """The selections for files that are compared with each other, with the text that many of their rows share.

    A text (a message, a field) is shared if a hundredth of the sampled rows have it; a line of a text, if half of them
    do.

    Raises:
        UsageError: a file cannot be read.
    """
    texts, pieces = Counter[bytes](), Counter[bytes]()
    seen: set[bytes] = set()  # a repeated row is one row: its text is no prompt
    for path, reading in files:
        for values, digest in _sampled_rows(path, reading, max(_PLACES, _SAMPLE // len(files))):
            if digest in seen:
                continue
            seen.add(digest)
            parts = set(shareable_parts(texts_of(values)[0]))
            texts.update(part for part, is_text in parts if is_text)
            pieces.update(part for part, is_text in parts if not is_text)
    shared = {part for part, count in texts.items() if _is_shared(count, len(seen), _TEXT_SHARE)}
    shared |= {part for part, count in pieces.items() if _is_shared(count, len(seen), _PIECE_SHARE)}
    return [msgspec.structs.replace(reading, shared=frozenset(shared)) for _, reading in files]


def _is_shared(count: int, rows: int, share: float) -> bool:
    is_most = count > 1 and 2 * count > rows
    return is_most or (count >= _MIN_ROWS and count >= share * rows)


def _sampled_rows(path: Path, reading: FieldSelection, limit: int) -> Iterator[tuple[list[object], bytes]]:
    """The values and the digest of up to `limit` rows; of a large file, from places all over it."""
    next_row, starts = format_of(path).next_row, [0]
    if next_row is not None and path.stat().st_size > _LARGE_BYTES:
        extent = extent_of(path)
        starts = [0, *(next_row(extent * place // _PLACES) for place in range(1, _PLACES))]
    for start in starts:
        left = limit // len(starts)
        for line in read_lines(path, offset=start):
            try:
                row = parse_content(line.content)
                yield [row.get(field) for field in reading.fields], read_text_row(row, reading).digest
                left -= 1
            except UnusableLine:
                pass
            if left <= 0:
                break


# --- nearly the same wording, without a model -------------------------------------------------------------------------

# MinHash (Broder, "On the resemblance and containment of documents", 1997), by rensa: the share of equal numbers
# estimates the Jaccard similarity of two texts' runs of five words; with 64 numbers the standard error is at most 0.06.
# Rows are compared only if one of 16 bands of 4 numbers is equal (Indyk and Motwani, 1998). At a similarity of 0.8 this
# finds more than 99.9 % of the pairs, and each row is compared only with the first one of its band.
MIN_WORDING_SIMILARITY = 0.8  # of the runs of words
MINHASH_SIZE = 64
MINHASH_TYPE = np.dtype("<u4")
NO_ROW = -1
_BANDS = 16
_SEED = 42  # must never change
_RUN_WORDS = 5
_MAX_WORDS = 50_000  # of a text
_MAX_CHARACTERS = 20 * _MAX_WORDS
# a character of a script without spaces between its words is a word; a long one (DNA, base64) is several
_WORD = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w{1,16}|[^\w\s]")
_ASCII_WORD = re.compile(r"\w{1,16}|[^\w\s]")
_BATCH_ROWS = 65_536
_MIX = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing (Knuth)

RowNumbers = np.ndarray[Any, np.dtype[np.int64]]


def minhashes(texts: Sequence[str]) -> Array:
    """The 64 numbers that represent a text's wording, one line per text."""
    if not texts:
        return np.empty((0, MINHASH_SIZE), MINHASH_TYPE)
    sketch = import_extra("rensa").RMinHash
    digests = sketch.digests_from_token_sets([_runs(text) for text in texts], MINHASH_SIZE, _SEED)
    return np.array(digests, MINHASH_TYPE)


def _runs(text: str) -> list[str]:
    words = (_ASCII_WORD if text.isascii() else _WORD).findall(text[:_MAX_CHARACTERS].lower())[:_MAX_WORDS]
    shifted = [words[start:] for start in range(_RUN_WORDS)]
    return list(map(" ".join, zip(*shifted, strict=False))) or [" ".join(words)]


def wording_similarity(first: Array, other: Array) -> float:
    """The estimated share of common runs of words: 0 to 1."""
    return float(np.mean(first == other))


def similar_wording(sketches: Array, exact: RowNumbers, rests: Array) -> RowNumbers:
    """For each row an earlier one that stays and has nearly the same wording; `NO_ROW`: there is none.

    Args:
        exact: rows with `NO_ROW` are compared; the others are exact duplicates.
        rests: what must be equal besides the wording.
    """
    near = np.full(len(exact), NO_ROW, np.int64)
    stays_for = np.zeros(len(exact), bool)  # a row that another one was removed for is not removed itself
    width = MINHASH_SIZE // _BANDS
    for band in range(_BANDS):
        left = np.flatnonzero((exact == NO_ROW) & (near == NO_ROW))
        keys = _band_keys(sketches, left, slice(band * width, (band + 1) * width), rests)
        order = np.argsort(keys, kind="stable")
        begins = np.append(True, keys[order[1:]] != keys[order[:-1]]) if len(order) else np.empty(0, bool)
        leaders = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))]
        others = np.flatnonzero(~begins)
        rows, firsts = left[order[others]], left[leaders[others]]
        free = ~stays_for[rows]
        rows, firsts = rows[free], firsts[free]
        for start in range(0, len(rows), _BATCH_ROWS):
            batch, first = rows[start : start + _BATCH_ROWS], firsts[start : start + _BATCH_ROWS]
            is_similar = (sketches[batch] == sketches[first]).mean(axis=1) >= MIN_WORDING_SIMILARITY
            near[batch[is_similar]] = first[is_similar]
            stays_for[first[is_similar]] = True
    return near


def _band_keys(sketches: Array, rows: RowNumbers, band: slice, rests: Array) -> Array:
    """One number per band of each row: different bands share a number once in 2^64 cases."""
    keys = np.asarray(rests[rows], np.uint64)
    for start in range(0, len(rows), _BATCH_ROWS):
        part = slice(start, start + _BATCH_ROWS)
        for column in np.asarray(sketches[rows[part], band], np.uint64).T:
            keys[part] = (keys[part] ^ column) * _MIX
            keys[part] ^= keys[part] >> np.uint64(29)
    return keys


# --- the pass ---------------------------------------------------------------------------------------------------------

AuditProgress = Callable[[str, int, int], None]  # the pass, the amount done, the total
EQUAL_TEXTS, WORDING, TOKENS, EMBEDDINGS = (
    "equal texts",
    "wording",
    "tokens",
    "embeddings",
)  # steps, as a report has them

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
        expected = "; expected a JSON object per line" if format_of(path).name == "lines" else ""
        why = f": {details}{expected}" if details else ": it is empty"
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
    clock = StepClock(state.seconds)
    extent = extent_of(path)
    known_texts = KnownTexts(folder, embedder.dimensions, state.rows)
    with (
        folder.open_table("rows", ROW_TYPE, 1, state.rows) as rows,
        folder.open_table("vectors", VECTOR_TYPE, embedder.dimensions, state.rows) as vectors,
        folder.open_table("sketches", MINHASH_TYPE, MINHASH_SIZE, state.rows) as sketches,
    ):
        for block, state in clock.each(EQUAL_TEXTS, blocks(path, reading, state)):  # noqa: B020 each goes on from the last
            if block:
                measured = _scan_block(block, (embedder, counter), known_texts, clock)
                for file, new in zip((rows, vectors, sketches), measured, strict=True):
                    file.append(new)
            folder.save_state("scan", msgspec.structs.replace(state, seconds=clock.seconds))
            progress("reading", state.offset, extent)
    if fingerprint(path) != identity:
        raise UsageError(f"{path} changed during the run; run the command again")
    return ScannedFile(
        rows=folder.table("rows", ROW_TYPE, 1, state.rows),
        vectors=folder.table("vectors", VECTOR_TYPE, embedder.dimensions, state.rows),
        sketches=folder.table("sketches", MINHASH_TYPE, MINHASH_SIZE, state.rows),
        skipped=state.skipped,
        lines=state.line,
        bytes=state.bytes,
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
        state = msgspec.structs.replace(state, line=line.number + 1, offset=line.after, bytes=state.bytes + line.length)
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
    block: Sequence[ScannedRow], models: tuple[Embedder, TokenCounter], known_texts: KnownTexts, clock: StepClock
) -> tuple[Array, ...]:
    """Records, vectors and sketches of some rows."""
    embedder, counter = models
    compared = [one.row.compared for one in block]
    digests = [one.row.digest for one in block]
    rows = np.zeros(len(block), ROW_TYPE)
    rows["line"] = [one.line.number for one in block]
    rows["bytes"] = [one.line.length for one in block]
    with clock.step(TOKENS):
        rows["tokens"] = counter.counts([one.row.text for one in block])
    rows["hash"] = [int.from_bytes(digest[:8], "little") for digest in digests]
    rows["hash_rest"] = [int.from_bytes(digest[8:], "little") for digest in digests]
    rows["rest"] = [one.row.rest for one in block]
    with clock.step(EMBEDDINGS):
        vectors, rows["cut"], rows["unread"] = known_texts.vectors(compared, digests, embedder)
    with clock.step(WORDING):
        sketches = minhashes(compared)
    return rows, vectors, sketches


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
