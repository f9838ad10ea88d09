"""Duplicate rows: the same text, or nearly the same.

Exact: equal texts, by a 128-bit hash. Near: the cosine of the vectors is at or above a threshold within a cluster, as
in SemDeDup (Abbas et al., 2023); the first of similar rows stays. A model reads only the start of a long text. So if
one of the two was cut, their whole wording must be similar, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gpuwatch.dataset.clusters import Labels, split_cluster
from gpuwatch.dataset.embedding import Vectors
from gpuwatch.dataset.onnx_models import Array
from gpuwatch.dataset.scan import AuditProgress, ScannedFile
from gpuwatch.dataset.wording import MIN_WORDING_SIMILARITY, NO_ROW, RowNumbers, wording_similarity

_BLOCK = 1_024
_PART_ROWS = 20_000  # a larger cluster is compared in parts: the time grows with the square of the rows
_NearMatches = tuple[float, RowNumbers, Array, Array]  # threshold; per row: the similar row, cosine, is it one?


def exact_duplicates(rows: Array) -> RowNumbers:
    """For each row the first row with the same text; `NO_ROW` if it is the first one itself."""
    duplicate_of = np.full(len(rows), NO_ROW, np.int64)
    if len(rows) < 2:
        return duplicate_of
    order = np.lexsort((np.arange(len(rows)), rows["hash_rest"], rows["hash"]))
    first, rest = rows["hash"][order], rows["hash_rest"][order]
    begins = np.concatenate(([True], (first[1:] != first[:-1]) | (rest[1:] != rest[:-1])))
    leaders = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))]
    duplicate_of[order[~begins]] = leaders[~begins]
    return duplicate_of


def near_duplicates(
    scanned: ScannedFile, labels: Labels, exact: RowNumbers, threshold: float | None, progress: AuditProgress
) -> tuple[RowNumbers, np.ndarray[Any, np.dtype[np.float32]]]:
    """For each row a similar earlier row that stays, and their cosine; `NO_ROW`: there is none, or no threshold."""
    near = np.full(len(labels), NO_ROW, np.int64)
    cosines = np.zeros(len(labels), np.float32)
    if threshold is None:
        return near, cosines
    near_matches = threshold, near, cosines, np.zeros(len(labels), bool)
    firsts = np.flatnonzero((exact == NO_ROW) & (scanned.rows["unread"] == 0))
    compared = 0
    for members in _parts(scanned.vectors, firsts, labels):
        _compare(scanned, members, near_matches)
        compared += len(members)
        progress("comparing", min(compared, len(firsts)), len(firsts))
    return near, cosines


def _parts(vectors: Vectors, firsts: RowNumbers, labels: Labels) -> Iterator[RowNumbers]:
    """The rows of each cluster in order; a large cluster in overlapping parts."""
    order = firsts[np.argsort(labels[firsts], kind="stable")]
    for members in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1) if len(order) else ():
        if len(members) <= _PART_ROWS:
            yield members
            continue
        inner = split_cluster(vectors, members, _PART_ROWS // 4)  # each row is in two
        yield from (members[(inner == number).any(axis=1)] for number in range(int(inner.max()) + 1))


def _compare(scanned: ScannedFile, members: RowNumbers, near_matches: _NearMatches) -> None:
    """Compare each row with the earlier rows that stay."""
    near = near_matches[1]
    members = members[near[members] == NO_ROW]  # rows removed in an earlier part are done
    unique_members: list[RowNumbers] = []
    for start in range(0, len(members), _BLOCK):
        block = members[start : start + _BLOCK]
        vectors = np.asarray(scanned.vectors[block])
        for earlier in unique_members:
            similarity = vectors @ np.asarray(scanned.vectors[earlier]).T
            _mark_near(scanned, block, earlier, similarity, near_matches)
        inside = np.tril(vectors @ vectors.T, -1)
        _mark_near(scanned, block, block, inside, near_matches)
        unique_members.append(block[near[block] == NO_ROW])


def _mark_near(
    scanned: ScannedFile, block: RowNumbers, earlier: RowNumbers, similarity: Vectors, near_matches: _NearMatches
) -> None:
    """Row by row, most similar first: a removed row removes no others, and a row that others were removed for stays."""
    threshold, near, cosines, kept_for = near_matches
    for index in np.flatnonzero((similarity >= threshold).any(axis=1)):
        row = block[index]
        if near[row] != NO_ROW or kept_for[row]:
            continue
        hits = np.flatnonzero(similarity[index] >= threshold)
        hits = hits[scanned.rows["rest"][earlier[hits]] == scanned.rows["rest"][row]]
        for other in hits[np.argsort(-similarity[index, hits], kind="stable")]:
            if near[earlier[other]] == NO_ROW and _has_similar_wording(scanned, row, earlier[other]):
                near[row], cosines[row], kept_for[earlier[other]] = earlier[other], similarity[index, other], True
                break


def _has_similar_wording(scanned: ScannedFile, row: int, other: int) -> bool:
    if not (scanned.rows["cut"][row] or scanned.rows["cut"][other]):
        return True
    return wording_similarity(scanned.sketches[row], scanned.sketches[other]) >= MIN_WORDING_SIMILARITY
