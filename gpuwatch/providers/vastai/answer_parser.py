"""Parses a search answer piece by piece as it arrives. Pure: bytes in, offers and counted reasons for skipped rows out.

The rows are never all in memory at once. The parser guesses a cut between two rows from the bytes ("},{") and verifies
it by decoding what precedes it: a cut inside a text or a nested value leaves unbalanced JSON, which no decoder accepts.
If a piece does not decode, the parser finds the remaining rows one by one, by tokens: slow but reliable.
Fields that are new or gone are reported; `known-fields.txt` lists every field that offers are known to have.
source: live answers of 2022-11, 2024-07, 2026-02/03, 2026-08 and the key list of 2026-09.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

import msgspec

from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.offer import Offer, clean_word
from gpuwatch.errors import NoRowUnderstood, PayloadChanged, ProviderDown
from gpuwatch.providers.toolkit.post_processing import RowSkipped
from gpuwatch.providers.toolkit.validation import UNREADABLE
from gpuwatch.providers.vastai.rows import ParsedRows, RowReader, VastRow, row_of
from gpuwatch.redaction import redact

_READ_FIELDS: Final = frozenset(field.name for field in msgspec.structs.fields(VastRow))
_PRICES: Final = frozenset({"dph_total", "min_bid", "storage_cost", "storage_total_cost"})
_REPORTED_MAX: Final = 20  # names of one kind; an answer in another format would fill a page


def drift(sampled_names: Iterable[str]) -> tuple[str, ...]:
    """Report what changed in the field names: "new field: x", and "field gone: y" for fields that gpuwatch reads.

    A missing field of the price is a "price field gone".

    Args:
        sampled_names: the names found in any of the sampled rows; empty: there was no row, so nothing is reported.
    """
    return _drift(frozenset(sampled_names))


@lru_cache(maxsize=8)  # successive answers have the same names
def _drift(names: frozenset[str]) -> tuple[str, ...]:
    if not names:
        return ()
    new = sorted(clean_word(name) for name in names - _known_fields())[:_REPORTED_MAX]
    missing = sorted(_READ_FIELDS - names)[:_REPORTED_MAX]
    return tuple([f"new field: {name}" for name in new] + [f"{_field(name)} gone: {name}" for name in missing])


def unusable_fields(skipped: Mapping[str, int], rows: int) -> tuple[str, ...]:
    """Return the fields that make every row unusable: "price field gone: x", "field of another type: x".

    Args:
        skipped: reason → rows.
        rows: number of rows of the whole answer.
    """
    notes = []
    for reason, count in skipped.items():
        name, _, fault = reason.partition(": ")
        if count == rows and fault in _FAULT_TEXTS:
            notes.append(f"{_field(name)} {_FAULT_TEXTS[fault]}: {name}")
    return tuple(notes)


def _field(name: str) -> str:
    return "price field" if name in _PRICES else "field"


_FAULT_TEXTS: Final = {"missing": "gone", "wrong type": "of another type"}


@cache
def _known_fields() -> frozenset[str]:
    return frozenset(Path(__file__).with_name("known-fields.txt").read_text("ascii").split())


_HEAD_MAX: Final = 64 * 1024
_ROW_MAX: Final = 4 * 2**20
_DEPTH_MAX: Final = 60
_SAMPLE_ROWS: Final = 24  # rows sampled for their field names
_MAX_UNUSABLE_ROWS: Final = 1000  # after this many rows without a usable one, stop reading: each costs an exception

_OPENING, _CLOSING = b"[]"
_OFFERS: Final = re.compile(rb'"offers"\s*:\s*(\S)')
_NEXT_ROW: Final = b"},{"  # as vast.ai writes it; `_ROW_BOUNDARY` also finds it with whitespace
_ROW_BOUNDARY: Final = re.compile(rb"\}\s*,\s*\{")
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+("|\\?\Z)|[\[\]{},]', re.DOTALL)
_decode_rows: Final = msgspec.json.Decoder(list[VastRow]).decode
_decode_raw_rows: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class ParsedAnswer(msgspec.Struct):
    """The content of one answer. `rows` counts every row, usable or not; the offers are in the answer's order.

    `other_gpu_rows` counts rows of GPUs outside the query; they are not parsed further.
    """

    offers: list[Offer]
    rows: int
    skipped: dict[str, int]
    drift: tuple[str, ...]
    other_gpu_rows: int = 0


def parse_offers(
    body: bytes | Iterable[bytes],
    reader: RowReader,
    on_offers: Callable[[Sequence[Offer]], None] | None = None,
) -> ParsedAnswer:
    """Parse one search answer.

    Args:
        body: the whole body, or its pieces as they arrive.
        on_offers: receives offers as soon as they are parsed, before the answer is complete.

    Raises:
        PayloadChanged: it is not a list of offers, or none of its rows is usable.
        ProviderDown: it is cut off.
    """
    parser = _Parser(reader, on_offers)
    for chunk in [body] if isinstance(body, bytes) else body:
        parser.feed(chunk)
    return parser.finish()


class _Parser:
    def __init__(self, reader: RowReader, on_offers: Callable[[Sequence[Offer]], None] | None) -> None:
        self._reader = reader
        self._on_offers = on_offers
        self._buffer = bytearray()
        self._head: bytes | None = None
        self._scanner: _Scanner | None = None
        self._parsed = ParsedAnswer([], 0, {}, ())
        self._names: set[str] = set()
        self._sampled_rows = 0

    def feed(self, chunk: bytes) -> None:
        if self._scanner is not None:
            self._parse_each(self._scanner.feed(chunk))
            return
        self._buffer += chunk
        if self._head is None and not self._find_head(is_complete=False):
            return
        cut = _find_last_cut(self._buffer)
        if cut is None:
            if len(self._buffer) > _ROW_MAX:
                self._switch_to_scanner()
            return
        end, start = cut
        if self._parse_block(end):
            self._buffer[start - 1] = _OPENING
            del self._buffer[: start - 1]
        else:
            self._switch_to_scanner()

    def finish(self) -> ParsedAnswer:
        if self._head is None:
            self._find_head(is_complete=True)
        if self._scanner is None and not self._parse_last_block():
            self._switch_to_scanner()
        if self._scanner is not None:
            self._check_envelope(self._scanner.tail())
        parsed = self._parsed
        self._require_usable_rows(at_least=1)
        parsed.drift = drift(self._names)
        return parsed

    def _find_head(self, is_complete: bool) -> bool:
        """Find the start of the list, and drop what precedes it."""
        start = bytes(self._buffer[:_HEAD_MAX])
        if start.strip() and not start.lstrip().startswith(b"{"):
            raise PayloadChanged(f"vastai: the search answer is not a JSON object, it begins {_excerpt(start)}")
        found = _OFFERS.search(start)
        if found is not None and found[1] == b"[":
            self._head = start[: found.end()]
            del self._buffer[: found.end() - 1]  # keep the list's bracket: from here on the buffer begins with one
            return True
        if found is not None or len(self._buffer) > _HEAD_MAX or is_complete:
            problem = "its `offers` is not a list" if found else "it has no list of offers"
            raise PayloadChanged(
                f"vastai: the search answer has an unexpected format: {problem}; it begins {_excerpt(start)}"
            )
        return False

    def _parse_last_block(self) -> bool:
        end = self._buffer.rfind(b"]")
        if end < 0 or not self._is_envelope_complete(bytes(self._buffer[end:])) or not self._parse_block(end):
            return False
        self._buffer.clear()
        return True

    def _parse_block(self, end: int) -> bool:
        """Parse the rows before `end`; False: they are not complete.

        Decodes them in place, with the byte at `end` replaced by the end of the list: copying half a megabyte costs as
        much as decoding it.
        """
        original, self._buffer[end] = self._buffer[end], _CLOSING
        try:
            with memoryview(self._buffer) as buffer_view, buffer_view[: end + 1] as block:
                return self._parse_rows(block)
        finally:
            self._buffer[end] = original

    def _parse_rows(self, block: memoryview) -> bool:
        try:
            rows = _decode_rows(block)
        except msgspec.ValidationError:
            return self._parse_raw_rows(bytes(block))
        except UNREADABLE:
            return False
        self._add(self._reader.parse(rows), block)
        self._require_usable_rows(at_least=_MAX_UNUSABLE_ROWS)
        return True

    def _parse_raw_rows(self, array: bytes) -> bool:
        try:
            raw_rows = _decode_raw_rows(array)
        except UNREADABLE:
            return False
        self._sample(array)
        self._parse_each(raw_rows)
        return True

    def _parse_each(self, raw_rows: Iterable[bytes | msgspec.Raw]) -> None:
        rows = []
        for raw in raw_rows:
            try:
                rows.append(row_of(raw))
            except RowSkipped as skipped:
                self._parsed.rows += 1
                self._skip(skipped)
                if not rows:
                    self._require_usable_rows(at_least=_MAX_UNUSABLE_ROWS)
            if self._scanner is not None and self._sampled_rows < _SAMPLE_ROWS:
                self._sample(b"[%b]" % bytes(raw))
        self._add(self._reader.parse(rows))

    def _add(self, parsed: ParsedRows, block: memoryview | None = None) -> None:
        if block is not None and self._sampled_rows < _SAMPLE_ROWS:
            self._sample_ends(bytes(block))
        self._parsed.rows += len(parsed.offers) + len(parsed.skipped) + parsed.other_gpu_rows
        self._parsed.other_gpu_rows += parsed.other_gpu_rows
        self._parsed.offers += parsed.offers
        for skipped in parsed.skipped:
            self._skip(skipped)
        if self._on_offers is not None and parsed.offers:
            self._on_offers(parsed.offers)

    def _require_usable_rows(self, at_least: int) -> None:
        """Reject an answer with this many rows if none of them is usable."""
        parsed = self._parsed
        if parsed.rows >= at_least and parsed.skipped and not (parsed.offers or parsed.other_gpu_rows):
            reasons = ", ".join(f"{count} × {reason}" for reason, count in sorted(parsed.skipped.items())[:3])
            notes = dict.fromkeys([*unusable_fields(parsed.skipped, parsed.rows), *drift(self._names)])
            text = f"vastai: none of {count_text(parsed.rows, 'row')} can be used ({reasons})"
            raise NoRowUnderstood(text, parsed.rows, tuple(notes))

    def _skip(self, skipped: RowSkipped) -> None:
        reason = str(skipped)
        self._parsed.skipped[reason] = self._parsed.skipped.get(reason, 0) + 1

    def _sample(self, array: bytes, rows: int | None = None) -> bool:
        """Note the names in the first two rows and the last two; False: unreadable, or fewer rows."""
        try:
            raw_rows = _decode_raw_rows(array)
            if rows not in (None, len(raw_rows)):
                return False
            for raw in (raw_rows[:2] + raw_rows[2:][-2:])[: _SAMPLE_ROWS - self._sampled_rows]:
                self._sampled_rows += 1
                self._names.update(_decode_fields(raw))
        except UNREADABLE:
            return False
        return True

    def _sample_ends(self, block: bytes) -> None:
        """Sample a block without parsing its middle; a wrong cut inside a row leaves fewer than four rows."""
        second = block.find(_NEXT_ROW, block.find(_NEXT_ROW) + 1)
        second_to_last = block.rfind(_NEXT_ROW, 0, block.rfind(_NEXT_ROW))
        is_sampled = 0 < second < second_to_last and self._sample(block[: second + 1] + block[second_to_last + 1 :], 4)
        if not is_sampled:
            self._sample(block)

    def _switch_to_scanner(self) -> None:
        self._scanner = _Scanner()
        rest = bytes(self._buffer[1:])
        self._buffer.clear()
        self._parse_each(self._scanner.feed(rest))

    def _is_envelope_complete(self, tail: bytes) -> bool:
        try:
            envelope = msgspec.json.decode((self._head or b"") + tail)
        except UNREADABLE:
            return False
        if not isinstance(envelope, dict) or envelope.get("offers") != []:
            return False
        return envelope.get("success") is not False and not envelope.get("error")

    def _check_envelope(self, tail: bytes | None) -> None:
        if tail is None:
            raise ProviderDown("vastai: the search answer is cut off")
        if not self._is_envelope_complete(tail):
            envelope = _excerpt((self._head or b"") + tail)
            raise PayloadChanged(f"vastai: the search answer, without its offers, is an error or not JSON: {envelope}")


class _Scanner:
    """Finds rows by tokens: slow but reliable, with no more memory than one row."""

    def __init__(self) -> None:
        self._buffer = b""
        self._position = 0
        self._depth = 0
        self._row_start = 0
        self._rows = 0
        self._tail: bytes | None = None

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the rows that are complete; an empty one stands for a superfluous comma."""
        if self._tail is not None:
            self._tail += chunk
            return
        self._buffer += chunk
        for token in _TOKEN.finditer(self._buffer, self._position):
            if token[1] not in (None, b'"'):
                break  # a text that continues in the next piece is read again from its start
            self._position = token.end()
            if not self._ends_row(token[0]):
                continue
            row = self._buffer[self._row_start : token.start()].strip()
            self._row_start = token.end()
            if row or self._rows or token[0] == b",":
                self._rows += 1
                yield row
            if token[0] != b",":
                self._tail, self._buffer = self._buffer[token.start() :], b""
                return
        self._discard_parsed()

    def tail(self) -> bytes | None:
        """Return what follows the rows, from their closing bracket on; None: it has not arrived."""
        return self._tail

    def _ends_row(self, token: bytes) -> bool:
        if token in (b"{", b"["):
            self._depth += 1
            if self._depth > _DEPTH_MAX:
                raise PayloadChanged("vastai: the search answer is nested too deeply")
            return False
        if token in (b"}", b"]") and self._depth:
            self._depth -= 1
            return False
        return not self._depth and token in (b",", b"]", b"}")

    def _discard_parsed(self) -> None:
        self._buffer = self._buffer[self._row_start :]
        self._position -= self._row_start
        self._row_start = 0
        if len(self._buffer) > _ROW_MAX:
            raise PayloadChanged(f"vastai: a row of more than {_ROW_MAX} bytes in the search answer")


def _find_last_cut(buffer: bytearray) -> tuple[int, int] | None:
    """Return where the last complete row seems to end, and the next one to begin."""
    at = buffer.rfind(_NEXT_ROW)
    if at >= 0:
        return at + 1, at + 2
    found = list(_ROW_BOUNDARY.finditer(buffer, max(0, len(buffer) - _HEAD_MAX)))
    return (found[-1].start() + 1, found[-1].end() - 1) if found else None


def _excerpt(body: bytes) -> str:
    text = body[:60].decode("utf-8", "replace")
    return redact(repr(text if text.isprintable() else ascii(text)[1:-1]))
