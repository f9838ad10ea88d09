"""The output of a command besides tables: JSON on standard output, notes on standard error, in any encoding.

What is printed is recorded, too, if the command writes an HTML page.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from unicodedata import normalize

import click

if TYPE_CHECKING:
    from gpuwatch.ports.findings import Finding

_LINE_EVERY_S = 10.0
_HANDLER = "gpuwatch.fallback"
_ASCII = "gpuwatch_ascii"
_PLAIN = {
    "–": "-", "—": "-", "−": "-", "…": "...", "×": "x", "÷": "/", "·": ".", "→": "->", "←": "<-", "≤": "<=", "≥": ">=",
    "±": "+-", "“": '"', "”": '"', "„": '"', "’": "'", "░": ":", "│": "|", "┤": "+", "└": "+", "┬": "+", "─": "-",
    "━": "=", "╍": "-", "┄": ".", "▁": "_", "▂": ".", "▃": "-", "▄": "=", "▅": "+", "▆": "*", "▇": "#", "█": "@",
}  # fmt: skip
_BRAILLE = range(0x2800, 0x2900)


class RecordedTable(NamedTuple):
    """A printed table, including the columns that a narrow terminal hides."""

    title: str
    headings: Sequence[str]
    right: Sequence[bool]
    rows: Sequence[Sequence[str]]


class Recording(NamedTuple):
    """What a command prints for its HTML page (`--html`), so that page and terminal always agree.

    Attributes:
        answers: sentences and tables, in printed order.
    """

    answers: list[str | RecordedTable]
    notes: list[str]


_RECORDING: ContextVar[Recording | None] = ContextVar("recording", default=None)


@contextmanager
def record_output() -> Iterator[Recording]:
    """Record what `echo`, `table` and `note` print in this block."""
    recording = Recording([], [])
    token = _RECORDING.set(recording)
    try:
        yield recording
    finally:
        _RECORDING.reset(token)


def echo(line: str) -> None:
    """Print and record a line of the result."""
    record(line)
    click.echo(line)


def record(answer: str | RecordedTable) -> None:
    """Record a part of the result without printing it."""
    if (recording := _RECORDING.get()) is not None:
        recording.answers.append(answer)


def make_output_safe() -> None:
    """Prevent UnicodeEncodeError in all further output: replace characters that the encoding lacks."""
    codecs.register_error(_HANDLER, _replace)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is None:
            continue
        if codecs.lookup(stream.encoding or "utf-8").name == "ascii":
            codecs.register(_ascii_by_another_name)
            reconfigure(encoding=_ASCII, errors=_HANDLER)
        else:
            reconfigure(errors=_HANDLER)


_NBSP = "\N{NO-BREAK SPACE}"


def displayable(text: str) -> str:
    """Text as standard output can show it, so that its width is known; without control characters."""
    if not text.isprintable():
        text = "".join(character for character in text.replace(_NBSP, " ") if character.isprintable())
    if text.isascii() or _is_unicode():
        return text
    codecs.register_error(_HANDLER, _replace)
    return text.encode(sys.stdout.encoding, _HANDLER).decode(sys.stdout.encoding)


def json_out(value: Any) -> None:
    """One JSON document on standard output."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    if not _is_unicode() and not text.isascii():
        import json

        text = json.dumps(json.loads(text), indent=2)  # escapes characters that the encoding may lack
    sys.stdout.write(text + "\n")


def note(line: str) -> None:
    """Print a line on standard error, separate from the result."""
    if (recording := _RECORDING.get()) is not None:
        recording.notes.append(line)
    click.echo(line, err=True)


@contextmanager
def progress(title: str = "") -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar for each step on a terminal, else a line every ten seconds, both on standard error.

    Yields:
        called with the step, the amount done, and the total (0: unknown).
    """
    if not sys.stderr.isatty():
        import time

        yield LineProgress(title, time.monotonic).report
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def report(label: str, done: int, total: int) -> None:
            if label not in tasks:
                tasks[label] = bars.add_task(f"{title}{label}", total=total or None)
            bars.update(tasks[label], completed=done, total=total or None)

        yield report


class LineProgress:
    """Progress lines for logs and pipes; prints nothing for work under ten seconds."""

    def __init__(self, title: str, clock: Callable[[], float]) -> None:
        self._title = title
        self._clock = clock
        self._last = clock()

    def report(self, label: str, done: int, total: int) -> None:
        """Print the progress if a line is due."""
        now = self._clock()
        if now - self._last >= _LINE_EVERY_S:
            self._last = now
            click.echo(
                f"{self._title}{label}: {done / total:.0%}" if total else f"{self._title}{label}: {done:,}", err=True
            )


def local(moment: datetime | None, timezone: str) -> str:
    """A time in the configured zone, to the second; "–" if there is none."""
    from zoneinfo import ZoneInfo

    return "–" if moment is None else moment.astimezone(ZoneInfo(timezone)).strftime("%Y-%m-%d %H:%M:%S %Z")


def _ascii_by_another_name(name: str) -> codecs.CodecInfo | None:
    """ASCII under a name that click accepts: it replaces plain ASCII by UTF-8."""
    if name != _ASCII:
        return None
    codec = codecs.lookup("ascii")
    return codecs.CodecInfo(*codec, codec.incrementalencoder, codec.incrementaldecoder, name=_ASCII)


def _is_unicode() -> bool:
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"


def _replace(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_plain(character) for character in error.object[error.start : error.end]), error.end


def _plain(character: str) -> str:
    if character in _PLAIN:
        return _PLAIN[character]
    if ord(character) in _BRAILLE:
        return "*" if ord(character) > _BRAILLE.start else " "
    base = normalize("NFKD", character).encode("ascii", "ignore").decode()
    return base if len(base) == 1 and base.isalpha() else character.encode("ascii", "backslashreplace").decode()


def print_finding(finding: Finding, signs: Mapping[str, str]) -> None:
    """Print one checked thing; how to fix it, and what explains it, below.

    Args:
        signs: state → first column, all of one width.
    """
    sign = signs[finding.state]
    heading = " ".join(filter(None, (finding.area, finding.name)))
    place = f" ({finding.place})" if finding.place else ""
    click.echo(f"{sign} {heading}{place}: {finding.text}")
    if finding.mend and finding.state != "ok":
        click.echo(f"{'':{len(sign)}} → {finding.mend}")
    if finding.docs and finding.state == "fault":
        click.echo(f"{'':{len(sign)}} see {finding.docs}")
