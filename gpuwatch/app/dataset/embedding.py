"""Texts to vectors of length 1, on the CPU: through onnxruntime, or sentence-transformers where that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gpuwatch.app.dataset.bert_graph import bert_onnx
from gpuwatch.app.dataset.extra import import_extra
from gpuwatch.app.dataset.model_folder import ModelFolder, find_model
from gpuwatch.errors import UsageError

Vectors = np.ndarray[Any, np.dtype[np.float32]]

BACKENDS = ("onnx", "sentence-transformers")
_BATCH = 32  # texts at once; those of a batch are of like length
_HEAD_CHARACTERS = 20_000  # a model reads some hundred tokens: no need to split all of a long text into tokens
_TINY = 1e-12


class Embedder(Protocol):
    """A model that is ready to read."""

    @property
    def name(self) -> str:
        """For a person: the model, and what runs it."""

    @property
    def digest(self) -> str:
        """Changes with all that changes vectors."""

    @property
    def dimensions(self) -> int:
        """Numbers of a vector."""

    def vectors(self, texts: Sequence[str]) -> tuple[Vectors, Sequence[bool]]:
        """One row a text, of length 1; and whether the text was longer than the model reads."""


def open_embedder(named: Path | None, backend: str, threads: int) -> Embedder:
    """The model that was named, or the one on this machine.

    Raises:
        UsageError: there is none, or it cannot be run.
    """
    folder = find_model(named)
    return SentenceTransformersEmbedder(folder, threads) if backend == BACKENDS[1] else OnnxEmbedder(folder, threads)


class OnnxEmbedder:
    """A folder with model.onnx, or with BERT weights that become a graph in memory."""

    def __init__(self, folder: ModelFolder, threads: int) -> None:
        self._folder = folder
        self._tokens = read_tokenizer(folder.tokenizer)
        self._tokens.no_padding()
        self._tokens.enable_truncation(folder.reads_tokens)
        graph = bert_onnx(folder) if folder.weights.suffix == ".safetensors" else str(folder.weights)
        self._session = open_session(graph, threads, folder.weights)
        self._inputs = {one.name for one in self._session.get_inputs()}
        self._output = _output_of(self._session, folder)
        self._digest = f"onnx {folder.digest()} {folder.reads_tokens} {folder.pools_first}"
        self._dimensions = int(self._run([self._tokens.encode("one").ids]).shape[1])

    @property
    def name(self) -> str:
        return f"{self._folder.name}, onnxruntime"

    @property
    def digest(self) -> str:
        return self._digest

    @property
    def dimensions(self) -> int:
        return self._dimensions

    def vectors(self, texts: Sequence[str]) -> tuple[Vectors, Sequence[bool]]:
        read = self._tokens.encode_batch([text[:_HEAD_CHARACTERS] for text in texts])
        order = sorted(range(len(read)), key=lambda i: len(read[i].ids))
        rows: list[Vectors] = [np.empty(0, np.float32)] * len(read)
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            for number, vector in zip(batch, self._run([read[i].ids for i in batch]), strict=True):
                rows[number] = vector
        cut = [bool(one.overflowing) or len(text) > _HEAD_CHARACTERS for one, text in zip(read, texts, strict=True)]
        return np.stack(rows) if rows else np.empty((0, self._dimensions), np.float32), cut

    def _run(self, tokens: Sequence[Sequence[int]]) -> Vectors:
        shape = len(tokens), max(1, *map(len, tokens))
        ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for row, one in enumerate(tokens):
            ids[row, : len(one)], mask[row, : len(one)] = one, 1
        fed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        found = run_session(
            self._session, self._output, {name: fed[name] for name in self._inputs}, self._folder.weights
        )
        return _of_length_one(_pooled(found, mask, self._folder.pools_first))


class SentenceTransformersEmbedder:
    """The same through the library that the model was made for; it wants torch."""

    def __init__(self, folder: ModelFolder, threads: int) -> None:
        library = import_extra("sentence_transformers", "sentence-transformers")
        import_extra("torch", "torch").set_num_threads(threads)
        self._folder = folder
        self._model = library.SentenceTransformer(str(folder.path), device="cpu", local_files_only=True)
        self._digest = f"sentence-transformers {folder.digest()}"

    @property
    def name(self) -> str:
        return f"{self._folder.name}, sentence-transformers"

    @property
    def digest(self) -> str:
        return self._digest

    @property
    def dimensions(self) -> int:
        return int(self._model.encode(["one"]).shape[1])

    def vectors(self, texts: Sequence[str]) -> tuple[Vectors, Sequence[bool]]:
        heads = [text[:_HEAD_CHARACTERS] for text in texts]
        found = self._model.encode(heads, batch_size=_BATCH, show_progress_bar=False, convert_to_numpy=True)
        read = self._model.tokenizer(heads, verbose=False)["input_ids"]  # it may be longer than the model reads
        cut = [len(one) > self._model.max_seq_length for one in read]
        return _of_length_one(np.asarray(found, np.float32)), cut


def read_tokenizer(path: Path) -> Any:
    """A tokenizer.json. Raises UsageError: it is none."""
    library = import_extra("tokenizers")
    try:
        return library.Tokenizer.from_file(str(path))
    except Exception as fault:  # the library raises Exception itself
        raise UsageError(f"{path}: no tokenizer: {fault}") from fault


def open_session(graph: bytes | str, threads: int, path: Path) -> Any:
    """A graph, ready to run on the CPU. Raises UsageError: it cannot be run."""
    runtime = import_extra("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    try:
        return runtime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as fault:  # its own types have no common root
        raise UsageError(f"{path}: onnxruntime cannot run it: {' '.join(str(fault).split())[:300]}") from fault


def run_session(session: Any, output: str, fed: dict[str, np.ndarray[Any, Any]], path: Path) -> Vectors:
    """One answer of a graph. Raises UsageError: it cannot be run on that, as with another model's tokenizer."""
    try:
        return np.asarray(session.run([output], fed)[0], np.float32)
    except Exception as fault:  # its own types have no common root
        raise UsageError(f"{path}: it cannot be run: {' '.join(str(fault).split())[:300]}") from fault


def _output_of(session: Any, folder: ModelFolder) -> str:
    """A vector a text if the graph has one, else one a token."""
    found = {one.name: len(one.shape) for one in session.get_outputs()}
    known = {"input_ids", "attention_mask", "token_type_ids"}
    strange = sorted({one.name for one in session.get_inputs()} - known)
    best = next(
        (name for name in ("vectors", "sentence_embedding", "last_hidden_state", "token_embeddings") if name in found),
        None,
    )
    if strange or best is None:
        what = f"it wants {', '.join(strange)}" if strange else f"it answers {', '.join(found)}"
        raise UsageError(f"{folder.weights}: no model of texts: {what}")
    return best


def _pooled(found: Vectors, mask: np.ndarray[Any, Any], first: bool) -> Vectors:
    if found.ndim == 2:
        return found
    if first:
        return found[:, 0]
    weights = mask[:, :, None].astype(np.float32)
    mean: Vectors = (found * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1)
    return mean


def _of_length_one(found: Vectors) -> Vectors:
    scaled: Vectors = (found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), _TINY)).astype(np.float32)
    return scaled
