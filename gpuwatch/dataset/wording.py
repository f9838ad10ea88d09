"""Nearly the same wording: MinHash and locality-sensitive hashing, without a model.

MinHash (Broder, "On the resemblance and containment of documents", 1997), by rensa: the share of equal numbers
estimates the Jaccard similarity of two texts' runs of five words; with 64 numbers the standard error is at most 0.06.
Rows are compared only if one of 16 bands of 4 numbers is equal (Indyk and Motwani, 1998). At a similarity of 0.8 this
finds more than 99.9 % of the pairs, and each row is compared only with the first one of its band.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpuwatch.dataset.onnx_models import Array, import_extra

MIN_WORDING_SIMILARITY = 0.8  # of the runs of words
MINHASH_SIZE = 64
MINHASH_TYPE = np.dtype("<u4")
NO_ROW = -1
_BANDS = 16
_SEED = 42  # must never change
_RUN_WORDS = 5
_MAX_WORDS = 50_000  # of a text
_MAX_CHARACTERS = 20 * _MAX_WORDS
# a character of a script without spaces between its words is a word; a long one (DNA, base64) is several
_WORD = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w{1,16}|[^\w\s]")
_ASCII_WORD = re.compile(r"\w{1,16}|[^\w\s]")
_BATCH_ROWS = 65_536
_MIX = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing (Knuth)

RowNumbers = np.ndarray[Any, np.dtype[np.int64]]


def minhashes(texts: Sequence[str]) -> Array:
    """The 64 numbers that represent a text's wording, one line per text."""
    if not texts:
        return np.empty((0, MINHASH_SIZE), MINHASH_TYPE)
    sketch = import_extra("rensa").RMinHash
    digests = sketch.digests_from_token_sets([_runs(text) for text in texts], MINHASH_SIZE, _SEED)
    return np.array(digests, MINHASH_TYPE)


def _runs(text: str) -> list[str]:
    words = (_ASCII_WORD if text.isascii() else _WORD).findall(text[:_MAX_CHARACTERS].lower())[:_MAX_WORDS]
    shifted = [words[start:] for start in range(_RUN_WORDS)]
    return list(map(" ".join, zip(*shifted, strict=False))) or [" ".join(words)]


def wording_similarity(first: Array, other: Array) -> float:
    """The estimated share of common runs of words: 0 to 1."""
    return float(np.mean(first == other))


def similar_wording(sketches: Array, exact: RowNumbers, rests: Array) -> RowNumbers:
    """For each row an earlier one that stays and has nearly the same wording; `NO_ROW`: there is none.

    Args:
        exact: rows with `NO_ROW` are compared; the others are exact duplicates.
        rests: what must be equal besides the wording.
    """
    near = np.full(len(exact), NO_ROW, np.int64)
    stays_for = np.zeros(len(exact), bool)  # a row that another one was removed for is not removed itself
    width = MINHASH_SIZE // _BANDS
    for band in range(_BANDS):
        left = np.flatnonzero((exact == NO_ROW) & (near == NO_ROW))
        keys = _band_keys(sketches, left, slice(band * width, (band + 1) * width), rests)
        order = np.argsort(keys, kind="stable")
        begins = np.append(True, keys[order[1:]] != keys[order[:-1]]) if len(order) else np.empty(0, bool)
        leaders = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))]
        others = np.flatnonzero(~begins)
        rows, firsts = left[order[others]], left[leaders[others]]
        free = ~stays_for[rows]
        rows, firsts = rows[free], firsts[free]
        for start in range(0, len(rows), _BATCH_ROWS):
            batch, first = rows[start : start + _BATCH_ROWS], firsts[start : start + _BATCH_ROWS]
            is_similar = (sketches[batch] == sketches[first]).mean(axis=1) >= MIN_WORDING_SIMILARITY
            near[batch[is_similar]] = first[is_similar]
            stays_for[first[is_similar]] = True
    return near


def _band_keys(sketches: Array, rows: RowNumbers, band: slice, rests: Array) -> Array:
    """One number per band of each row: different bands share a number once in 2^64 cases."""
    keys = np.asarray(rests[rows], np.uint64)
    for start in range(0, len(rows), _BATCH_ROWS):
        part = slice(start, start + _BATCH_ROWS)
        for column in np.asarray(sketches[rows[part], band], np.uint64).T:
            keys[part] = (keys[part] ^ column) * _MIX
            keys[part] ^= keys[part] >> np.uint64(29)
    return keys
