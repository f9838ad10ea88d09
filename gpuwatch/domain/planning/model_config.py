"""A model's own `config.json`, as its publisher ships it for Hugging Face's transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpuwatch.domain.planning.transformer_shape import TransformerShape

_MOST: Final = 10**7
# keys of layers other than plain attention and feed-forward: recurrent, or of varying size
_OTHER_LAYERS: Final = (
    "attn_layer_period", "block_configs", "conv_L_cache", "global_head_dim", "hidden_size_per_layer_input",
    "hybrid_override_pattern", "linear_attn_config", "linear_num_value_heads", "mamba_d_state",
    "num_global_key_value_heads", "o_lora_rank", "ssm_state_size", "swa_num_key_value_heads",
)  # fmt: skip
_UNGATED: Final = frozenset(
    {"bloom", "falcon", "gpt2", "gpt_bigcode", "gpt_neox", "gptj", "mpt", "nemotron", "opt", "phi", "starcoder2"}
)
_TIED: Final = frozenset(  # unless the file states otherwise
    {"bloom", "cohere", "cohere2", "falcon", "gemma", "gemma2", "gemma3", "gemma3_text", "gpt2", "gpt_bigcode", "mpt",
     "opt", "starcoder2"}
)  # fmt: skip


def shape_from_config(fields: Mapping[str, Any]) -> TransformerShape:
    """The shape in a config.json. Raises ValueError: a field is missing, invalid or of another kind."""
    text = fields.get("text_config")
    own = dict(text) if isinstance(text, Mapping) else dict(fields)
    if other := next((key for key in _OTHER_LAYERS if own.get(key)), None):
        raise ValueError(f"{other}: its layers differ; pass its size instead, such as 70B")
    kind = str(own.get("model_type") or fields.get("model_type") or "")
    hidden = _whole(own, "hidden_size", "n_embd")
    heads = _whole(own, "num_attention_heads", "n_head")
    return TransformerShape(
        layers=_whole(own, "num_hidden_layers", "n_layer"),
        hidden=hidden,
        heads=heads,
        kv_heads=_whole(own, "num_key_value_heads", "num_kv_heads", default=heads),
        vocab=_whole({**fields, **own}, "vocab_size"),
        tied=_tied(fields, own, kind),
        matrices=2 if kind in _UNGATED else 3,
        **_feed_forward(own, hidden, kind),
        **(_latent(own) or {"head_dim": _whole(own, "head_dim", default=0)}),
    )


def _tied(fields: Mapping[str, Any], own: Mapping[str, Any], kind: str) -> bool:
    said = own.get("tie_word_embeddings", fields.get("tie_word_embeddings"))
    return kind in _TIED if said is None else said is True


def _feed_forward(own: Mapping[str, Any], hidden: int, kind: str) -> dict[str, int]:
    default = 4 * hidden if kind in _UNGATED else None
    experts = _whole(own, "num_experts", "n_routed_experts", "num_local_experts", default=1)
    if experts == 1:
        return {"ffn": _whole(own, "intermediate_size", "n_inner", "ffn_hidden_size", default=default)}
    ffn = _whole(own, "moe_intermediate_size", "intermediate_size")
    found = {"experts": experts, "used": _whole(own, "num_experts_per_tok", "experts_per_token", default=1), "ffn": ffn}
    if "interleave_moe_layer_step" in own:  # Llama 4: each such layer has experts, and one expert for all tokens
        layers = _whole(own, "num_hidden_layers")
        dense = layers - layers // _whole(own, "interleave_moe_layer_step")
        return found | {"shared": ffn} | _dense(dense, own, "intermediate_size_mlp")
    shared = _whole(own, "n_shared_experts", default=0) * ffn or _whole(
        own, "shared_expert_intermediate_size", default=0
    )
    return (
        found | {"shared": shared} | _dense(_whole(own, "first_k_dense_replace", default=0), own, "intermediate_size")
    )


def _dense(layers: int, own: Mapping[str, Any], width: str) -> dict[str, int]:
    return {"dense": layers, "dense_ffn": _whole(own, width)} if layers else {}


def _latent(own: Mapping[str, Any]) -> dict[str, int]:
    if not own.get("kv_lora_rank"):
        return {}
    return {
        "kv_rank": _whole(own, "kv_lora_rank"),
        "q_rank": _whole(own, "q_lora_rank", default=0),
        "nope": _whole(own, "qk_nope_head_dim"),
        "rope": _whole(own, "qk_rope_head_dim"),
        "value": _whole(own, "v_head_dim"),
    }


def _whole(fields: Mapping[str, Any], *keys: str, default: int | None = None) -> int:
    """The value of the first of these keys that has one. A default of 0 allows 0."""
    key = next((key for key in keys if fields.get(key) is not None), keys[0])
    value = fields.get(key)
    if value is None:
        value = default
    least = 0 if default == 0 else 1
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        raise ValueError(f"{key}: expected a whole number above 0")
    return value
