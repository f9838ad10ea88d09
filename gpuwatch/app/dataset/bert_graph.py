"""A BERT model as an ONNX graph, out of its weights: what onnxruntime runs without torch.

Devlin et al., "BERT", 2019; Vaswani et al., "Attention Is All You Need", 2017. The text's vector is the mean of its
tokens' vectors (or the first one), of length 1, as sentence-transformers reckons it (Reimers and Gurevych, 2019).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpuwatch.app.dataset.extra import import_extra
from gpuwatch.app.dataset.model_folder import ModelFolder
from gpuwatch.errors import UsageError

_OPSET = 20  # the first with Gelu
_IR = 9
_FUSED = "com.microsoft"  # onnxruntime's own attention, in one node
_TINY = 1e-12


def bert_onnx(folder: ModelFolder) -> bytes:
    """The model of a folder with BERT weights, from token numbers and mask to one vector a text.

    Raises:
        UsageError: it is no BERT model, or the weights cannot be read.
    """
    kind = str(folder.config.get("model_type", "unknown"))
    if kind != "bert":
        raise UsageError(
            f"{folder.path} is of the kind {kind}: of safetensors only BERT is read; export it to model.onnx"
        )
    try:
        weights = import_extra("safetensors.numpy").load_file(folder.weights)
        return _Graph(weights, folder.config).built(folder.pools_first)
    except KeyError as fault:
        raise UsageError(f"{folder.weights}: no BERT weights: {fault} is missing") from fault
    except (OSError, ValueError, TypeError) as fault:
        raise UsageError(f"{folder.weights}: it cannot be read: {fault}") from fault
    except Exception as fault:
        if type(fault).__name__ != "SafetensorError":
            raise
        raise UsageError(f"{folder.weights}: it cannot be read: {fault}") from fault


class _Graph:
    """Nodes and weights, as they are laid."""

    def __init__(self, weights: Mapping[str, np.ndarray[Any, Any]], config: Mapping[str, Any]) -> None:
        self._onnx = import_extra("onnx")
        prefix = "bert." if "bert.embeddings.word_embeddings.weight" in weights else ""
        self._weights = {name.removeprefix(prefix): value for name, value in weights.items()}
        self._heads = int(config["num_attention_heads"])
        self._layers = int(config["num_hidden_layers"])
        self._epsilon = float(config.get("layer_norm_eps", _TINY))
        self._tanh = config.get("hidden_act") in {"gelu_new", "gelu_pytorch_tanh"}
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def built(self, pools_first: bool) -> bytes:
        """The whole model, serialised."""
        found = self._embedded()
        for number in range(self._layers):
            found = self._layer(found, f"encoder.layer.{number}.")
        pooled = self._first(found) if pools_first else self._mean(found)
        norm = self._add("ReduceL2", pooled, self._int64([1]), keepdims=1)
        self._add("Div", pooled, self._add("Max", norm, self._float(_TINY)), output="vectors")
        helper, types = self._onnx.helper, self._onnx.TensorProto
        graph = helper.make_graph(
            self._nodes,
            "bert",
            [
                helper.make_tensor_value_info(name, types.INT64, ["texts", "tokens"])
                for name in ("input_ids", "attention_mask")
            ],
            [helper.make_tensor_value_info("vectors", types.FLOAT, ["texts", None])],
            self._constants,
        )
        versions = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_FUSED, 1)]
        model: bytes = helper.make_model(graph, opset_imports=versions, ir_version=_IR).SerializeToString()
        return model

    def _embedded(self) -> str:
        words = self._add("Gather", self._weight("embeddings.word_embeddings.weight"), "input_ids")
        count = self._add("Shape", "input_ids", start=1, end=2)
        places = self._add(
            "Slice", self._weight("embeddings.position_embeddings.weight"), self._int64([0]), count, self._int64([0])
        )
        kind = self._named(
            "embeddings.token_type_embeddings.weight", self._raw("embeddings.token_type_embeddings.weight")[0]
        )
        return self._norm(self._add("Add", self._add("Add", words, places), kind), "embeddings.LayerNorm")

    def _layer(self, entry: str, at: str) -> str:
        held = self._dense(self._attention(entry, at), f"{at}attention.output.dense")
        middle = self._norm(self._add("Add", held, entry), f"{at}attention.output.LayerNorm")
        inner = self._dense(middle, f"{at}intermediate.dense")
        bent = self._add("Gelu", inner, approximate="tanh" if self._tanh else "none")
        return self._norm(self._add("Add", self._dense(bent, f"{at}output.dense"), middle), f"{at}output.LayerNorm")

    def _attention(self, entry: str, at: str) -> str:
        parts = [f"{at}attention.self.{part}" for part in ("query", "key", "value")]
        weight = np.concatenate([self._raw(f"{part}.weight").T for part in parts], axis=1)
        bias = np.concatenate([self._raw(f"{part}.bias") for part in parts])
        names = self._named(f"{at}qkv.weight", weight), self._named(f"{at}qkv.bias", bias)
        mask = self._add("Cast", "attention_mask", to=self._onnx.TensorProto.INT32)
        return self._add("Attention", entry, *names, mask, domain=_FUSED, num_heads=self._heads)

    def _dense(self, entry: str, at: str) -> str:
        weight = self._named(f"{at}.weight", self._raw(f"{at}.weight").T)
        return self._add("Add", self._add("MatMul", entry, weight), self._weight(f"{at}.bias"))

    def _norm(self, entry: str, at: str) -> str:
        return self._add(
            "LayerNormalization", entry, self._weight(f"{at}.weight"), self._weight(f"{at}.bias"), epsilon=self._epsilon
        )

    def _first(self, entry: str) -> str:
        return self._add(
            "Squeeze", self._add("Slice", entry, self._int64([0]), self._int64([1]), self._int64([1])), self._int64([1])
        )

    def _mean(self, entry: str) -> str:
        mask = self._add(
            "Cast", self._add("Unsqueeze", "attention_mask", self._int64([2])), to=self._onnx.TensorProto.FLOAT
        )
        total = self._add("ReduceSum", self._add("Mul", entry, mask), self._int64([1]), keepdims=0)
        count = self._add("ReduceSum", mask, self._int64([1]), keepdims=0)
        return self._add("Div", total, self._add("Max", count, self._float(1.0)))

    def _add(self, kind: str, *inputs: str, output: str | None = None, **settings: Any) -> str:
        name = output or f"n{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(kind, list(inputs), [name], **settings))
        return name

    def _raw(self, name: str) -> np.ndarray[Any, Any]:
        found: np.ndarray[Any, Any] = self._weights[name].astype(np.float32)
        return found

    def _weight(self, name: str) -> str:
        return self._named(name, self._raw(name))

    def _float(self, value: float) -> str:
        return self._named(f"c{len(self._constants)}", np.asarray(value, dtype=np.float32))

    def _int64(self, values: list[int]) -> str:
        return self._named(f"c{len(self._constants)}", np.asarray(values, dtype=np.int64))

    def _named(self, name: str, value: np.ndarray[Any, Any]) -> str:
        self._constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name
