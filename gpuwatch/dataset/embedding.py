"""Texts to unit vectors, on the CPU: with onnxruntime, or with sentence-transformers on request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from gpuwatch.dataset.onnx_models import (
    Array,
    KnownTokens,
    ModelFolder,
    OnnxModel,
    find_model,
    import_extra,
    read_tokenizer,
)
from gpuwatch.errors import UsageError

Vectors = np.ndarray[Any, np.dtype[np.float32]]

_TEXTS_PER_BATCH = 32  # texts at a time, for sentence-transformers
_BATCH_TOKENS = 512  # per run, so that the working data stays in the processor's cache
_HEAD_CHARACTERS = 20_000  # a model reads a few hundred tokens, so a long text need not be tokenized completely
_LEAST_NORM = 1e-12
_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_OUTPUTS = ("vectors", "sentence_embedding", "last_hidden_state", "token_embeddings")  # in order of preference


class Embedding(NamedTuple):
    """One unit vector per text.

    Attributes:
        cut: the text was longer than the model reads.
        unread: the tokenizer does not know most of the text, so its vector says nothing.
    """

    vectors: Vectors
    cut: Sequence[bool]
    unread: Sequence[bool]


class Embedder(Protocol):
    """A model that is loaded."""

    @property
    def name(self) -> str:
        """The model and its runtime, for reports."""

    @property
    def digest(self) -> str:
        """An identifier that changes with anything that changes the vectors."""

    @property
    def dimensions(self) -> int:
        """The length of a vector."""

    def vectors(self, texts: Sequence[str]) -> Embedding:
        """One unit vector per text."""


def open_embedder(model_path: Path | None, backend: str, threads: int) -> Embedder:
    """Open the named model, or the one on this machine. Raises UsageError: there is none, or it cannot be run."""
    folder = find_model(model_path)
    if backend == "sentence-transformers":
        return SentenceTransformersEmbedder(folder, threads)
    return OnnxEmbedder(folder, threads, int8=backend == "onnx-int8" and folder.weights.suffix == ".safetensors")


class OnnxEmbedder:
    """An ONNX model; its output is one vector per text, or one per token, which are then pooled."""

    def __init__(self, folder: ModelFolder, threads: int, *, int8: bool = False) -> None:
        self._folder = folder
        self._tokenizer = read_tokenizer(folder.tokenizer)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(folder.max_tokens)
        self._known = KnownTokens(self._tokenizer)
        self._model = OnnxModel(folder.weights, 1, int8=int8)  # a run per processor: products are too small to share
        self._threads = ThreadPoolExecutor(threads)
        self._output = _output_of(self._model, folder)
        self.name = f"{folder.name}, onnxruntime{', 8 bits' if int8 else ''}"
        self.digest = f"onnx{' int8' if int8 else ''} {folder.digest()} {folder.max_tokens} {folder.pools_first}"
        self.dimensions = int(self._run(np.array([self._tokenizer.encode("one").ids])).shape[1])

    def vectors(self, texts: Sequence[str]) -> Embedding:
        encoded = self._tokenizer.encode_batch([text[:_HEAD_CHARACTERS] for text in texts])
        ids = [np.array(encoding.ids or [0], np.int64) for encoding in encoded]
        vectors = np.empty((len(texts), self.dimensions), np.float32)

        def read(batch: Sequence[int]) -> None:
            vectors[batch] = self._run(np.stack([ids[index] for index in batch]))

        list(self._threads.map(read, _batches([len(ids_of_text) for ids_of_text in ids])))
        cut = [
            bool(encoding.overflowing) or len(text) > _HEAD_CHARACTERS
            for encoding, text in zip(encoded, texts, strict=True)
        ]
        return Embedding(vectors, cut, [self._known.is_unread(encoding) for encoding in encoded])

    def _run(self, ids: Array) -> Vectors:
        fed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        output = self._model.run(self._output, {name: fed[name] for name in self._model.inputs})
        if output.ndim == 3:
            output = output[:, 0] if self._folder.pools_first else output.mean(axis=1)
        return _of_length_one(output)


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Indices of texts of one length: without padding, no text's vector depends on its neighbours."""
    of_length: dict[int, list[int]] = {}
    for index, length in enumerate(lengths):
        of_length.setdefault(length, []).append(index)
    for length, places in of_length.items():
        count = max(1, _BATCH_TOKENS // length)
        for start in range(0, len(places), count):
            yield places[start : start + count]


class SentenceTransformersEmbedder:
    """An embedding with the library that the model was made for; it needs torch."""

    def __init__(self, folder: ModelFolder, threads: int) -> None:
        library = import_extra("sentence_transformers", "sentence-transformers")
        import_extra("torch", "torch").set_num_threads(threads)
        self._model = library.SentenceTransformer(str(folder.path), device="cpu", local_files_only=True)
        self._tokenizer = read_tokenizer(folder.tokenizer)
        self._known = KnownTokens(self._tokenizer)
        self.name = f"{folder.name}, sentence-transformers"
        self.digest = f"sentence-transformers {folder.digest()}"
        self.dimensions = int(self._model.encode(["one"]).shape[1])

    def vectors(self, texts: Sequence[str]) -> Embedding:
        heads = [text[:_HEAD_CHARACTERS] for text in texts]
        vectors = self._model.encode(heads, batch_size=_TEXTS_PER_BATCH, show_progress_bar=False, convert_to_numpy=True)
        encoded = self._model.tokenizer(heads, verbose=False)["input_ids"]  # may be longer than the model reads
        cut = [len(ids) > self._model.max_seq_length for ids in encoded]
        unread = [self._known.is_unread(encoding) for encoding in self._tokenizer.encode_batch(heads)]
        return Embedding(_of_length_one(np.asarray(vectors, np.float32)), cut, unread)


def _output_of(model: OnnxModel, folder: ModelFolder) -> str:
    """The output with one vector per text if there is one, otherwise the one with a vector per token."""
    unknown = sorted(model.inputs.keys() - _INPUTS)
    best = next((name for name in _OUTPUTS if name in model.outputs), None)
    if unknown or best is None:
        reason = f"it requires {', '.join(unknown)}" if unknown else f"its outputs are {', '.join(model.outputs)}"
        raise UsageError(f"{folder.weights}: not a text embedding model: {reason}")
    return best


def _of_length_one(vectors: Vectors) -> Vectors:
    scaled: Vectors = (vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), _LEAST_NORM)).astype(
        np.float32
    )
    return scaled
