"""One reason a row; a cluster keeps what it may."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.dataset.duplicates import NONE
from gpuwatch.dataset.removal import Found, Reason, Rules, reasons_of


def found(labels: list[int], gone: list[bool] | None = None, seed: int = 1) -> Found:
    exact = np.array([0 if one else NONE for one in gone or [False] * len(labels)], np.int64)
    return Found(
        hashes=np.random.default_rng(seed).integers(0, 1 << 63, len(labels)).astype(np.uint64),
        labels=np.array(labels, np.int32),
        exact=exact,
        near=np.full(len(labels), NONE),
        perplexities=None,
    )


@given(
    rows=st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=60),
    most=st.integers(1, 8),
    seed=st.integers(0, 9),
)
def test_a_cluster_keeps_no_more_than_it_may_and_no_less(rows: list[tuple[int, bool]], most: int, seed: int) -> None:
    labels, gone = [label for label, _ in rows], [one for _, one in rows]
    reasons = reasons_of(found(labels, gone), Rules(per_cluster=most, seed=seed))
    for cluster in set(labels):
        there = sum(label == cluster and not one for label, one in rows)
        kept = sum(label == cluster and reason == Reason.KEPT for label, reason in zip(labels, reasons, strict=True))
        assert kept == min(there, most)


def test_which_rows_stay_hangs_on_the_seed_and_on_nothing_else() -> None:
    one = found([0] * 200)
    kept = [reasons_of(one, Rules(per_cluster=100, seed=seed)) == Reason.KEPT for seed in (1, 1, 2)]
    assert np.array_equal(kept[0], kept[1])
    assert 30 < (kept[0] & kept[2]).sum() < 70  # half by chance
    assert 30 < kept[0][:100].sum() < 70  # the order of the file says nothing


def test_the_first_reason_that_holds_is_told() -> None:
    many = Found(
        hashes=np.zeros(4, np.uint64),
        labels=np.zeros(4, np.int32),
        exact=np.array([NONE, 0, NONE, NONE]),
        near=np.array([NONE, NONE, 0, NONE]),
        perplexities=np.array([1, 99, 99, 99], np.float32),
    )
    rules = Rules(near=0.9, most_perplexity=50)
    assert reasons_of(many, rules).tolist() == [Reason.KEPT, Reason.EXACT, Reason.NEAR, Reason.SURPRISING]
    assert reasons_of(many, Rules(exact=False)).tolist() == [0, 0, 0, 0]
