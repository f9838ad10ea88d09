"""The rows of a data set: the objects in the lines of a file, and their text.

Two rows are equal if everything in their fields is. They are nearly the same if the text that is compared is, and if
all else is equal: the calls of a tool, pictures, numbers. Text that many rows share, such as a system prompt, is not
compared, because it says nothing about the difference of two rows; but two rows must share the same.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from gpuwatch.dataset.formats.cell_json import holds_bytes
from gpuwatch.domain.market.offer import clean
from gpuwatch.errors import UsageError

# --- rows -------------------------------------------------------------------------------------------------------------


class UnusableLine(ValueError):
    """A line without usable text; the message is the reason, equal for all lines of a kind."""


def parse_content(content: bytes | str) -> Mapping[str, Any]:
    """Parse the content of a line as an object. Raises UnusableLine; a text says why it has none."""
    if isinstance(content, str):
        raise UnusableLine(content)
    return parse_json_line(content)


def parse_json_line(line: bytes) -> Mapping[str, Any]:
    """Parse one line as an object. Raises UnusableLine."""
    line = line.removeprefix(b"\xef\xbb\xbf")
    if not line.strip():
        raise UnusableLine("empty line")
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):  # ValueError: not UTF-8
        row = _parse_leniently(line)
    if not isinstance(row, dict):
        raise UnusableLine("not a JSON object")
    return row


def _parse_leniently(line: bytes) -> Any:
    """Accept what Python writes although it is not JSON: NaN, and single surrogates."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        raise UnusableLine("not UTF-8") from None
    try:
        return json.loads(text, parse_constant=lambda name: {name: None})  # NaN is neither text nor null
    except (ValueError, RecursionError):
        raise UnusableLine("not JSON") from None


# --- the text of a row ------------------------------------------------------------------------------------------------

_SPEAKERS: Final = frozenset({"role", "from", "type"})  # of a message: neither text nor a difference
_TEXT_KEYS: Final = frozenset({"content", "value", "text", "reasoning_content", "reasoning", "thinking"})
_MEDIA: Final = ("data:", "http:", "https:", "file:")  # addresses, and pictures as text
# templates put several messages into one text: their markers separate it like line ends
_PIECES: Final = re.compile(r"\n|<\|[^|>\n]{1,40}\|>|\[/?[A-Z_]{3,20}\]|<</?SYS>>|</?s>|<(?:start|end)_of_turn>")
_MIN_PIECE: Final = 12  # characters: a shorter piece is not worth leaving out


class FieldSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that are read and compared."""

    fields: tuple[str, ...]
    guessed: bool
    others: tuple[str, ...] = ()  # fields that are ignored
    shared: frozenset[bytes] = frozenset()  # digests of the text that many rows share

    @property
    def key(self) -> str:
        """Everything that the reading of a row depends on."""
        shared = hashlib.blake2b(b"".join(sorted(self.shared)), digest_size=8).hexdigest()
        return f"{','.join(self.fields)}|{shared}|3"


class ReadRow(NamedTuple):
    """A row with usable text."""

    text: str
    compared: str  # the text without what many rows share
    digest: bytes  # of everything in the fields
    rest: int  # of what must be equal besides the text; 0: nothing


def read_text_row(row: Mapping[str, Any], reading: FieldSelection) -> ReadRow:
    """Read the fields of a row. Raises UnusableLine: they contain no text."""
    if len(reading.fields) == 1 and not reading.shared:  # shortcut
        value = row.get(reading.fields[0])
        if isinstance(value, str) and value.isascii() and value and not value.isspace():
            return ReadRow(value, value, hashlib.blake2b(msgspec.json.encode([value]), digest_size=16).digest(), 0)
    try:
        return _read_row([row.get(field) for field in reading.fields], reading)
    except RecursionError:
        raise UnusableLine("nested too deeply") from None


def _read_row(values: Sequence[Any], reading: FieldSelection) -> ReadRow:
    digest = hashlib.blake2b(_canonical(values), digest_size=16).digest()
    texts, others = texts_of(values)
    if not texts:
        raise UnusableLine(f"no text in {', '.join(reading.fields)}")
    compared = texts
    if reading.shared:
        compared, left_out = _without_shared(texts, reading.shared)
        others = [*others, *left_out]
    rest = int.from_bytes(hashlib.blake2b(_canonical(others), digest_size=8).digest(), "little") if others else 0
    text = "\n".join(texts)
    return ReadRow(text, "\n".join(compared) or text, digest, rest)


def has_text(row: Mapping[str, Any], field: str) -> bool:
    """Does a field of a row contain text?"""
    return bool(texts_of([row.get(field)])[0])


def texts_of(values: Sequence[Any]) -> tuple[list[str], list[Any]]:
    """The texts in the values of some fields, in order, and everything else."""
    texts: list[str] = []
    others: list[Any] = []
    for value in values:
        if isinstance(value, (str, list, dict)):
            _collect(value, texts, others)
        elif value is not None:
            others.append(value)
    return texts, others


def shareable_parts(texts: Sequence[str]) -> Iterator[tuple[bytes, bool]]:
    """The digests of a row's texts, and of the pieces of each; True: of a whole text.

    A row of a single text has only pieces: its text as a whole is what is compared.
    """
    for text in texts:
        if len(texts) > 1:
            yield _part_digest(text), True
        pieces = _PIECES.split(text)
        if len(pieces) > 1:
            yield from ((_part_digest(piece), False) for piece in pieces if len(piece.strip()) >= _MIN_PIECE)


def _collect(value: Any, texts: list[str], others: list[Any]) -> None:
    """Walk through a text, a conversation, or a message; nothing is left out."""
    if isinstance(value, str):
        if value.strip():
            texts.append(_without_surrogates(value))
    elif isinstance(value, list):
        for item in value:
            _collect(item, texts, others)
    elif isinstance(value, dict):
        _collect_message(value, texts, others)
    elif value is not None:
        others.append(value)


def _collect_message(message: Mapping[str, Any], texts: list[str], others: list[Any]) -> None:
    for key, item in message.items():
        if isinstance(item, (str, list)) and key in _TEXT_KEYS:
            _collect(item, texts, others)
        elif item is not None and not (isinstance(item, str) and key in _SPEAKERS):
            others.append([key, item])
            texts += _strings(item)


def _strings(value: Any) -> Iterator[str]:
    """The texts of what must be equal, such as the arguments of a call: a model is trained on them, too."""
    if isinstance(value, str):
        if value.strip() and not value.startswith(_MEDIA):
            yield _without_surrogates(value)
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _without_shared(texts: Sequence[str], shared: frozenset[bytes]) -> tuple[list[str], list[str]]:
    """The texts without those that many rows share, and the digests of the latter."""
    compared: list[str] = []
    left_out: list[str] = []
    for text in texts:
        if len(texts) > 1 and (digest := _part_digest(text)) in shared:
            left_out.append(digest.hex())
            continue
        pieces = _PIECES.split(text)
        own = [piece for piece in pieces if len(pieces) == 1 or _part_digest(piece) not in shared]
        if any(piece.strip() for piece in own):
            compared.append(text if len(own) == len(pieces) else "\n".join(own))
    return compared, left_out


def _part_digest(text: str) -> bytes:
    return hashlib.blake2b(text.strip().encode("utf-8", "replace"), digest_size=8).digest()


def _canonical(value: Any) -> bytes:
    """Equal for equal values, whatever the order of their keys."""
    try:
        return msgspec.json.encode(value, order="deterministic")
    except UnicodeEncodeError:  # single surrogates
        return json.dumps(value, sort_keys=True).encode()


def _without_surrogates(part: str) -> str:
    """Replace single surrogates, which no encoding accepts."""
    return part if part.isascii() else part.encode("utf-8", "replace").decode("utf-8")


# --- the fields that hold it ------------------------------------------------------------------------------------------

_SHAPES: tuple[tuple[str, ...], ...] = (  # the first that fits; its later fields also belong to the text
    ("messages",),
    ("conversations",),
    ("instruction", "input", "output"),
    ("instruction", "output"),
    ("instruction", "response"),
    ("prompt", "chosen", "rejected"),
    ("prompt", "completion"),
    ("prompt", "response"),
    ("question", "answer"),
    ("text",),
    ("content",),
)
_FITS = 0.9  # share of the first rows
_IN_ERROR, _IN_REPORT = 8, 100  # number of field names shown


def select_fields(rows: Sequence[Mapping[str, Any]], field_names: tuple[str, ...]) -> FieldSelection:
    """Select the named fields, those of a known row format, or the longest one.

    Args:
        rows: the first rows that are objects.
        field_names: empty: select by the rows.

    Raises:
        UsageError: no field contains text.
    """
    with_text = {field for row in rows for field in row if has_text(row, field)}
    present = {field for row in rows for field in row}
    selected = field_names or _known_shape(rows) or _longest_fields(rows)
    if not field_names:  # rows with one caption and different pictures differ
        selected += tuple(sorted(field for field in present - set(selected) if _holds_bytes(rows, field)))
    if not selected or not with_text & set(selected):
        seen = ", ".join(_names(with_text)[:_IN_ERROR])
        raise UsageError(
            f"no text in {', '.join(field_names) or 'any field'} of the first {len(rows)} rows"
            + (f"; --field may name one of these: {seen}" if seen else "")
        )
    return FieldSelection(fields=selected, guessed=not field_names, others=_names(present - set(selected)))


def _holds_bytes(rows: Sequence[Mapping[str, Any]], field: str) -> bool:
    return any(holds_bytes(row.get(field)) for row in rows)


def _names(fields: set[str]) -> tuple[str, ...]:
    """Field names, safe to show: the author of the file chose them."""
    return tuple(clean(field) for field in sorted(fields)[:_IN_REPORT])


def _known_shape(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    for shape in _SHAPES:
        matching = sum(
            all(has_text(row, field) or (field == "input" and field in row) for field in shape) for row in rows
        )
        if rows and matching >= _FITS * len(rows):
            return shape
    return ()


def _longest_fields(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The field with the most text; an object or a list counts only if no field is a text itself."""
    for is_plain in (True, False):
        lengths: dict[str, int] = {}
        for row in rows:
            for field, value in row.items():
                if isinstance(value, str) or not is_plain:
                    lengths[field] = lengths.get(field, 0) + sum(map(len, texts_of([value])[0]))
        if any(lengths.values()):
            return (max(lengths, key=lambda field: (lengths[field], field)),)
    return ()
