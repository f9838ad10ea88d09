"""The ranges of the inputs of MiniLM's products, over texts: they define the rounding of the packaged 8-bit graph.

    python -m tests.dataset.minilm_ranges     # write tests/recorded/minilm-ranges.json again

The texts are every second paragraph of the project's pages, and the recorded texts in other languages; the tests use
the other paragraphs. Ranges contain zero, and the lowest and highest value seen.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from gpuwatch.dataset.onnx_models import find_model, read_tokenizer
from tests.checkout import ROOT
from tests.dataset.bert_graph import RANGES, Builder
from tests.late import LateModule

onnx, helper, onnxruntime = LateModule("onnx"), LateModule("onnx.helper"), LateModule("onnxruntime")

_SHORTEST, _MOST_TOKENS = 200, 256


class _Watched(Builder):
    """Return the 32-bit graph that also outputs the inputs of its products."""

    def __init__(self, weights: Any) -> None:
        super().__init__(weights, 12, with_weights=True)
        self.entries: dict[str, str] = {}

    def _layer(self, entry: str, mask: str, at: str) -> str:
        self.entries[f"{at}attention.self.qkv"] = entry
        return super()._layer(entry, mask, at)

    def _dense(self, entry: str, at: str) -> str:
        self.entries[at] = entry
        return super()._dense(entry, at)


def paragraphs() -> list[str]:
    """Return longer paragraphs of the project's pages, in order."""
    pages = sorted((ROOT / "docs").glob("*.md"))
    parts = (part.strip() for page in pages for part in page.read_text(encoding="utf-8").split("\n\n"))
    return [part for part in parts if len(part) >= _SHORTEST]


def ranges(texts: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Return the lowest and highest input of each product."""
    found = find_model(None)
    watched = _Watched(load_file(found.weights))
    graph = onnx.load_model_from_string(watched.built(6))
    for entry in watched.entries.values():
        graph.graph.output.append(helper.make_tensor_value_info(entry, onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    tokenizer = read_tokenizer(found.tokenizer)
    tokenizer.no_padding()
    tokenizer.enable_truncation(_MOST_TOKENS)
    seen = dict.fromkeys(watched.entries, (0.0, 0.0))
    for text in texts:
        ids = np.asarray([tokenizer.encode(text).ids], np.int64)
        values = session.run(list(watched.entries.values()), {"input_ids": ids, "attention_mask": np.ones_like(ids)})
        for name, value in zip(watched.entries, values, strict=True):
            low, high = seen[name]
            seen[name] = min(low, float(value.min())), max(high, float(value.max()))
    return seen


def main() -> None:
    others = json.loads((RANGES.parent / "minilm.json").read_text(encoding="utf-8"))["texts"]
    texts = [*paragraphs()[::2], *others]
    rounded = {name: (round(low, 3), round(high, 3)) for name, (low, high) in ranges(texts).items()}
    made_by = "python -m tests.dataset.minilm_ranges"
    RANGES.write_text(json.dumps({"made_by": made_by, "texts": len(texts), "ranges": rounded}, indent=1) + "\n")


if __name__ == "__main__":
    main()
