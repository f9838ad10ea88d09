"""One reason per row; a cluster keeps as many rows as allowed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.dataset.audit import RemovalReason, RemovalRules, RowFindings, reasons_of
from gpuwatch.dataset.scan import NO_ROW


def found(labels: list[int], gone: list[bool] | None = None, seed: int = 1) -> RowFindings:
    exact = np.array([0 if one else NO_ROW for one in gone or [False] * len(labels)], np.int64)
    return RowFindings(
        hashes=np.random.default_rng(seed).integers(0, 1 << 63, len(labels)).astype(np.uint64),
        labels=np.array(labels, np.int32),
        exact=exact,
        near=np.full(len(labels), NO_ROW),
        wording=np.full(len(labels), NO_ROW),
        perplexities=None,
    )


@given(
    rows=st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=60),
    most=st.integers(1, 8),
    seed=st.integers(0, 9),
)
def test_a_cluster_keeps_no_more_than_it_may_and_no_less(rows: list[tuple[int, bool]], most: int, seed: int) -> None:
    labels, gone = [label for label, _ in rows], [one for _, one in rows]
    reasons = reasons_of(found(labels, gone), RemovalRules(per_cluster=most, seed=seed))
    for cluster in set(labels):
        there = sum(label == cluster and not one for label, one in rows)
        kept = sum(
            label == cluster and reason == RemovalReason.KEPT for label, reason in zip(labels, reasons, strict=True)
        )
        assert kept == min(there, most)


def test_which_rows_stay_hangs_on_the_seed_and_on_nothing_else() -> None:
    one = found([0] * 200)
    kept = [reasons_of(one, RemovalRules(per_cluster=100, seed=seed)) == RemovalReason.KEPT for seed in (1, 1, 2)]
    assert np.array_equal(kept[0], kept[1])
    assert 30 < (kept[0] & kept[2]).sum() < 70  # half by chance
    assert 30 < kept[0][:100].sum() < 70  # independent of the order of the file


def test_the_first_reason_that_holds_is_reported() -> None:
    many = RowFindings(
        hashes=np.zeros(4, np.uint64),
        labels=np.zeros(4, np.int32),
        exact=np.array([NO_ROW, 0, NO_ROW, NO_ROW]),
        near=np.array([NO_ROW, NO_ROW, 0, NO_ROW]),
        wording=np.full(4, NO_ROW),
        perplexities=np.array([1, 99, 99, 99], np.float32),
    )
    rules = RemovalRules(near=0.9, most_perplexity=50)
    assert reasons_of(many, rules).tolist() == [
        RemovalReason.KEPT,
        RemovalReason.EXACT,
        RemovalReason.NEAR,
        RemovalReason.SURPRISING,
    ]
    assert reasons_of(many, RemovalRules(exact=False)).tolist() == [0, 0, 0, 0]
