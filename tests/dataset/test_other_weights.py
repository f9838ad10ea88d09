"""MiniLM with other weights. In a file of its own, so that the original model need not be in memory, too."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from gpuwatch.dataset.embedding import open_embedder
from gpuwatch.dataset.onnx_models import find_model
from gpuwatch.errors import UsageError
from tests.checkout import TESTS

RECORDED = json.loads((TESTS / "recorded" / "minilm.json").read_text(encoding="utf-8"))


def test_minilms_weights_may_be_of_half_precision_and_have_a_prefix(tmp_path: Path) -> None:
    found = find_model(None)
    weights = {
        f"bert.{name}": value.astype(np.float16) if value.dtype.kind == "f" else value
        for name, value in load_file(found.weights).items()
    }
    save_file(weights, tmp_path / "model.safetensors")
    del weights
    (tmp_path / "tokenizer.json").write_bytes(found.tokenizer.read_bytes())
    vectors = open_embedder(tmp_path, "onnx", 1).vectors(RECORDED["texts"]).vectors
    assert np.abs(vectors - np.array(RECORDED["vectors"])).max() < 0.02


def test_weights_of_another_model_are_reported_in_a_line(tmp_path: Path) -> None:
    found = find_model(None)
    weights = {name: value for name, value in load_file(found.weights).items() if ".layer.5." not in name}
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "tokenizer.json").write_bytes(found.tokenizer.read_bytes())
    with pytest.raises(UsageError, match="not the weights of all-MiniLM-L6-v2"):
        open_embedder(tmp_path, "onnx-int8", 1)
