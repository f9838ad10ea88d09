"""The matrices of each kind of layer, and what it caches. Sources: the modules of Hugging Face's transformers. Pure."""

from __future__ import annotations

from collections import Counter
from math import ceil
from typing import Final

from gpuwatch.domain.plan.architectures.layer_kinds import FeedForward, Mixer, window_of
from gpuwatch.domain.plan.architectures.model_keys import ConfigKeys
from gpuwatch.domain.plan.architectures.transformer_shape import LayerCache, LinearMatrices, LinearRole

Key = tuple[LinearRole, int, int, str]
# two matrices instead of three: no gate
UNGATED: Final = frozenset(
    {"apertus", "arcee", "biogpt", "bloom", "codegen", "ctrl", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox",
     "gpt_neox_japanese", "gptj", "mpt", "nemotron", "nanochat", "nemotron_h", "opt", "openai-gpt", "persimmon", "phi",
     "starcoder2", "xglm", "fuyu"}
)  # fmt: skip


_GATED_QUERIES: Final = frozenset({"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "afmoe"})


class LayerSums:
    """Matrices by size, and caches, summed over layers."""

    def __init__(self) -> None:
        self._counts: Counter[Key] = Counter()
        self._used: Counter[Key] = Counter()
        self._caches: Counter[tuple[int, int]] = Counter()
        self.state = 0

    def add(
        self, role: LinearRole, inputs: int, outputs: int, module: str, count: int = 1, used: int | None = None
    ) -> None:
        """Add matrices of one size."""
        key = (role, inputs, outputs, module)
        self._counts[key] += count
        self._used[key] += count if used is None else used

    def cache(self, values: int, window: int = 0, layers: int = 1) -> None:
        """Add a layer's cache."""
        self._caches[values, window] += layers

    @property
    def linears(self) -> tuple[LinearMatrices, ...]:
        """All matrices."""
        return tuple(
            LinearMatrices(role, inputs, outputs, count, self._used[role, inputs, outputs, module], module)
            for (role, inputs, outputs, module), count in self._counts.items()
        )

    @property
    def caches(self) -> tuple[LayerCache, ...]:
        """The caches of all layers."""
        return tuple(LayerCache(layers, values, window) for (values, window), layers in self._caches.items())


def add_mixer(sums: LayerSums, keys: ConfigKeys, mixer: Mixer, *, reuses: bool = False) -> None:
    """Add what mixes the tokens in one layer. Raises ValueError: a key is missing or impossible.

    Args:
        reuses: the layer uses the keys and values of an earlier one (Gemma 3n, Gemma 4).
    """
    if mixer in {Mixer.ATTENTION, Mixer.WINDOW, Mixer.CROSS, Mixer.BOTH}:
        _add_attention(sums, keys, mixer, reuses)
    if (add := _STATEFUL.get(mixer)) is not None:
        add(sums, keys)


def add_feed_forward(sums: LayerSums, keys: ConfigKeys, kind: FeedForward, *, reuses: bool = False) -> None:
    """Add the feed-forward part of one layer. Raises ValueError: a key is missing or impossible."""
    if kind is FeedForward.NONE:
        return
    hidden = keys.whole("hidden_size")
    if kind is FeedForward.DENSE:
        wide = 2 if reuses and keys.flag("use_double_wide_mlp") else 1
        _add_inner(sums, keys, hidden, wide * dense_width(keys), "mlp")
        return
    experts, used = expert_count(keys), keys.whole("num_experts_per_tok", default=1)
    keys.get("intermediate_size")  # of layers without experts, if there are any
    inner, width = keys.whole("moe_latent_size", "routed_expert_hidden_size", default=0) or hidden, expert_width(keys)
    for role_inputs, outputs in _inner_sizes(keys, inner, width):
        sums.add(LinearRole.FEED_FORWARD, role_inputs, outputs, "mlp.experts", experts, min(used, experts))
    if inner != hidden:  # Nemotron 3: experts in a narrower space
        sums.add(LinearRole.FEED_FORWARD, hidden, inner, "mlp.latent", 2)
    sums.add(LinearRole.ROUTER, hidden, experts, "mlp.gate")
    if shared := shared_width(keys):
        _add_inner(sums, keys, hidden, shared, "mlp.shared_experts")


# --- feed-forward -----------------------------------------------------------------------------------------------------


def matrices(keys: ConfigKeys) -> int:
    """The matrices of a feed-forward part."""
    return 2 if keys.kind in UNGATED else 3


def expert_count(keys: ConfigKeys) -> int:
    """The number of experts; 1: none."""
    return max(keys.wholes("num_experts"), default=1) or 1


def expert_width(keys: ConfigKeys) -> int:
    """The inner width of an expert."""
    widths = keys.wholes("moe_intermediate_size") or keys.wholes("intermediate_size")
    if not widths or not widths[0]:
        raise ValueError("intermediate_size: expected a whole number above 0")
    return widths[0]


def shared_width(keys: ConfigKeys) -> int:
    """The inner width of what all tokens use besides their experts."""
    if keys.kind in {"llama4_text", "gemma4_text"}:
        return keys.whole("intermediate_size")
    stated = keys.whole(
        "shared_expert_intermediate_size", "shared_intermediate_size", "moe_shared_expert_intermediate_size",
        "share_expert_dim", "shared_experts_intermediate_size", default=0,
    )  # fmt: skip
    count = max(keys.wholes("n_shared_experts"), default=0)
    if keys.kind == "nemotron_h":
        return stated * (count or 1)
    return stated or count * expert_width(keys)


def dense_width(keys: ConfigKeys) -> int:
    """The inner width of a layer without experts."""
    hidden = keys.whole("hidden_size")
    if keys.kind in {"granitemoehybrid", "granitemoeshared"} and (shared := shared_width(keys)):
        keys.get("intermediate_size")  # of its experts, which it has none of
        return shared
    if keys.kind == "mpt":
        return keys.whole("expansion_ratio", default=4) * hidden
    widths = keys.wholes("intermediate_size_mlp", "dense_intermediate_size") or keys.wholes("intermediate_size")
    if not widths:
        if matrices(keys) == 2:
            return 4 * hidden
        raise ValueError("intermediate_size: expected a whole number above 0")
    width = round(sum(widths) / len(widths))
    if keys.kind in {"qwen", "recurrent_gemma"}:  # the width of both halves
        return width // 2
    if keys.kind in {"lfm2", "lfm2_moe"} and keys.flag("block_auto_adjust_ff_dim"):
        step = keys.whole("block_multiple_of", default=1)
        return step * ceil(int(2 * width / 3 * float(keys.get("block_ffn_dim_multiplier") or 1.0)) / step)
    if not width:
        raise ValueError("intermediate_size: expected a whole number above 0")
    return width


def _inner_sizes(keys: ConfigKeys, hidden: int, width: int) -> list[tuple[int, int]]:
    return [(hidden, width)] * (matrices(keys) - 1) + [(width, hidden)]


def _add_inner(sums: LayerSums, keys: ConfigKeys, hidden: int, width: int, module: str) -> None:
    for inputs, outputs in _inner_sizes(keys, hidden, width):
        sums.add(LinearRole.FEED_FORWARD, inputs, outputs, module)


# --- attention --------------------------------------------------------------------------------------------------------


def kv_heads(keys: ConfigKeys) -> int:
    """Heads of keys and values: one with multi-query attention."""
    heads = keys.whole("num_attention_heads")
    keys.get("num_key_value_heads")
    if keys.kind == "falcon" and not keys.flag("new_decoder_architecture"):
        return 1 if keys.flag("multi_query") else heads
    if keys.kind == "gpt_bigcode":
        return 1 if keys.flag("multi_query", default=True) else heads
    if keys.kind == "chatglm" and not keys.flag("multi_query_attention"):
        return heads
    return keys.whole("num_key_value_heads", default=heads)


def head_width(keys: ConfigKeys) -> int:
    """The width of one head."""
    return keys.whole("head_dim", default=0) or keys.whole("hidden_size") // keys.whole("num_attention_heads")


def _add_attention(sums: LayerSums, keys: ConfigKeys, mixer: Mixer, reuses: bool) -> None:
    window = window_of(keys) if mixer is Mixer.WINDOW else 0
    if keys.whole("kv_lora_rank", default=0):
        _add_latent(sums, keys)
        return
    hidden, width, values = keys.whole("hidden_size"), head_width(keys), kv_heads(keys)
    has_values = True
    if keys.kind.startswith("gemma4") and mixer is Mixer.ATTENTION:  # other heads than those of layers with a window
        width = keys.whole("global_head_dim", default=0) or width
        if keys.flag("attention_k_eq_v"):
            values, has_values = keys.whole("num_global_key_value_heads", default=0) or values, False
    queries, values = keys.whole("num_attention_heads") * width, values * width
    is_gated = keys.flag("attn_output_gate", default=keys.kind in _GATED_QUERIES)
    sums.add(LinearRole.QUERY, hidden, queries, "self_attn.q_proj", 2 if is_gated else 1)
    if not (reuses and keys.kind.startswith("gemma4")):
        sums.add(LinearRole.KEY, hidden, values, "self_attn.k_proj")
        if has_values:
            sums.add(LinearRole.VALUE, hidden, values, "self_attn.v_proj")
    sums.add(LinearRole.OUTPUT, queries, hidden, "self_attn.o_proj")
    if mixer is not Mixer.CROSS and not reuses:  # the former caches the images, not the text
        sums.cache(2 * values, window)


def _add_latent(sums: LayerSums, keys: ConfigKeys) -> None:
    """Multi-head latent attention (DeepSeek-V2, 2024), with the indexer of DeepSeek-V3.2 if there is one."""
    hidden, heads = keys.whole("hidden_size"), keys.whole("num_attention_heads")
    rank, rope, nope = keys.whole("kv_lora_rank"), keys.whole("qk_rope_head_dim"), keys.whole("qk_nope_head_dim")
    value, q_rank = keys.whole("v_head_dim"), keys.whole("q_lora_rank", default=0)
    if q_rank:
        sums.add(LinearRole.QUERY, hidden, q_rank, "self_attn.q_a_proj")
    sums.add(LinearRole.QUERY, q_rank or hidden, heads * (nope + rope), "self_attn.q_b_proj")
    sums.add(LinearRole.KEY, hidden, rank + rope, "self_attn.kv_a_proj_with_mqa")
    sums.add(LinearRole.VALUE, rank, heads * (nope + value), "self_attn.kv_b_proj")
    sums.add(LinearRole.OUTPUT, heads * value, hidden, "self_attn.o_proj")
    index = keys.whole("index_head_dim", default=0)
    if index:
        sums.add(LinearRole.QUERY, q_rank or hidden, keys.whole("index_n_heads") * index, "self_attn.indexer")
        sums.add(LinearRole.KEY, hidden, index + keys.whole("index_n_heads"), "self_attn.indexer")
    sums.cache(rank + rope + index)


# --- layers with a state ----------------------------------------------------------------------------------------------


def _add_mamba(sums: LayerSums, keys: ConfigKeys) -> None:
    """Mamba (Gu and Dao, 2023)."""
    hidden, states = keys.whole("hidden_size"), keys.whole("mamba_d_state", "state_size", default=16)
    expand = keys.whole("mamba_expand", "expand", default=2)
    inner, width = expand * hidden, keys.whole("mamba_d_conv", "conv_kernel", default=4)
    keys.get("intermediate_size")  # the same
    stated = keys.get("mamba_dt_rank", "time_step_rank")
    steps = stated if isinstance(stated, int) else ceil(hidden / 16)
    sums.add(LinearRole.FEED_FORWARD, hidden, 2 * inner, "mamba.in_proj")
    sums.add(LinearRole.FEED_FORWARD, inner, steps + 2 * states, "mamba.x_proj")
    sums.add(LinearRole.FEED_FORWARD, steps, inner, "mamba.dt_proj")
    sums.add(LinearRole.FEED_FORWARD, inner, hidden, "mamba.out_proj")
    sums.add(LinearRole.ROUTER, inner, states + width + 2, "mamba.conv1d")
    sums.state += inner * (states + width)


def _add_mamba_2(sums: LayerSums, keys: ConfigKeys) -> None:
    """Mamba 2 (Dao and Gu, 2024)."""
    hidden = keys.whole("hidden_size")
    names = ("num_heads", "head_dim") if keys.kind == "mamba2" else ("mamba_n_heads", "mamba_d_head")
    heads = keys.whole(names[0], "mamba_num_heads")
    size = keys.get(names[1], "mamba_head_dim")
    keys.get("mamba_expand", "expand")  # the same
    if stated := keys.whole("mamba_d_ssm", default=0):  # Falcon-H1
        inner = stated
    elif keys.kind in {"mamba2", "nemotron_h"} or isinstance(size, int):
        inner = heads * keys.whole(names[1], "mamba_head_dim")
    else:
        inner = keys.whole("mamba_expand", "expand", default=2) * hidden
    groups = keys.whole("mamba_n_groups", "n_groups", default=1)
    states = keys.whole("mamba_d_state", "ssm_state_size", "state_size", default=128)
    width = keys.whole("mamba_d_conv", "conv_kernel", default=4)
    mixed = inner + 2 * groups * states
    sums.add(LinearRole.FEED_FORWARD, hidden, inner + mixed + heads, "mamba.in_proj")
    sums.add(LinearRole.FEED_FORWARD, inner, hidden, "mamba.out_proj")
    sums.add(LinearRole.ROUTER, mixed, width + 1, "mamba.conv1d")
    sums.state += inner * states + mixed * width


def _add_delta(sums: LayerSums, keys: ConfigKeys) -> None:
    """The gated delta rule (Yang et al., 2024), as in Qwen3-Next."""
    hidden = keys.whole("hidden_size")
    key = keys.whole("linear_num_key_heads") * keys.whole("linear_key_head_dim")
    heads = keys.whole("linear_num_value_heads")
    value, width = heads * keys.whole("linear_value_head_dim"), keys.whole("linear_conv_kernel_dim", default=4)
    sums.add(LinearRole.FEED_FORWARD, hidden, 2 * key + 2 * value + 2 * heads, "linear_attn.in_proj")
    sums.add(LinearRole.FEED_FORWARD, value, hidden, "linear_attn.out_proj")
    sums.add(LinearRole.ROUTER, 2 * key + value, width, "linear_attn.conv1d")
    sums.state += value * keys.whole("linear_key_head_dim") + (2 * key + value) * width


def _add_kda(sums: LayerSums, keys: ConfigKeys) -> None:
    """Kimi delta attention (Kimi Linear, 2025)."""
    linear = keys.part("linear_attn_config")
    if linear is None:
        raise ValueError("linear_attn_config: expected its heads")
    hidden, heads, size = keys.whole("hidden_size"), linear.whole("num_attention_heads"), linear.whole("head_dim")
    inner, width = heads * size, linear.whole("short_conv_kernel_size", default=4)
    sums.add(LinearRole.FEED_FORWARD, hidden, 3 * inner + 2 * size + heads, "self_attn.qkv_proj")
    sums.add(LinearRole.FEED_FORWARD, size, 2 * inner, "self_attn.f_b_proj")
    sums.add(LinearRole.FEED_FORWARD, inner, hidden, "self_attn.o_proj")
    sums.add(LinearRole.ROUTER, 3 * inner, width, "self_attn.conv1d")
    sums.state += inner * size + 3 * inner * width


def _add_lightning(sums: LayerSums, keys: ConfigKeys) -> None:
    """Lightning attention (Qin et al., 2024), as in MiniMax-01."""
    hidden, inner = keys.whole("hidden_size"), keys.whole("num_attention_heads") * head_width(keys)
    sums.add(LinearRole.FEED_FORWARD, hidden, 4 * inner, "self_attn.qkv_proj")
    sums.add(LinearRole.FEED_FORWARD, inner, hidden, "self_attn.out_proj")
    sums.state += inner * head_width(keys)


def _add_convolution(sums: LayerSums, keys: ConfigKeys) -> None:
    """A gated short convolution, as in LFM2."""
    hidden, width = keys.whole("hidden_size"), keys.whole("conv_L_cache", default=3)
    sums.add(LinearRole.FEED_FORWARD, hidden, 3 * hidden, "conv.in_proj")
    sums.add(LinearRole.FEED_FORWARD, hidden, hidden, "conv.out_proj")
    sums.add(LinearRole.ROUTER, hidden, width, "conv.conv")
    sums.state += hidden * width


def _add_recurrence(sums: LayerSums, keys: ConfigKeys) -> None:
    """The gated linear recurrence of Griffin (De et al., 2024), as in RecurrentGemma."""
    hidden, heads = keys.whole("hidden_size"), keys.whole("num_attention_heads")
    inner, width = keys.whole("lru_width", default=0) or hidden, keys.whole("conv1d_width", default=4)
    sums.add(LinearRole.FEED_FORWARD, hidden, 2 * inner, "temporal_block.linear")
    sums.add(LinearRole.FEED_FORWARD, inner, hidden, "temporal_block.linear_out")
    sums.add(LinearRole.ROUTER, inner, 2 * (inner // heads) + width, "temporal_block.rg_lru")
    sums.state += inner * (1 + width)


_STATEFUL: Final = {
    Mixer.MAMBA: _add_mamba,
    Mixer.MAMBA_2: _add_mamba_2,
    Mixer.BOTH: _add_mamba_2,
    Mixer.DELTA: _add_delta,
    Mixer.KDA: _add_kda,
    Mixer.LIGHTNING: _add_lightning,
    Mixer.CONVOLUTION: _add_convolution,
    Mixer.RECURRENT: _add_recurrence,
}
