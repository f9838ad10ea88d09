"""MiniLM in 8 bits: faster, nearly the same vectors, and no text's vector depends on its neighbours."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from gpuwatch.app.dataset.audit import AuditModels
from gpuwatch.app.dataset.embedding import Embedder, open_embedder
from gpuwatch.app.dataset.onnx_models import find_model
from gpuwatch.errors import UsageError
from tests.app.dataset import tiny_models
from tests.app.dataset.bert_graph import PACKAGED_INT8, packaged_int8_graph
from tests.app.dataset.minilm_ranges import paragraphs

RECORDED = json.loads((Path(__file__).parents[2] / "recorded" / "minilm.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def int8() -> Embedder:
    return open_embedder(None, "onnx-int8", 1)


def test_the_packaged_graph_is_the_one_that_is_tested_here() -> None:
    assert packaged_int8_graph() == PACKAGED_INT8.read_bytes()


def test_its_vectors_are_near_those_of_32_bits(int8: Embedder, minilm: AuditModels) -> None:
    """On paragraphs that its ranges were not computed from."""
    texts = paragraphs()[1::2][:80]
    exact, found = minilm.embedder.vectors(texts)[0], int8.vectors(texts)[0]
    assert (exact * found).sum(axis=1).min() > 0.97
    difference = (found @ found.T - exact @ exact.T)[np.triu_indices(len(texts), 1)]
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


def test_vectors_of_8_and_of_32_bits_are_never_mixed(int8: Embedder, minilm: AuditModels) -> None:
    assert int8.digest != minilm.embedder.digest
    assert int8.name == "all-MiniLM-L6-v2, onnxruntime, 8 bits"


def test_a_model_that_brings_its_graph_runs_as_it_is(tmp_path: Path) -> None:
    folder = tiny_models.bert(tmp_path / "tiny")
    assert open_embedder(folder, "onnx-int8", 1).digest == open_embedder(folder, "onnx", 1).digest


def test_weights_of_another_model_are_reported_in_a_line(tmp_path: Path) -> None:
    found = find_model(None)
    weights = {name: value for name, value in load_file(found.weights).items() if ".layer.5." not in name}
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "tokenizer.json").write_bytes(found.tokenizer.read_bytes())
    with pytest.raises(UsageError, match="not the weights of all-MiniLM-L6-v2"):
        open_embedder(tmp_path, "onnx-int8", 1)
