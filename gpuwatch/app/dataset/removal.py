"""Which rows go, and why: the first reason that holds."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import msgspec
import numpy as np

from gpuwatch.app.dataset.clusters import Labels
from gpuwatch.app.dataset.duplicates import NO_ROW, RowNumbers
from gpuwatch.app.dataset.perplexity import Perplexities

RemovalReasons = np.ndarray[Any, np.dtype[np.uint8]]


class RemovalReason(IntEnum):
    """What becomes of a row."""

    KEPT = 0
    EXACT = 1
    NEAR = 2
    SURPRISING = 3
    PLAIN = 4
    CROWDED = 5

    @property
    def text(self) -> str:
        """For a person."""
        return _TEXTS[self]


_TEXTS = {
    RemovalReason.KEPT: "kept",
    RemovalReason.EXACT: "the same text",
    RemovalReason.NEAR: "nearly the same text",
    RemovalReason.SURPRISING: "perplexity above the limit",
    RemovalReason.PLAIN: "perplexity below the limit",
    RemovalReason.CROWDED: "more than a cluster may keep",
}


class RemovalRules(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a row go. None: nothing."""

    exact: bool = True
    near: float | None = None  # cosine
    most_perplexity: float | None = None
    least_perplexity: float | None = None
    per_cluster: int | None = None  # rows
    clusters: int = 100
    seed: int = 42


class RowFindings(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of each row."""

    hashes: np.ndarray[Any, Any]
    labels: Labels
    exact: RowNumbers
    near: RowNumbers
    perplexities: Perplexities | None


def reasons_of(found: RowFindings, rules: RemovalRules) -> RemovalReasons:
    """The reason of each row."""
    reasons = np.zeros(len(found.labels), np.uint8)
    if found.perplexities is not None:
        if rules.least_perplexity is not None:
            reasons[found.perplexities < rules.least_perplexity] = RemovalReason.PLAIN
        if rules.most_perplexity is not None:
            reasons[found.perplexities > rules.most_perplexity] = RemovalReason.SURPRISING
    if rules.near is not None:
        reasons[found.near != NO_ROW] = RemovalReason.NEAR
    if rules.exact:
        reasons[found.exact != NO_ROW] = RemovalReason.EXACT
    if rules.per_cluster is not None:
        reasons[_too_many(found, reasons, rules.per_cluster, rules.seed)] = RemovalReason.CROWDED
    return reasons


def _too_many(found: RowFindings, reasons: RemovalReasons, most: int, seed: int) -> RowNumbers:
    """Of each cluster the rows beyond `most`; which ones stay is drawn by the texts, so the order says nothing."""
    left = np.flatnonzero(reasons == RemovalReason.KEPT)
    drawn = found.hashes[left] ^ np.random.RandomState(seed).randint(0, 1 << 63, dtype=np.int64).astype(np.uint64)
    mixed = drawn * np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing (Knuth): the seed reaches the leading bits
    order = left[np.lexsort((mixed, found.labels[left]))]
    labels = found.labels[order]
    begins = (
        np.flatnonzero(np.concatenate(([True], labels[1:] != labels[:-1]))) if len(order) else np.empty(0, np.int64)
    )
    place = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
    return order[place >= most]
