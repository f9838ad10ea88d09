"""How surprising each text is to a small causal language model: noise scores high, stock phrases score low.

Perplexity is e to the mean of −ln p of each token given the tokens before it (Jelinek et al., 1977); Wenzek et al.
("CCNet", 2020) filter by it. At most 512 tokens of a text are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gpuwatch.dataset.onnx_models import Array, KnownTokens, OnnxModel, file_digest, read_tokenizer
from gpuwatch.dataset.scan import AuditProgress, ScannedFile, blocks, fingerprint
from gpuwatch.dataset.text_rows import FieldSelection
from gpuwatch.dataset.work_folder import StepClock, WorkFolder
from gpuwatch.errors import UsageError

_MAX_TOKENS = 512
_HEAD_CHARACTERS = 20_000
_BATCH_TOKENS = 4_096  # the output has one number per token and vocabulary entry
_TYPE = np.dtype("<f4")
_GRAPHS = ("model.onnx", "onnx/model.onnx", "decoder_model.onnx", "onnx/decoder_model.onnx")
_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(bool)": np.bool_,
}

PERPLEXITY = "perplexity"  # the step
Perplexities = np.ndarray[Any, np.dtype[np.float32]]


class CausalModel:
    """A folder with tokenizer.json and a model.onnx whose output is `logits`."""

    def __init__(self, folder: Path, threads: int) -> None:
        graph = next((folder / name for name in _GRAPHS if (folder / name).is_file()), None)
        if graph is None or not (folder / "tokenizer.json").is_file():
            raise UsageError(f"{folder} has no language model: expected tokenizer.json and model.onnx")
        self._tokens = read_tokenizer(folder / "tokenizer.json")
        self._tokens.no_padding()
        self._tokens.enable_truncation(_MAX_TOKENS)
        self._known = KnownTokens(self._tokens)
        self._model = OnnxModel(graph, threads)
        self._path = graph
        if "logits" not in self._model.outputs or "input_ids" not in self._model.inputs:
            raise UsageError(f"{graph}: not a language model: expected an input `input_ids` and an output `logits`")
        self.digest = file_digest(graph)
        self.name = folder.name

    def perplexities(self, texts: Sequence[str]) -> Perplexities:
        """The perplexity of each text; NaN for fewer than two tokens, or for tokens that the model does not know."""
        encoded = self._tokens.encode_batch([text[:_HEAD_CHARACTERS] for text in texts])
        read = [encoding.ids for encoding in encoded]
        perplexities = np.full(len(texts), np.nan, _TYPE)
        judged = [i for i, ids in enumerate(read) if len(ids) >= 2 and not self._known.is_unread(encoded[i])]
        order = sorted(judged, key=lambda i: len(read[i]))
        while order:
            count = max(1, _BATCH_TOKENS // len(read[order[-1]]))
            batch, order = order[-count:], order[:-count]
            perplexities[batch] = self._run([read[i] for i in batch])
        return perplexities

    def _run(self, tokens: Sequence[Sequence[int]]) -> Perplexities:
        ids = np.zeros((len(tokens), max(map(len, tokens))), np.int64)
        mask = np.zeros_like(ids)
        for row, ids_of_text in enumerate(tokens):
            ids[row, : len(ids_of_text)], mask[row, : len(ids_of_text)] = ids_of_text, 1
        logits = self._model.run("logits", self._model_inputs(ids, mask))[:, :-1]
        if ids.max() >= logits.shape[2]:
            raise UsageError(f"{self._path}: the model has {logits.shape[2]} tokens, but tokenizer.json has more")
        peak = logits.max(axis=2, keepdims=True)
        total = peak[:, :, 0] + np.log(np.exp(logits - peak).sum(axis=2))
        loss = total - np.take_along_axis(logits, ids[:, 1:, None], axis=2)[:, :, 0]
        target_mask = mask[:, 1:]
        perplexity: Perplexities = np.exp(
            np.minimum((loss * target_mask).sum(axis=1) / target_mask.sum(axis=1), 80)
        ).astype(_TYPE)
        return perplexity

    def _model_inputs(self, ids: Array, mask: Array) -> dict[str, Array]:
        """The inputs of the model; the cache inputs of earlier tokens are empty."""
        places = np.tile(np.arange(ids.shape[1]), (len(ids), 1))
        standard_inputs = {
            "input_ids": ids,
            "attention_mask": mask,
            "position_ids": places,
            "use_cache_branch": np.zeros(1, np.bool_),
        }
        return {
            name: standard_inputs[name] if name in standard_inputs else _empty_cache(node, len(ids))
            for name, node in self._model.inputs.items()
        }


def measure_perplexity(
    path: Path,
    reading: FieldSelection,
    scanned: ScannedFile,
    folder: WorkFolder,
    model: CausalModel,
    progress: AuditProgress,
) -> Perplexities:
    """Measure each row's perplexity, continuing where an earlier run ended.

    Raises:
        UsageError: the file or the model cannot be read.
    """
    state = folder.state("perplexity", f"{scanned.of}|{model.digest}")
    clock = StepClock(state.seconds)
    with folder.open_table("perplexities", _TYPE, 1, state.rows) as file:
        for block, state in blocks(path, reading, state):  # noqa: B020 each continues where the last one ended
            if block:
                with clock.step(PERPLEXITY):
                    file.append(model.perplexities([one.row.text for one in block]))
            folder.save_state("perplexity", msgspec.structs.replace(state, seconds=clock.seconds))
            progress("perplexity", state.rows, len(scanned.rows))
    if not scanned.of.startswith(fingerprint(path) + "|"):
        raise UsageError(f"{path} changed during the run; run the command again")
    return folder.table("perplexities", _TYPE, 1, state.rows)


def _empty_cache(node: Any, texts: int) -> Array:
    """Empty keys and values of earlier tokens: [texts, heads, 0, size]."""
    if not node.name.startswith("past_key_values") or len(node.shape) != 4:
        raise UsageError(f"the language model requires the input {node.name}, which gpuwatch does not support")
    heads, size = (side if isinstance(side, int) else 1 for side in (node.shape[1], node.shape[3]))
    return np.zeros((texts, heads, 0, size), _TYPES.get(node.type, np.float32))
