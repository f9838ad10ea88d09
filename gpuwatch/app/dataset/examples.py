"""A few rows of the file, for a person to judge by: what the clusters are about, and which rows are nearly the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from gpuwatch.app.dataset.audit import Audit
from gpuwatch.app.dataset.duplicates import NO_ROW, RowNumbers
from gpuwatch.app.dataset.lines import read_lines
from gpuwatch.app.dataset.texts import UnusableLine, parse_line, row_text
from gpuwatch.domain.market.text import clean

_CLUSTERS = 10
_PAIRS = 10
_LETTERS = 160
_SAMPLE = 2_000  # rows of a cluster whose middle is looked for


class ExampleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row, by its line in the file (the first is 1)."""

    line: int
    text: str


class ExampleCluster(msgspec.Struct, frozen=True, kw_only=True):
    """One of the fullest, with the row nearest to its middle."""

    rows: int
    middle: ExampleRow


class ExamplePair(msgspec.Struct, frozen=True, kw_only=True):
    """A row that goes, and the one that stays in its place."""

    cosine: float
    goes: ExampleRow
    stays: ExampleRow


class AuditExamples(msgspec.Struct, frozen=True, kw_only=True):
    """What the report shows of the texts. Pairs: the least alike first, since there a threshold errs."""

    clusters: tuple[ExampleCluster, ...]
    pairs: tuple[ExamplePair, ...]


def examples_of(audit: Audit) -> AuditExamples:
    """Read them out of the file: one more pass, without looking into the other lines."""
    labels = audit.clusters.labels
    fullest = np.argsort(-np.bincount(labels), kind="stable")[:_CLUSTERS]
    middles = [_middle(audit, np.flatnonzero(labels == number)) for number in fullest]
    near = np.flatnonzero(audit.near != NO_ROW)
    pairs = near[np.argsort(audit.cosines[near], kind="stable")][:_PAIRS]
    shown = _read(audit, [*middles, *pairs.tolist(), *audit.near[pairs].tolist()])
    return AuditExamples(
        clusters=tuple(
            ExampleCluster(rows=int((labels == number).sum()), middle=shown[row])
            for number, row in zip(fullest, middles, strict=True)
            if (labels == number).any()
        ),
        pairs=tuple(
            ExamplePair(cosine=round(float(audit.cosines[row]), 4), goes=shown[row], stays=shown[int(audit.near[row])])
            for row in pairs.tolist()
        ),
    )


def _middle(audit: Audit, members: RowNumbers) -> int:
    some = members[:: max(1, len(members) // _SAMPLE)]
    vectors = np.asarray(audit.scanned.vectors[some])
    return int(some[(vectors @ vectors.mean(axis=0)).argmax()]) if len(some) else 0


def _read(audit: Audit, rows: Iterable[int]) -> Mapping[int, ExampleRow]:
    numbers = audit.scanned.rows["line"]
    wanted = {int(numbers[row]): row for row in rows}
    last = max(wanted, default=-1)
    found: dict[int, ExampleRow] = {}
    for line in read_lines(audit.path):
        if line.number in wanted:
            text = _text(line.content, audit.reading.fields)
            found[wanted[line.number]] = ExampleRow(line=line.number + 1, text=text)
        if line.number >= last:
            break
    return found


def _text(content: bytes | None, fields: tuple[str, ...]) -> str:
    try:
        return clean(" ".join(row_text(parse_line(content or b""), fields)[0][: 4 * _LETTERS].split()), _LETTERS)
    except UnusableLine:  # the file was changed just now
        return ""
