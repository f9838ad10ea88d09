"""What a command prints, kept for a page (`--html`): the page and the terminal never tell different things."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import click


class RecordedTable(NamedTuple):
    """A table, with the columns that a narrow terminal leaves out."""

    title: str
    headings: Sequence[str]
    right: Sequence[bool]
    rows: Sequence[Sequence[str]]


class Recording(NamedTuple):
    """In the order in which it was printed: sentences and tables; and notes."""

    answers: list[str | RecordedTable]
    notes: list[str]


_RECORDING: ContextVar[Recording | None] = ContextVar("recording", default=None)


@contextmanager
def recorded() -> Iterator[Recording]:
    """Keep what is printed meanwhile by `say`, `table` and `note`."""
    found = Recording([], [])
    token = _RECORDING.set(found)
    try:
        yield found
    finally:
        _RECORDING.reset(token)


def say(line: str) -> None:
    """A line of the answer, on standard output."""
    keep(line)
    click.echo(line)


def keep(answer: str | RecordedTable) -> None:
    """Keep a part of the answer without printing it."""
    if (recording := _RECORDING.get()) is not None:
        recording.answers.append(answer)


def keep_note(line: str) -> None:
    """Keep a note without printing it."""
    if (recording := _RECORDING.get()) is not None:
        recording.notes.append(line)
