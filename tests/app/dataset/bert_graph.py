"""BERT as an ONNX graph: for tiny models, and for the packaged MiniLM, whose weights onnxruntime adds at load.

    python -m tests.app.dataset.bert_graph        # write gpuwatch/app/dataset/all-minilm-l6-v2.onnx again

Devlin et al., "BERT", 2019; Vaswani et al., "Attention Is All You Need", 2017.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

from gpuwatch.app.dataset import onnx_models as models
from gpuwatch.app.dataset.onnx_models import find_model

PACKAGED = Path(models.__file__).with_name("all-minilm-l6-v2.onnx")
OPSET, IR = 20, 9  # 20: the first with Gelu
FUSED = "com.microsoft"  # onnxruntime's own attention, in one node

Weights = Mapping[str, np.ndarray[Any, Any]]


def bert_graph(weights: Weights, *, heads: int, layers: int, with_weights: bool) -> bytes:
    """From token ids and mask to one vector per token, serialised."""
    return _Builder(weights, heads, with_weights).built(layers)


def packaged_graph() -> bytes:
    """MiniLM's graph, without its weights."""
    return bert_graph(load_file(find_model(None).weights), heads=12, layers=6, with_weights=False)


class _Builder:
    def __init__(self, weights: Weights, heads: int, with_weights: bool) -> None:
        self._weights, self._heads, self._with_weights = weights, heads, with_weights
        self._nodes: list[Any] = []
        self._initializers: dict[str, Any] = {}

    def built(self, layers: int) -> bytes:
        found = self._embedded()
        mask = self._add("Cast", "attention_mask", to=TensorProto.INT32)
        for number in range(layers):
            found = self._layer(found, mask, f"encoder.layer.{number}.")
        self._nodes.append(helper.make_node("Identity", [found], ["last_hidden_state"]))
        graph = helper.make_graph(
            self._nodes,
            "bert",
            [
                helper.make_tensor_value_info(name, TensorProto.INT64, ["texts", "tokens"])
                for name in ("input_ids", "attention_mask")
            ],
            [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["texts", "tokens", None])],
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

    def _layer(self, entry: str, mask: str, at: str) -> str:
        parts = [f"{at}attention.self.{part}" for part in ("query", "key", "value")]
        weight = self._add("Concat", *(self._turned(f"{part}.weight") for part in parts), axis=1)
        bias = self._add("Concat", *(self._weight(f"{part}.bias") for part in parts), axis=0)
        held = self._add("Attention", entry, weight, bias, mask, domain=FUSED, num_heads=self._heads)
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
                tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=value.shape)
                tensor.data_location = TensorProto.EXTERNAL
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


if __name__ == "__main__":
    PACKAGED.write_bytes(packaged_graph())
