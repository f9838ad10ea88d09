"""Models of a few kilobytes, generated here: the same files and graphs as real ones, with seeded random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.dataset.bert_graph import bert_graph
from tests.late import LateModule

onnx = LateModule("onnx")
helper, numpy_helper = LateModule("onnx.helper"), LateModule("onnx.numpy_helper")
tokenizers = LateModule("tokenizers")

HIDDEN, HEADS, LAYERS, INNER, VOCAB, PLACES = 32, 4, 2, 64, 300, 64
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{number}" for number in range(VOCAB - 4))]


def words(numbers: list[int]) -> str:
    """A text that the tiny tokenizer knows."""
    return " ".join(f"w{number % (VOCAB - 4)}" for number in numbers)


def tokenizer(path: Path, *, marks: bool = True) -> None:
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    made.normalizer = tokenizers.normalizers.Lowercase()
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    if marks:
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    made.save(str(path))


def bert(folder: Path, seed: int = 1, reads_tokens: int = 16, **config: Any) -> Path:
    """A folder with a BERT model as sentence-transformers publishes it, weights and ONNX."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(seed)

    def weight(*shape: int) -> np.ndarray[Any, Any]:
        return draw.normal(0, 0.3, shape).astype(np.float32)

    weights = {
        "embeddings.word_embeddings.weight": weight(VOCAB, HIDDEN),
        "embeddings.position_embeddings.weight": weight(PLACES, HIDDEN),
        "embeddings.token_type_embeddings.weight": weight(2, HIDDEN),
        **_norm("embeddings.LayerNorm", weight),
    }
    for number in range(LAYERS):
        at = f"encoder.layer.{number}."
        for part, (out, into) in {
            "attention.self.query": (HIDDEN, HIDDEN),
            "attention.self.key": (HIDDEN, HIDDEN),
            "attention.self.value": (HIDDEN, HIDDEN),
            "attention.output.dense": (HIDDEN, HIDDEN),
            "intermediate.dense": (INNER, HIDDEN),
            "output.dense": (HIDDEN, INNER),
        }.items():
            weights |= {f"{at}{part}.weight": weight(out, into), f"{at}{part}.bias": weight(out)}
        weights |= _norm(f"{at}attention.output.LayerNorm", weight) | _norm(f"{at}output.LayerNorm", weight)
    save_file(weights, folder / "model.safetensors")
    (folder / "model.onnx").write_bytes(bert_graph(weights, heads=HEADS, layers=LAYERS, with_weights=True))
    known = {
        "model_type": "bert",
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
        "max_position_embeddings": PLACES,
    }
    (folder / "config.json").write_text(json.dumps(known | config))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": reads_tokens}))
    tokenizer(folder / "tokenizer.json")
    return folder


def causal(folder: Path, table: np.ndarray[Any, Any], *, past: bool = False) -> Path:
    """A language model whose next word depends only on the last one: `table` has the logits.

    Args:
        past: it also needs its earlier input, like an exported decoder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    inputs = [helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, ["batch", "tokens"])]
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["looked"])]
    if past:
        for name in ("attention_mask", "position_ids"):
            inputs.append(helper.make_tensor_value_info(name, onnx.TensorProto.INT64, ["batch", "all"]))
        inputs.append(
            helper.make_tensor_value_info("past_key_values.0.key", onnx.TensorProto.FLOAT, ["batch", 2, "past", 4])
        )
        nodes += [  # the past adds its sum, which is 0 if there is none
            helper.make_node("ReduceSum", ["past_key_values.0.key"], ["sum"], keepdims=0),
            helper.make_node("Add", ["looked", "sum"], ["logits"]),
        ]
    else:
        nodes.append(helper.make_node("Identity", ["looked"], ["logits"]))
    graph = helper.make_graph(
        nodes,
        "bigram",
        inputs,
        [helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["batch", "tokens", table.shape[1]])],
        [numpy_helper.from_array(table.astype(np.float32), "table")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, str(folder / "model.onnx"))
    tokenizer(folder / "tokenizer.json", marks=False)
    return folder


def _norm(at: str, weight: Any) -> dict[str, np.ndarray[Any, Any]]:
    return {f"{at}.weight": 1 + weight(HIDDEN), f"{at}.bias": weight(HIDDEN)}
