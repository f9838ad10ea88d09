"""Text that many rows of a data set share: a system prompt, an instruction, the lines of a template.

It would decide every comparison, because it is most of the text of each row. A text (a message, a field) is shared if a
hundredth of the sampled rows have it; a line of a text, if half of them do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from gpuwatch.dataset.rows import UnusableLine, parse_content, read_lines, skip_line
from gpuwatch.dataset.text_rows import FieldSelection, read_text_row, shareable_parts, texts_of

_SAMPLE: Final = 4_096  # rows
_PLACES: Final = 64  # of a large file, at which rows are read
_LARGE_BYTES: Final = 64 << 20
_TEXT_SHARE, _PIECE_SHARE = 0.01, 0.5  # of the rows
_MIN_ROWS: Final = 5


def with_shared_text(files: Sequence[tuple[Path, FieldSelection]]) -> list[FieldSelection]:
    """The selections for files that are compared with each other, with the text that many of their rows share.

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
    size = path.stat().st_size
    is_split = path.suffix != ".gz" and size > _LARGE_BYTES
    starts = [size * place // _PLACES for place in range(_PLACES)] if is_split else [0]
    for start in starts:
        left = limit // len(starts)
        for line in read_lines(path, offset=skip_line(path, start) if start else 0):
            try:
                row = parse_content(line.content)
                yield [row.get(field) for field in reading.fields], read_text_row(row, reading).digest
                left -= 1
            except UnusableLine:
                pass
            if left <= 0:
                break
