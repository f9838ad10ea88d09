"""The questions of the sources as rows of TOML files, checked as they are read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

FOLDER = Path(__file__).parent
TESTS = FOLDER.parent.parent / "tests"
COUNT = 172


class SourceVerdict(StrEnum):
    """Whether gpuwatch does what a source asks for."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"


class SourceRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One command, without the leading `gpuwatch`, and what its output must contain."""

    command: str
    prints: tuple[str, ...]
    code: int = 0


class SourceRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One question of a source.

    Attributes:
        asks: the question, in our own words.
        says: what the result means, where its figures do not say it.
        runs: run in this order in one folder.
        settings: gpuwatch.toml in that folder.
        files: name → text of further files there.
        market: offers that the marketplace on loopback has; without any there is no marketplace.
        tests: path::name of the tests that prove what takes a daemon or hours.
        why: what is missing, why, and what gpuwatch offers instead.
        is_slow: its commands take more than 0.3 s, so `make evidence` alone runs them.
    """

    number: int
    asks: str
    verdict: SourceVerdict
    says: str = ""
    runs: tuple[SourceRun, ...] = ()
    settings: str = ""
    files: dict[str, str] = {}
    market: tuple[dict[str, Any], ...] = ()
    tests: tuple[str, ...] = ()
    why: str = ""
    is_slow: bool = msgspec.field(default=False, name="slow")


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One source document with its questions."""

    title: str
    about: str
    row: tuple[SourceRow, ...]


def sources(folder: Path = FOLDER) -> list[Source]:
    """Return the sources in their order.

    Raises:
        ValueError: a number is missing or twice, a test does not exist, or a row proves or explains nothing.
    """
    found = [msgspec.toml.decode(path.read_bytes(), type=Source) for path in sorted(folder.glob("s*.toml"))]
    rows = [row for source in found for row in source.row]
    if sorted(row.number for row in rows) != list(range(1, COUNT + 1)):
        numbers = [row.number for row in rows]
        missing = [one for one in range(1, COUNT + 1) if numbers.count(one) != 1]
        raise ValueError(f"expected each of the numbers 1 to {COUNT} once; not so: {missing}")
    faults = [f"{row.number}: {fault}" for row in rows for fault in _faults(row)]
    if faults:
        raise ValueError("; ".join(faults))
    return found


def _faults(row: SourceRow) -> Iterator[str]:
    if row.verdict is SourceVerdict.YES and not (row.runs or row.tests):
        yield "yes, without a command or a test"
    if (row.verdict is SourceVerdict.YES) == bool(row.why):
        yield "a reason belongs to what is not yes, and only there"
    for run in row.runs:
        if not any(run.prints):
            yield f"{run.command}: no figure is expected"
    for test in row.tests:
        path, _, name = test.partition("::")
        file = TESTS.parent / path
        if not (file.is_file() and re.search(rf"(?m)^ *def {name}\(", file.read_text(encoding="utf-8"))):
            yield f"{test} does not exist"
