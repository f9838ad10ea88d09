"""Models by name and by config.json: values computed from a shape, compared with published ones."""

from __future__ import annotations

import pytest

from gpuwatch.domain.plan.architectures.language_models import ListedModel, model_from_config, model_index, model_of
from gpuwatch.domain.plan.memory_need import memory_need
from gpuwatch.domain.plan.roofline import TrainingMethod
from gpuwatch.domain.plan.workload import Workload

_GPT_OSS = {  # openai/gpt-oss-120b, config.json
    "model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 36, "num_attention_heads": 64, "head_dim": 64,
    "num_key_value_heads": 8, "intermediate_size": 2880, "num_local_experts": 128, "num_experts_per_tok": 4,
    "experts_per_token": 4, "vocab_size": 201088, "tie_word_embeddings": False,
}  # fmt: skip
_DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "kv_lora_rank": 512,
    "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
    "tie_word_embeddings": False,
}  # fmt: skip
_MAVERICK = {
    "model_type": "llama4",
    "text_config": {
        "hidden_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8,
        "head_dim": 128, "intermediate_size": 8192, "intermediate_size_mlp": 16384, "interleave_moe_layer_step": 2,
        "num_local_experts": 128, "num_experts_per_tok": 1, "vocab_size": 202048, "tie_word_embeddings": False,
    },
}  # fmt: skip
_GEMMA_2B = {
    "model_type": "gemma", "hidden_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 8, "head_dim": 256,
    "num_key_value_heads": 1, "intermediate_size": 16384, "vocab_size": 256000,
}  # fmt: skip
_GPT_2 = {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "vocab_size": 50257}


def test_the_index_holds_150_models_with_its_date_and_sources() -> None:
    index = model_index()
    assert len(index.models) >= 150
    assert len({model.name for model in index.models}) == len(index.models)
    assert index.date >= "2026-11"
    assert {model.source for model in index.models} <= set(index.sources)


@pytest.mark.parametrize("listed", model_index().models, ids=lambda one: one.name)
def test_parameters_of_a_listed_shape_are_those_that_were_published(listed: ListedModel) -> None:
    # parts outside a text model's shape: norms, biases, and the image parts of Llama 4 and Gemma 3
    assert listed.shape.params == pytest.approx(listed.published_params, rel=0.02)
    if listed.published_active is not None:
        assert listed.shape.active_params == pytest.approx(listed.published_active, rel=0.09)
    assert model_of(listed.name).shape == listed.shape


@pytest.mark.parametrize(
    ("fields", "billions", "active"),
    [
        (_GPT_OSS, 116.8, 5.1),
        (_DEEPSEEK_V3, 671.0, 37.0),
        (_MAVERICK, 400.0, 17.0),
        (_GEMMA_2B, 2.506, 2.506),
        (_GPT_2, 0.124, 0.124),
    ],
)
def test_parameters_of_a_config_are_those_of_its_model_card(
    fields: dict[str, object], billions: float, active: float
) -> None:
    model = model_from_config(fields, "its own")
    assert model.params == pytest.approx(billions * 1e9, rel=0.01)
    assert model.active_params == pytest.approx(active * 1e9, rel=0.06)


@pytest.mark.parametrize(
    "name",
    ["gpt-oss-120b", "openai/gpt-oss-120b", "GPT OSS 120B"],
)
def test_a_name_is_understood_however_it_is_spelled(name: str) -> None:
    assert model_of(name).params == pytest.approx(116.8e9, rel=0.001)


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("Qwen3-30B-A3B-Instruct-2507", "Qwen3-30B-A3B"),
        ("Llama-3.3-70B", "Llama-3.3-70B-Instruct"),
        ("llama 4 scout", "Llama-4-Scout-17B-16E-Instruct"),
        ("deepseek-ai/DeepSeek-V3", "DeepSeek-V3"),
    ],
)
def test_what_does_not_change_the_shape_may_be_left_out(name: str, listed: str) -> None:
    assert model_of(name).name == listed


def test_a_mistyped_name_gets_a_suggestion() -> None:
    with pytest.raises(ValueError, match=r"did you mean .*gpt-oss-120b"):
        model_of("gpt-os-120b")


def test_latent_attention_caches_one_narrow_vector_a_token_and_layer() -> None:
    """DeepSeek-V3: 576 values of 2 bytes in each of 61 layers, 70 kB a token (its report, 2024)."""
    work = Workload(model=model_of("DeepSeek-V3"), method=TrainingMethod.INFERENCE, batch=1, context=1000)
    cache = next(part for part in memory_need(work).parts if part.name == "KV cache")
    assert cache.gb == pytest.approx(1000 * 61 * 576 * 2 / 1e9)


def test_grouped_queries_cache_their_few_keys_at_their_own_width() -> None:
    """gpt-oss-120b: 8 heads of 64, although 64 heads of 64 are wider than its layers."""
    assert model_of("gpt-oss-120b").shape.cached_values == 36 * 2 * 8 * 64


@pytest.mark.parametrize("key", ["block_configs", "compress_ratios", "swa_num_key_value_heads"])
def test_layers_that_are_not_understood_are_refused(key: str) -> None:
    with pytest.raises(ValueError, match=f"{key}: its layers differ"):
        model_from_config({**_GPT_OSS, key: 1}, "hybrid")


@pytest.mark.parametrize(("key", "value"), [("hidden_size", None), ("num_hidden_layers", "61"), ("vocab_size", -1)])
def test_a_missing_or_impossible_field_is_named(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{key}: expected a whole number"):
        model_from_config({**_GPT_OSS, "model_type": "unknown", key: value}, "wrong")


def test_a_key_that_a_file_leaves_out_has_the_value_of_its_model_type() -> None:
    assert model_from_config({**_GPT_OSS, "hidden_size": None}, "left out").shape.hidden == 2880
