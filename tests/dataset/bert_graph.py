"""BERT as an ONNX graph: for tiny models, and for the packaged MiniLM, whose weights onnxruntime adds at load.

    python -m tests.dataset.bert_graph        # write gpuwatch/dataset/all-minilm-l6-v2*.onnx again

Devlin et al., "BERT", 2019; Vaswani et al., "Attention Is All You Need", 2017.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from gpuwatch.dataset import onnx_models as models
from gpuwatch.dataset.onnx_models import find_model
from tests.checkout import TESTS
from tests.late import LateModule

onnx = LateModule("onnx")
helper, numpy_helper = LateModule("onnx.helper"), LateModule("onnx.numpy_helper")

PACKAGED = Path(models.__file__).with_name("all-minilm-l6-v2.onnx")
PACKAGED_INT8 = Path(models.__file__).with_name("all-minilm-l6-v2-int8.onnx")
RANGES = TESTS / "recorded" / "minilm-ranges.json"  # tests.dataset.minilm_ranges writes it
OPSET, IR = 20, 9  # 20: the first with Gelu
FUSED = "com.microsoft"  # onnxruntime's own attention, in one node

Weights = Mapping[str, np.ndarray[Any, Any]]


def bert_graph(weights: Weights, *, heads: int, layers: int, with_weights: bool) -> bytes:
    """Build a graph from token ids, texts of one length, to one vector per token, serialised."""
    return Builder(weights, heads, with_weights).built(layers)


def packaged_graph() -> bytes:
    """Build MiniLM's graph without its weights."""
    return bert_graph(load_file(find_model(None).weights), heads=12, layers=6, with_weights=False)


def packaged_int8_graph() -> bytes:
    """Build the same with 8-bit weights; the recorded ranges round the inputs of each product."""
    ranges = json.loads(RANGES.read_text(encoding="utf-8"))["ranges"]
    return Int8Builder(load_file(find_model(None).weights), ranges).built(6)


class Builder:
    """Builds the nodes of the graph."""

    def __init__(self, weights: Weights, heads: int, with_weights: bool) -> None:
        self._weights, self._heads, self._with_weights = weights, heads, with_weights
        self._nodes: list[Any] = []
        self._initializers: dict[str, Any] = {}

    def built(self, layers: int) -> bytes:
        found = self._embedded()
        for number in range(layers):
            found = self._layer(found, f"encoder.layer.{number}.")
        self._nodes.append(helper.make_node("Identity", [found], ["last_hidden_state"]))
        graph = helper.make_graph(
            self._nodes,
            "bert",
            [helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, ["texts", "tokens"])],
            [helper.make_tensor_value_info("last_hidden_state", onnx.TensorProto.FLOAT, ["texts", "tokens", None])],
            list(self._initializers.values()),
        )
        versions = [helper.make_opsetid("", OPSET), helper.make_opsetid(FUSED, 1)]
        made: bytes = helper.make_model(graph, opset_imports=versions, ir_version=IR).SerializeToString()
        return made

    def _embedded(self) -> str:
        zero = self._int64("zero", [0])
        count = self._add("Shape", "input_ids", start=1, end=2)
        words = self._add("Gather", self._weight("embeddings.word_embeddings.weight"), "input_ids")
        places = self._add("Slice", self._weight("embeddings.position_embeddings.weight"), zero, count, zero)
        kinds = self._add("Gather", self._weight("embeddings.token_type_embeddings.weight"), zero)
        return self._norm(self._add("Add", self._add("Add", words, places), kinds), "embeddings.LayerNorm")

    def _layer(self, entry: str, at: str) -> str:
        parts = [f"{at}attention.self.{part}" for part in ("query", "key", "value")]
        weight = self._add("Concat", *(self._turned(f"{part}.weight") for part in parts), axis=1)
        bias = self._add("Concat", *(self._weight(f"{part}.bias") for part in parts), axis=0)
        held = self._add("Attention", entry, weight, bias, domain=FUSED, num_heads=self._heads)
        middle = self._add("Add", self._dense(held, f"{at}attention.output.dense"), entry)
        middle = self._norm(middle, f"{at}attention.output.LayerNorm")
        inner = self._add("Gelu", self._dense(middle, f"{at}intermediate.dense"))
        return self._norm(self._add("Add", self._dense(inner, f"{at}output.dense"), middle), f"{at}output.LayerNorm")

    def _dense(self, entry: str, at: str) -> str:
        return self._add("Add", self._add("MatMul", entry, self._turned(f"{at}.weight")), self._weight(f"{at}.bias"))

    def _norm(self, entry: str, at: str) -> str:
        weight, bias = self._weight(f"{at}.weight"), self._weight(f"{at}.bias")
        return self._add("LayerNormalization", entry, weight, bias, epsilon=1e-12)

    def _turned(self, name: str) -> str:
        return self._add("Transpose", self._weight(name), perm=[1, 0])

    def _weight(self, name: str) -> str:
        if name not in self._initializers:
            value = self._weights[name].astype(np.float32)
            if self._with_weights:
                self._initializers[name] = numpy_helper.from_array(value, name)
            else:
                self._external(name, value)
        return name

    def _external(self, name: str, value: np.ndarray[Any, Any]) -> str:
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        tensor = onnx.TensorProto(name=name, data_type=kind, dims=value.shape)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="model.safetensors")
        self._initializers[name] = tensor
        return name

    def _int64(self, name: str, values: list[int]) -> str:
        self._initializers[name] = numpy_helper.from_array(np.asarray(values, np.int64), name)
        return name

    def _add(self, kind: str, *inputs: str, **settings: Any) -> str:
        name = f"n{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], **settings))
        return name


class Int8Builder(Builder):
    """Compute MiniLM's products in 8-bit integers, by ranges that do not depend on the texts of a batch."""

    def __init__(self, weights: Weights, ranges: Mapping[str, tuple[float, float]]) -> None:
        super().__init__(weights, 12, with_weights=False)
        self._ranges = ranges

    def _layer(self, entry: str, at: str) -> str:
        joined = self._product(entry, f"{at}attention.self.qkv")
        parts = [f"{at}{part}" for part in ("query", "key", "value")]
        self._nodes.append(helper.make_node("Split", [joined], parts, axis=2, num_outputs=3))
        held = self._add("MultiHeadAttention", *parts, domain=FUSED, num_heads=self._heads)
        middle = self._add("Add", self._product(held, f"{at}attention.output.dense"), entry)
        middle = self._norm(middle, f"{at}attention.output.LayerNorm")
        inner = self._add("Gelu", self._product(middle, f"{at}intermediate.dense"))
        return self._norm(self._add("Add", self._product(inner, f"{at}output.dense"), middle), f"{at}output.LayerNorm")

    def _product(self, entry: str, name: str) -> str:
        low, high = self._ranges[name]
        step = np.float32((high - low) / 255)
        zero = np.asarray(round(-low / float(step)), np.uint8)
        parts = models.int8_weights(self._weights, name)
        weight, steps, bias = (self._external(f"{name}.{part}", value) for part, value in parts.items())
        for part, value in (("step", np.asarray(step)), ("zero", zero)):
            self._initializers[f"{name}.{part}"] = numpy_helper.from_array(value, f"{name}.{part}")
        whole = self._add("QuantizeLinear", entry, f"{name}.step", f"{name}.zero")
        given = (whole, weight, f"{name}.step", steps, f"{name}.zero", "", bias)
        return self._add("MatMulIntegerToFloat", *given, domain=FUSED)


if __name__ == "__main__":
    PACKAGED.write_bytes(packaged_graph())
    PACKAGED_INT8.write_bytes(packaged_int8_graph())
