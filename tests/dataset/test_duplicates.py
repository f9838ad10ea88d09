"""Existing texts are found; texts with only the same beginning are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.dataset import duplicates as module
from gpuwatch.dataset.duplicates import exact_duplicates, near_duplicates
from gpuwatch.dataset.scan import NO_ROW, ROW_TYPE, ScannedFile, minhashes, wording_similarity
from tests.dataset.conftest import Auditor, written
from tests.dataset.tiny_models import words

NOBODY = lambda _what, _done, _all: None  # noqa: E731


def scanned(vectors: np.ndarray, cut: bool = False) -> ScannedFile:
    rows = np.zeros(len(vectors), ROW_TYPE)
    rows["cut"] = cut
    sketches = np.arange(len(vectors) * 64, dtype=np.uint32).reshape(-1, 64)  # all different
    return ScannedFile(rows=rows, vectors=vectors, sketches=sketches, skipped={}, lines=0, bytes=0, of="")


@given(texts=st.lists(st.integers(0, 6), max_size=40))
def test_exact_duplicates_point_at_the_first(texts: list[int]) -> None:
    rows = np.zeros(len(texts), ROW_TYPE)
    rows["hash"], rows["hash_rest"] = np.array(texts) % 3, np.array(texts) // 3  # half a hash is not enough
    expected = [texts.index(text) if texts.index(text) < place else NO_ROW for place, text in enumerate(texts)]
    assert exact_duplicates(rows).tolist() == expected


@given(seed=st.integers(0, 10**6), count=st.integers(1, 60), clusters=st.integers(1, 4), block=st.integers(1, 20))
def test_near_duplicates_are_those_of_a_loop_over_all_pairs(seed: int, count: int, clusters: int, block: int) -> None:
    draw = np.random.default_rng(seed)
    vectors = draw.normal(size=(count, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    labels = draw.integers(0, clusters, count).astype(np.int32)
    exact = np.where(draw.random(count) < 0.2, 0, NO_ROW)
    exact[0] = NO_ROW
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", block)
        near, cosines = near_duplicates(scanned(vectors), labels, exact, 0.9, NOBODY)
    stays: list[int] = []
    for row in range(count):
        alike = [other for other in stays if labels[other] == labels[row] and vectors[row] @ vectors[other] >= 0.9]
        if exact[row] != NO_ROW:
            assert near[row] == NO_ROW
        elif alike:
            assert near[row] in alike
            assert cosines[row] == pytest.approx(vectors[row] @ vectors[near[row]], abs=1e-6)
        else:
            assert near[row] == NO_ROW
            stays.append(row)


def test_a_large_cluster_is_parted_and_copies_are_still_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PART_ROWS", 50)
    draw = np.random.default_rng(5)
    vectors = draw.normal(size=(150, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    twice = np.concatenate([vectors, vectors])
    near, _ = near_duplicates(scanned(twice), np.zeros(300, np.int32), np.full(300, NO_ROW), 0.9999, NOBODY)
    assert (near[:150] == NO_ROW).all()
    assert near[150:].tolist() == list(range(150))


def test_a_crowd_in_one_spot_is_parted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Close texts are joined into one cluster, but must not be compared all with all."""
    monkeypatch.setattr(module, "_PART_ROWS", 40)
    draw = np.random.default_rng(6)
    vectors = (np.ones((400, 8)) + draw.normal(0, 0.1, (400, 8))).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    parts = list(module._parts(vectors, np.arange(400), np.zeros(400, np.int32)))
    assert np.bincount(np.concatenate(parts)).tolist() == [2] * 400
    assert all((np.diff(part) > 0).all() for part in parts)
    assert max(map(len, parts)) <= 80


@given(seed=st.integers(0, 10**6))
def test_in_parts_too_what_stays_stands_for_what_goes(seed: int) -> None:
    draw = np.random.default_rng(seed)
    vectors = (np.ones((150, 3)) + draw.normal(0, 0.3, (150, 3))).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PART_ROWS", 40)
        near, _ = near_duplicates(scanned(vectors), np.zeros(150, np.int32), np.full(150, NO_ROW), 0.99, NOBODY)
    goes = np.flatnonzero(near != NO_ROW)
    assert (near[near[goes]] == NO_ROW).all()
    assert (near[goes] < goes).all()
    assert ((vectors[goes] * vectors[near[goes]]).sum(axis=1) >= 0.99 - 1e-6).all()


def test_texts_that_were_cut_are_the_same_only_if_their_wording_is() -> None:
    same = np.ones((2, 4), np.float32) / 2
    near, _ = near_duplicates(scanned(same, cut=True), np.zeros(2, np.int32), np.full(2, NO_ROW), 0.95, NOBODY)
    assert near.tolist() == [NO_ROW, NO_ROW]


def test_long_texts_that_begin_alike_both_stay(audit: Auditor, tmp_path: Path) -> None:
    """The tiny model reads 16 tokens: it cannot tell the first three texts apart."""
    beginning = list(range(14))
    texts = [
        words(beginning + list(range(100, 200))),
        words(beginning + list(range(200, 290))),
        words(beginning + list(range(100, 199)) + [7]),
    ]
    done = audit(written(tmp_path / "a.jsonl", texts))
    assert done.scanned.rows["cut"].all()
    assert done.near.tolist() == [NO_ROW, NO_ROW, 0]


@pytest.mark.parametrize(("shared", "expected"), [(0, 0.0), (500, 0.33), (900, 0.82), (1000, 1.0)])
def test_a_sketch_estimates_the_share_of_common_wording(shared: int, expected: float) -> None:
    one = " ".join(f"a{number}" for number in range(1000))
    other = " ".join(f"a{number}" if number < shared else f"b{number}" for number in range(1000))
    assert wording_similarity(*minhashes([one, other])) == pytest.approx(expected, abs=0.15)
    assert wording_similarity(*minhashes([one, one])) == 1


def test_a_sketch_of_nothing_is_none_of_a_word() -> None:
    assert wording_similarity(*minhashes(["", "word"])) < 0.1
    assert wording_similarity(*minhashes(["two words", "Two  WORDS"])) == 1
