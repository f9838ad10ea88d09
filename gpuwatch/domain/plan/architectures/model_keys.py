"""The keys of a config.json, with the defaults of its model type where the published file leaves a key out. Pure.

Keys that do not change the size of the model are known, too, so that all others can be named (`unknown_keys`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec

MOST: Final = 10**7  # of any number
# one name for one thing: the first is the one that the readers ask for
_SYNONYMS: Final = (
    ("hidden_size", "n_embd", "d_model", "model_dim"),
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
    ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "kv_n_heads"),
    ("head_dim", "kv_channels", "attention_head_dim"),
    ("intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim", "block_ff_dim", "d_ff"),
    ("vocab_size", "padded_vocab_size"),
    ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    (
        *("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_k", "moe_topk", "moe_top_k"),
        "top_k_experts",
    ),
    ("moe_intermediate_size", "expert_ffn_hidden_size", "expert_hidden_dim"),
    ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert"),
    ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"),
    ("tie_word_embeddings", "tie_embeddings", "tie_embedding"),
)
_NAMES: Final = {names[0]: names for names in _SYNONYMS}

_SHOWN: Final = 12
_NOTHING: tuple[Any, ...] = (None, False, 0, 0.0, "", [], {})


class ModelType(msgspec.Struct, frozen=True):
    """A model type of transformers: the defaults of its configuration class that change the size."""

    defaults: dict[str, Any] = {}
    parts: dict[str, str] = {}  # nested configurations: key → model type
    like: str = ""  # the type that it is read as
    refused: str = ""  # why its structure is not understood


@cache
def model_types() -> dict[str, ModelType]:
    """All known types, by name; see `model-types.json`."""
    path = os.path.join(os.path.dirname(__file__), "model-types.json")
    content = __spec__.loader.get_data(path)  # type: ignore[union-attr]
    return msgspec.json.decode(content, type=dict[str, ModelType])


class ConfigKeys:
    """One level of a config.json. Remembers which keys were read.

    Args:
        kind: the model type.
        outer: keys that apply if the file has them on the level above only.
    """

    def __init__(self, kind: str, fields: Mapping[str, Any], outer: Mapping[str, Any] | None = None) -> None:
        self.kind = kind
        self.fields = fields
        self.read: set[str] = set()
        known = model_types().get(kind)
        self._defaults = known.defaults if known else {}
        self.outer = outer or {}

    def get(self, *names: str) -> Any:
        """The value of the first of these keys that has one: in the file, on the level above, by default."""
        synonyms = [synonym for name in names for synonym in _NAMES.get(name, (name,))]
        self.read.update(synonyms)
        for source in (self.fields, self.outer, self._defaults):
            if (value := next((source[name] for name in synonyms if source.get(name) is not None), None)) is not None:
                return value
        return None

    def whole(self, *names: str, default: int | None = None) -> int:
        """A whole number. Raises ValueError: it is missing or impossible. A default of 0 allows 0."""
        value = self.get(*names)
        if value is None:
            value = default
        if isinstance(value, list) and value and all(one == value[0] for one in value):  # one for each layer
            value = value[0]
        least = 0 if default == 0 else 1
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
            shown = next((name for name in _NAMES.get(names[0], names) if name in self.fields), names[0])
            raise ValueError(f"{shown}: expected a whole number above 0")
        return value

    def flag(self, *names: str, default: bool = False) -> bool:
        """Is a key true?"""
        value = self.get(*names)
        return default if value is None else value is True

    def texts(self, *names: str) -> list[str]:
        """A list of texts. Raises ValueError: it is something else."""
        value = self.get(*names)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value) or len(value) > MOST:
            raise ValueError(f"{names[0]}: expected a list of texts")
        return list(value)

    def wholes(self, *names: str) -> list[int]:
        """A list of whole numbers, or one number. Raises ValueError: it is something else."""
        value = self.get(*names)
        if value is None:
            return []
        listed = value if isinstance(value, list) else [value]
        if not all(isinstance(one, int) and 0 <= one <= MOST for one in listed):
            raise ValueError(f"{names[0]}: expected whole numbers")
        return [int(one) for one in listed]

    def part(self, name: str) -> ConfigKeys | None:
        """A nested configuration; None: the file has none."""
        value = self.get(name)
        if not isinstance(value, Mapping):
            return None
        known = model_types().get(self.kind)
        stated = value.get("model_type")
        by_type = known.parts.get(name, "") if known else ""
        if not isinstance(stated, str) or stated not in model_types() or (by_type and stated == self.kind):
            stated = by_type  # Qwen2-VL repeats the type of the whole in its image part
        return ConfigKeys(stated, value)


def config_text(value: Any) -> str:
    """A short form of a value for messages."""
    return json.dumps(value)[:40]


def unknown_keys(keys: ConfigKeys, fields: Mapping[str, Any]) -> list[str]:
    """The keys of a text model that were neither read nor are known to be harmless; only those with a value.

    Args:
        fields: the outermost level, if it is the text model's own.
    """
    harmless = harmless_keys()
    names = [
        name
        for name, value in {**fields, **keys.fields}.items()
        if name not in keys.read and name not in harmless and value not in _NOTHING and not name.startswith("_")
    ]
    return [name[:60] for name in sorted(names)[:_SHOWN]]


@cache
def harmless_keys() -> frozenset[str]:
    """Keys of names, dropout, initialisation, positions, routing, generation and the like."""
    path = os.path.join(os.path.dirname(__file__), "harmless-config-keys.txt")
    lines = __spec__.loader.get_data(path).decode().splitlines()  # type: ignore[union-attr]
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())
