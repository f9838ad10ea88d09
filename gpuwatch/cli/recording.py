"""Records what a command prints for its HTML page (`--html`), so that page and terminal always agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import click


class RecordedTable(NamedTuple):
    """A table, including the columns that a narrow terminal hides."""

    title: str
    headings: Sequence[str]
    right: Sequence[bool]
    rows: Sequence[Sequence[str]]


class Recording(NamedTuple):
    """Sentences and tables in printed order; and notes."""

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


def record_note(line: str) -> None:
    """Record a note without printing it."""
    if (recording := _RECORDING.get()) is not None:
        recording.notes.append(line)
