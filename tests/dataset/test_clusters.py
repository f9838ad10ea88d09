"""Crowded and spread are distinguished, even if KMeans splits the crowd."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.dataset import duplicates as module
from gpuwatch.dataset.audit import AuditModels
from gpuwatch.dataset.duplicates import RowClusters, cluster_rows

_WHO = (
    "a cat",
    "the sailor",
    "my neighbour",
    "a chemist",
    "the mayor",
    "an engineer",
    "a farmer",
    "a nurse",
    "a baker",
)
_DID = ("repaired", "painted", "lost", "found", "studied", "sold", "borrowed", "measured", "forgot", "photographed")
_WHAT = (
    *("a violin", "the bridge", "an ancient map", "the reactor", "a bicycle", "the recipe for bread", "a telescope"),
    *("the football match", "a vaccine", "the tax law", "a poem", "the volcano", "an operating system", "a sheep"),
)


def mixed(rows: int, crowd: float, seed: int = 1) -> list[str]:
    """This many texts of one template, the others about different subjects."""
    draw = random.Random(seed)
    pick = draw.choice
    return [
        f"Your order number {draw.randint(10_000, 99_999)} has been shipped."
        if draw.random() < crowd
        else f"{pick(_WHO)} {pick(_DID)} {pick(_WHAT)}"
        for _ in range(rows)
    ]


def points(crowd: int, others: int, width: float, seed: int = 3) -> module.Vectors:
    """This many vectors around one direction, the others anywhere."""
    draw = np.random.default_rng(seed)
    middle = draw.normal(size=48)
    found = np.concatenate(
        [middle / np.linalg.norm(middle) + draw.normal(0, width, (crowd, 48)), draw.normal(size=(others, 48))]
    )
    draw.shuffle(found)
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def grouped(vectors: module.Vectors, distinct: int, wanted: int, seed: int) -> RowClusters:
    """Group rows that the model could read, of which the first ones differ."""
    rows = np.arange(len(vectors))
    return cluster_rows(vectors, rows >= 0, rows < distinct, wanted, seed)


def test_ninety_in_a_hundred_from_one_template_is_crowded(minilm: AuditModels) -> None:
    """KMeans alone splits the template into dozens of clusters, and reports nothing."""
    found = grouped(minilm.embedder.vectors(mixed(500, 0.93))[0], 400, 100, 42)
    assert (found.verdict, found.plain_top_share < 0.5, found.top_share > 0.9) == ("crowded", True, True)


def test_texts_about_this_and_that_are_spread(minilm: AuditModels) -> None:
    found = grouped(minilm.embedder.vectors(mixed(500, 0.0))[0], 450, 100, 42)
    assert found.verdict == "spread"
    assert found.top_share < 0.5


@pytest.mark.parametrize("width", [0.0, 0.02, 0.06])
@pytest.mark.parametrize("kind", ["KMeans", "MiniBatchKMeans"])
def test_a_planted_crowd_is_found_and_no_other(width: float, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind != "KMeans":
        monkeypatch.setattr(module, "MAX_KMEANS_ROWS", 100)
    crowded, spread = (
        grouped(points(1860, 140, width), 2000, 100, 42),
        grouped(points(0, 2000, width), 2000, 100, 42),
    )
    assert (crowded.verdict, spread.verdict) == ("crowded", "spread")
    assert crowded.method.startswith(f"{kind}, 100 clusters, seed 42")


def test_the_same_rows_are_grouped_the_same_way() -> None:
    one, other = (grouped(points(300, 300, 0.05), 600, 20, 42) for _ in range(2))
    assert np.array_equal(one.labels, other.labels)


def test_few_rows_give_no_verdict() -> None:
    found = grouped(points(0, 499, 0.1), 499, 100, 42)
    assert (found.verdict, found.rows_needed) == ("not enough data", 500)


@pytest.mark.parametrize("rows", [1, 2, 3, 30])
def test_one_text_again_and_again_is_one_cluster(rows: int) -> None:
    found = grouped(np.ones((rows, 4), np.float32) / 2, 1, 100, 42)
    assert (found.sizes, found.top_share) == ((rows,), 1.0)


@given(sizes=st.lists(st.integers(1, 500), min_size=1, max_size=120))
def test_shares_are_of_a_tenth_of_the_clusters(sizes: list[int]) -> None:
    ordered = tuple(sorted(sizes, reverse=True))
    found = RowClusters(labels=np.zeros(0, np.int32), sizes=ordered, plain_sizes=ordered, wanted=1, method="")
    assert found.top == -(-len(sizes) // 10)
    assert found.top_share == pytest.approx(sum(ordered[: found.top]) / sum(sizes))
    assert found.top_share == found.plain_top_share


def test_rows_go_to_the_nearest_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH_ROWS", 7)
    vectors, middles = points(0, 50, 0.0), points(0, 5, 0.0, seed=9) * 2
    by_hand = ((vectors[:, None] - middles[None]) ** 2).sum(axis=2).argmin(axis=1)
    assert np.array_equal(module.nearest_centre(vectors, middles), by_hand)
