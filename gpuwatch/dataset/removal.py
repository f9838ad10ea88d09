"""Which rows go, and why: the first reason that holds."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import msgspec
import numpy as np

from gpuwatch.dataset.clusters import Labels
from gpuwatch.dataset.duplicates import NONE, Places
from gpuwatch.dataset.perplexity import Perplexities

Reasons = np.ndarray[Any, np.dtype[np.uint8]]


class Reason(IntEnum):
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
    Reason.KEPT: "kept",
    Reason.EXACT: "the same text",
    Reason.NEAR: "nearly the same text",
    Reason.SURPRISING: "perplexity above the limit",
    Reason.PLAIN: "perplexity below the limit",
    Reason.CROWDED: "more than a cluster may keep",
}


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a row go. None: nothing."""

    exact: bool = True
    near: float | None = None  # cosine
    most_perplexity: float | None = None
    least_perplexity: float | None = None
    per_cluster: int | None = None  # rows
    clusters: int = 100
    seed: int = 42


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of each row."""

    hashes: np.ndarray[Any, Any]
    labels: Labels
    exact: Places
    near: Places
    perplexities: Perplexities | None


def reasons_of(found: Found, rules: Rules) -> Reasons:
    """The reason of each row."""
    reasons = np.zeros(len(found.labels), np.uint8)
    if found.perplexities is not None:
        if rules.least_perplexity is not None:
            reasons[found.perplexities < rules.least_perplexity] = Reason.PLAIN
        if rules.most_perplexity is not None:
            reasons[found.perplexities > rules.most_perplexity] = Reason.SURPRISING
    if rules.near is not None:
        reasons[found.near != NONE] = Reason.NEAR
    if rules.exact:
        reasons[found.exact != NONE] = Reason.EXACT
    if rules.per_cluster is not None:
        reasons[_too_many(found, reasons, rules.per_cluster, rules.seed)] = Reason.CROWDED
    return reasons


def _too_many(found: Found, reasons: Reasons, most: int, seed: int) -> Places:
    """Of each cluster the rows beyond `most`; which ones stay is drawn by the texts, so the order says nothing."""
    left = np.flatnonzero(reasons == Reason.KEPT)
    drawn = found.hashes[left] ^ np.random.RandomState(seed).randint(0, 1 << 63, dtype=np.int64).astype(np.uint64)
    mixed = drawn * np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing (Knuth): the seed reaches the leading bits
    order = left[np.lexsort((mixed, found.labels[left]))]
    labels = found.labels[order]
    begins = (
        np.flatnonzero(np.concatenate(([True], labels[1:] != labels[:-1]))) if len(order) else np.empty(0, np.int64)
    )
    place = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
    return order[place >= most]
