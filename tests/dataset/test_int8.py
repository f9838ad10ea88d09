"""MiniLM in 8 bits: faster, nearly the same vectors, and no text's vector depends on its neighbours."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gpuwatch.dataset.embedding import Embedder, Vectors, open_embedder
from tests.checkout import TESTS
from tests.dataset import tiny_models
from tests.dataset.minilm_ranges import paragraphs

RECORDED = json.loads((TESTS / "recorded" / "minilm.json").read_text(encoding="utf-8"))
TEXTS = paragraphs()[1::2][:80]  # its ranges were computed from others


@pytest.fixture(scope="module")
def exact() -> tuple[Vectors, str]:
    """The vectors of the texts with 32 bits, and the digest: that model is released before the other one is loaded."""
    embedder = open_embedder(None, "onnx", 1)
    return embedder.vectors(TEXTS)[0], embedder.digest


@pytest.fixture(scope="module")
def int8(exact: tuple[Vectors, str]) -> Embedder:
    return open_embedder(None, "onnx-int8", 1)


def test_its_vectors_are_near_those_of_32_bits(int8: Embedder, exact: tuple[Vectors, str]) -> None:
    expected, found = exact[0], int8.vectors(TEXTS)[0]
    assert (expected * found).sum(axis=1).min() > 0.97
    difference = (found @ found.T - expected @ expected.T)[np.triu_indices(len(TEXTS), 1)]
    assert difference.std() < 0.025
    assert np.abs(difference).max() < 0.12


def test_a_text_has_the_same_vector_whatever_stands_beside_it(int8: Embedder) -> None:
    alone = np.concatenate([int8.vectors([text])[0] for text in RECORDED["texts"]])
    assert np.abs(alone - int8.vectors([*RECORDED["texts"], *paragraphs()[:40]])[0][: len(alone)]).max() < 1e-6


def test_nearly_equal_texts_stay_nearly_equal(int8: Embedder) -> None:
    text = paragraphs()[1]
    one, other, another = int8.vectors([text, text.replace(" is ", "  is ") + " ", paragraphs()[9]])[0]
    assert one @ other > 0.99
    assert one @ another < 0.9


def test_vectors_of_8_and_of_32_bits_are_never_mixed(int8: Embedder, exact: tuple[Vectors, str]) -> None:
    assert int8.digest != exact[1]
    assert int8.name == "all-MiniLM-L6-v2, onnxruntime, 8 bits"


def test_a_model_that_brings_its_graph_runs_as_it_is(tmp_path: Path) -> None:
    folder = tiny_models.bert(tmp_path / "tiny")
    assert open_embedder(folder, "onnx-int8", 1).digest == open_embedder(folder, "onnx", 1).digest
