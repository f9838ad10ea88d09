"""The stages without a model, over a whole file, on all processors: equal texts, then nearly the same wording."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gpuwatch.dataset.duplicates import exact_duplicates
from gpuwatch.dataset.formats.file_lines import FileLine
from gpuwatch.dataset.formats.row_files import extent_of, read_lines
from gpuwatch.dataset.onnx_models import Array
from gpuwatch.dataset.scan import (
    EQUAL_TEXTS,
    MINHASH_SIZE,
    MINHASH_TYPE,
    NO_ROW,
    ROW_TYPE,
    WORDING,
    AuditProgress,
    RowNumbers,
    fingerprint,
    minhashes,
    similar_wording,
)
from gpuwatch.dataset.text_rows import (
    FieldSelection,
    UnusableLine,
    parse_content,
    read_text_row,
)
from gpuwatch.dataset.work_folder import PassState, StepClock, WorkFolder
from gpuwatch.errors import UsageError

_BLOCK_LINES = 8_192
_BLOCK_BYTES = 8 << 20
_AHEAD = 2  # blocks per process

Contents = Sequence[bytes | str]  # of lines; a text: why a line has none
Measured = tuple[Array, Mapping[str, int]]  # of the lines with text: their records; reason → other lines
Stage = Callable[[Contents, FieldSelection], Any]


class WholeFile(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of a file, without their vectors. `rows` has one record per row with text; tokens are not counted."""

    rows: Array
    sketches: Array
    exact: RowNumbers
    skipped: Mapping[str, int]
    lines: int
    bytes: int
    of: str


def read_whole(
    path: Path, reading: FieldSelection, folder: WorkFolder, threads: int, progress: AuditProgress, *, wording: bool
) -> WholeFile:
    """Read a file, or the part of it that has not been read before.

    Args:
        threads: number of processes that read it; 1: only this one.
        wording: whether to compare the wording, too.

    Raises:
        UsageError: it cannot be read, or it changed meanwhile.
    """
    of = f"{fingerprint(path)}|{reading.key}"
    with (
        ProcessPoolExecutor(threads, mp_context=get_context("forkserver")) if threads > 1 else nullcontext() as workers
    ):
        state = _exact_pass(path, reading, folder, folder.state("exact", of), (workers, threads), progress)
        rows = folder.table("exact", ROW_TYPE, 1, state.rows)
        exact = exact_duplicates(rows)
        sketches: Array = np.empty((0, MINHASH_SIZE), MINHASH_TYPE)
        if wording:
            first = rows["line"][exact == NO_ROW]
            sketches = _wording_pass(path, reading, folder, (of, first), (workers, threads), progress)
    if not of.startswith(f"{fingerprint(path)}|"):
        raise UsageError(f"{path} changed during the run; run the command again")
    return WholeFile(
        rows=rows,
        sketches=sketches,
        exact=exact,
        skipped=state.skipped,
        lines=state.line,
        bytes=state.bytes,
        of=of,
    )


def wording_duplicates(file: WholeFile) -> RowNumbers:
    """For each row of the file an earlier one that stays and has nearly the same wording; `NO_ROW`: there is none."""
    firsts = np.flatnonzero(file.exact == NO_ROW)
    duplicate_of = similar_wording(file.sketches, np.full(len(firsts), NO_ROW, np.int64), file.rows["rest"][firsts])
    near = np.full(len(file.exact), NO_ROW, np.int64)
    is_duplicate = duplicate_of != NO_ROW
    near[firsts[is_duplicate]] = firsts[duplicate_of[is_duplicate]]
    return near


def _exact_pass(
    path: Path,
    reading: FieldSelection,
    folder: WorkFolder,
    state: PassState,
    pool: tuple[Executor | None, int],
    progress: AuditProgress,
) -> PassState:
    if state.finished:
        return state
    total = extent_of(path)
    skipped, clock = Counter(state.skipped), StepClock(state.seconds)
    with folder.open_table("exact", ROW_TYPE, 1, state.rows) as table:
        lines = read_lines(path, state.line, state.offset)
        found = _in_order(_blocks(lines), exact_records, reading, pool)
        for block, (records, reasons) in clock.each(EQUAL_TEXTS, found):
            skipped.update(reasons)
            lengths = np.array([line.length for line in block])
            records["bytes"] = lengths[records["line"]]
            records["line"] += block[0].number
            table.append(records)
            state = msgspec.structs.replace(
                state,
                rows=state.rows + len(records),
                skipped=dict(skipped),
                line=block[-1].number + 1,
                offset=block[-1].after,
                bytes=state.bytes + int(lengths.sum()),
                seconds=clock.seconds,
            )
            folder.save_state("exact", state)
            progress("equal texts", state.offset, total)
        state = msgspec.structs.replace(state, finished=True)
        folder.save_state("exact", state)
    return state


def _wording_pass(
    path: Path,
    reading: FieldSelection,
    folder: WorkFolder,
    of: tuple[str, Array],
    pool: tuple[Executor | None, int],
    progress: AuditProgress,
) -> Array:
    """A sketch for each of the given lines."""
    line_numbers = of[1]
    state = folder.state("wording", of[0])
    clock = StepClock(state.seconds)
    with folder.open_table("wording", MINHASH_TYPE, MINHASH_SIZE, state.rows) as table:
        lines = _select_lines(read_lines(path, state.line, state.offset), line_numbers[state.rows :])
        found = _in_order(_blocks(lines), sketch_lines, reading, pool)
        for block, sketches in clock.each(WORDING, found) if not state.finished else ():
            table.append(sketches)
            state = msgspec.structs.replace(
                state,
                rows=state.rows + len(sketches),
                line=block[-1].number + 1,
                offset=block[-1].after,
                seconds=clock.seconds,
            )
            folder.save_state("wording", state)
            progress("wording", state.rows, len(line_numbers))
    folder.save_state("wording", msgspec.structs.replace(state, finished=True))
    return folder.table("wording", MINHASH_TYPE, MINHASH_SIZE, state.rows)


def _select_lines(lines: Iterable[FileLine], numbers: Array) -> Iterator[FileLine]:
    """The lines with these numbers, which must ascend."""
    remaining = iter(numbers.tolist())
    number = next(remaining, None)
    for line in lines:
        if number is None:
            return
        if line.number == number:
            yield line
            number = next(remaining, None)


def _blocks(lines: Iterable[FileLine]) -> Iterator[list[FileLine]]:
    block: list[FileLine] = []
    size = 0
    for line in lines:
        block.append(line)
        size += len(line.content)
        if len(block) >= _BLOCK_LINES or size >= _BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def _in_order(
    blocks: Iterator[list[FileLine]], stage: Stage, reading: FieldSelection, pool: tuple[Executor | None, int]
) -> Iterator[tuple[list[FileLine], Any]]:
    """Yield blocks with their results; as many run at a time as there are processes."""
    workers, process_count = pool
    if workers is None:
        yield from ((block, stage([line.content for line in block], reading)) for block in blocks)
        return
    waiting: deque[tuple[list[FileLine], Future[Any]]] = deque()
    for block in blocks:
        contents = [line.content for line in block]
        waiting.append(([line._replace(content="") for line in block], workers.submit(stage, contents, reading)))
        if len(waiting) > _AHEAD * process_count:
            first_block, result = waiting.popleft()
            yield first_block, result.result()
    for first_block, result in waiting:
        yield first_block, result.result()


def exact_records(contents: Contents, reading: FieldSelection) -> Measured:
    """Records of the lines with text; line numbers start at 0, and lengths are left out."""
    skipped: Counter[str] = Counter()
    numbers, digests, rests = [], [], []
    for number, content in enumerate(contents):
        try:
            row = read_text_row(parse_content(content), reading)
        except UnusableLine as reason:
            skipped[str(reason)] += 1
        else:
            numbers.append(number)
            digests.append(row.digest)
            rests.append(row.rest)
    rows = np.zeros(len(numbers), ROW_TYPE)
    rows["line"], rows["rest"] = numbers, rests
    halves = np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2)
    rows["hash"], rows["hash_rest"] = halves[:, 0], halves[:, 1]
    return rows, skipped


def sketch_lines(contents: Contents, reading: FieldSelection) -> Array:
    """The sketch of each line; all lines must have text."""
    return minhashes([read_text_row(parse_content(content), reading).compared for content in contents])
