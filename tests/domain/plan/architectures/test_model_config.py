"""Models by their own config.json: weights, caches, quantisation, and what is named because it is not understood."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from gpuwatch.domain.plan.architectures.language_models import LanguageModel, model_from_config, model_of
from gpuwatch.domain.plan.architectures.model_keys import model_types
from gpuwatch.domain.plan.memory_need import MemoryPart, memory_need
from gpuwatch.domain.plan.roofline import Precision, TrainingMethod
from gpuwatch.domain.plan.workload import Workload
from tests.checkout import TESTS

RECORDED = TESTS / "recorded" / "models"
LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 32, "intermediate_size": 14336, "vocab_size": 128256, "tie_word_embeddings": False,
    "rope_theta": 500000.0, "torch_dtype": "bfloat16",
}  # fmt: skip


def recorded(name: str) -> LanguageModel:
    return model_from_config(json.loads((RECORDED / f"{name}.json").read_bytes()), name)


def part(model: LanguageModel, name: str, **how: Any) -> MemoryPart:
    work = Workload(**({"model": model, "method": TrainingMethod.INFERENCE, "as_published": True} | how))
    return next(part for part in memory_need(work).parts if part.name == name)


@pytest.mark.parametrize(
    ("name", "weights_gb", "cache_gb"),
    [
        ("ernie21b", 43.7, 28 * 2 * 4 * 128 * 4096 * 2 / 1e9),
        ("falcon7b", 14.4, 0.0336),
        ("starcoder", 31.0, 0.0839),
        ("apertus8b", 16.1, 32 * 2 * 8 * 128 * 4096 * 2 / 1e9),
        ("afm45", 9.2, 36 * 2 * 4 * 128 * 4096 * 2 / 1e9),
        ("gptoss120b", 65.2, 36 * 2 * 8 * 64 * 4096 * 2 / 1e9),
        ("gemma3_4b_hf", 8.6, 34 * 2 * 4 * 256 * 4096 * 2 / 1e9),
        ("granite_dense_zero_experts", 6.8, 40 * 2 * 8 * 64 * 4096 * 2 / 1e9),
        ("internvl", 15.2, 28 * 2 * 4 * 128 * 4096 * 2 / 1e9),
        ("llava15_7b", 14.1, 32 * 2 * 32 * 128 * 4096 * 2 / 1e9),
        ("omni7b", 15.2, 28 * 2 * 4 * 128 * 4096 * 2 / 1e9),
    ],
)
def test_published_files_are_sized(name: str, weights_gb: float, cache_gb: float) -> None:
    model = recorded(name)
    assert part(model, "weights").gb == pytest.approx(weights_gb, rel=0.01)
    assert part(model, "KV cache").gb == pytest.approx(cache_gb, rel=0.002)
    assert [remark for remark in model.remarks if "the file does not have it" not in remark] == []


# --- quantisation -----------------------------------------------------------------------------------------------------


_LINEAR = (8.03e9 - 2 * 128256 * 4096) / 8.03e9  # the share of Llama's weights in its layers


@pytest.mark.parametrize(
    ("settings", "bits"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 4 + 20 / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, 4 + 20 / 64),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + 32 / 128**2),
        ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]}, 8),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.5),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, 4.127),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, 8),
        ({"quant_method": "compressed-tensors", "ignore": ["lm_head"], "config_groups": {"group_0": {
            "targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 128, "type": "int"}}}}, 4.125),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}}, 8),
        ({"quant_method": "hqq", "nbits": 2, "group_size": 16}, 2 + 18 / 16),
    ],
)  # fmt: skip
def test_published_weights_have_the_bits_of_their_quantisation(settings: dict[str, Any], bits: float) -> None:
    model = model_from_config({**LLAMA, "quantization_config": settings}, "quantised")
    weights = part(model, "weights")
    assert weights.gb == pytest.approx(8.03 * (_LINEAR * bits / 8 + (1 - _LINEAR) * 2), rel=0.002)
    assert f"{settings['quant_method']} as published" in weights.how


@pytest.mark.parametrize(
    ("name", "method", "weights_gb"),
    [("gpt-oss-120b", "mxfp4", 65.2), ("gpt-oss-20b", "mxfp4", 13.75), ("DeepSeek-V3", "fp8", 672.9)],
)
def test_a_model_by_name_is_counted_as_published_too(name: str, method: str, weights_gb: float) -> None:
    model = model_of(name)
    assert model.quantisation is not None
    assert model.quantisation.method == method
    assert part(model, "weights").gb == pytest.approx(weights_gb, rel=0.003)


def test_modules_that_are_not_converted_keep_16_bits() -> None:
    settings = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4}}}}
    for ignored, kept in (
        (["re:.*self_attn.*", "lm_head"], 32 * 2 * 4096 * (4096 + 1024)),
        (
            [f"model.layers.{at}.self_attn.{one}_proj" for at in range(16) for one in "qkvo"],
            16 * 2 * 4096 * (4096 + 1024),
        ),
        (["model.layers.0"], 2 * 4096 * (4096 + 1024) + 3 * 4096 * 14336),
        (["*.mlp.*"], 32 * 3 * 4096 * 14336),
    ):
        model = model_from_config({**LLAMA, "quantization_config": {**settings, "ignore": ignored}}, "mixed")
        assert model.quantisation is not None
        assert model.quantisation.share == pytest.approx(_LINEAR - kept / 8.03e9, abs=0.001)


def test_a_quantisation_that_is_not_understood_is_named() -> None:
    model = model_from_config({**LLAMA, "quantization_config": {"quant_method": "new-kind"}}, "quantised")
    weights = part(model, "weights")
    assert weights.gb == pytest.approx(16.06, rel=0.001)
    assert weights.how == "quantisation new-kind is not understood: counted with 2 bytes a weight"


def test_a_precision_that_is_asked_for_and_training_do_not_use_the_published_bits() -> None:
    model = recorded("gptoss120b")
    assert part(model, "weights", as_published=False).gb == pytest.approx(233.6, rel=0.001)
    assert part(model, "weights", as_published=False, precision=Precision.FP8).gb == pytest.approx(116.8, rel=0.001)
    assert part(model, "weights", method=TrainingMethod.FULL).gb == pytest.approx(233.6, rel=0.001)
    assert part(model, "weights", method=TrainingMethod.LORA).gb == pytest.approx(65.2, rel=0.01)


# --- caches -----------------------------------------------------------------------------------------------------------


def test_a_window_bounds_what_a_layer_holds_beside_the_tokens_read_at_once() -> None:
    """As vLLM counts it: the window of each sequence, and the 8,192 tokens that it reads at once."""
    model = recorded("gptoss120b")  # 18 of 36 layers have a window of 128
    value = 2 * 8 * 64 * 2 / 1e9
    assert part(model, "KV cache", context=4096).gb == pytest.approx(36 * 4096 * value)
    long = part(model, "KV cache", context=131072, batch=4)
    assert long.gb == pytest.approx((18 * 4 * 131072 + 18 * (4 * 128 + 8192)) * value)
    assert "18 layers × 1,024 of the last 128 tokens" in long.how


def test_recurrent_layers_hold_a_state_whatever_the_length() -> None:
    fields = {
        "model_type": "jamba", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
        "num_hidden_layers": 32, "intermediate_size": 14336, "vocab_size": 65536, "num_experts": 16,
    }  # fmt: skip
    model = model_from_config(fields, "Jamba")
    assert model.params == pytest.approx(51.57e9, rel=0.01)
    assert model.shape.cached_values == 4 * 2 * 8 * 128  # 4 of 32 layers attend
    short, long = (part(model, "KV cache", context=context).gb for context in (1, 100_001))
    assert long - short == pytest.approx(100_000 * 4 * 2 * 8 * 128 * 2 / 1e9)
    assert short > 28 * 8192 * 16 * 2 / 1e9


@pytest.mark.parametrize(
    ("fields", "billions"),
    [
        ({"model_type": "chatglm", "num_layers": 40, "hidden_size": 4096, "ffn_hidden_size": 13696, "kv_channels": 128,
          "num_attention_heads": 32, "multi_query_attention": True, "multi_query_group_num": 2,
          "padded_vocab_size": 151552}, 9.40),
        ({"model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016, "num_attention_heads": 32,
          "num_hidden_layers": 32, "vocab_size": 151936}, 7.72),
        ({"model_type": "RefinedWeb", "hidden_size": 8192, "n_head": 128, "n_head_kv": 8, "n_layer": 60,
          "vocab_size": 65024}, 41.8),
        ({"model_type": "hunyuan_v1_moe", "hidden_size": 4096, "intermediate_size": 3072, "num_attention_heads": 32,
          "moe_intermediate_size": [3072] * 32, "num_key_value_heads": 8, "attention_head_dim": 128,
          "num_hidden_layers": 32, "num_experts": 64, "moe_topk": [8] * 32, "num_shared_expert": [1] * 32,
          "vocab_size": 128167, "tie_word_embeddings": True}, 80.4),
    ],
)  # fmt: skip
def test_types_of_publishers_own_code_are_read(fields: dict[str, Any], billions: float) -> None:
    model = model_from_config(fields, "own code")
    assert model.params == pytest.approx(billions * 1e9, rel=0.01)
    assert model.remarks == ()


# --- what is not understood -------------------------------------------------------------------------------------------


def test_a_key_that_nobody_knows_is_named_and_harmless_ones_are_not() -> None:
    assert model_from_config(LLAMA, "known").remarks == ()
    odd = {**LLAMA, "num_zebra_experts": 64, "zebra_hidden_size": 8192, "zebra_dropout": 0.0, "zebra_layers": None}
    (remark,) = model_from_config(odd, "odd").remarks
    assert remark == "keys that are not understood, and may change the size: num_zebra_experts, zebra_hidden_size"


def test_an_encoder_and_layers_that_are_not_counted_are_named() -> None:
    odd = {**LLAMA, "vision_config": {"zebra_size": 64}, "num_nextn_predict_layers": 1}
    model = model_from_config(odd, "odd")
    assert model.params == pytest.approx(8.03e9, rel=0.001)
    assert model.remarks == (
        "not counted: vision_config (hidden_size: expected a whole number above 0)",
        "not counted: 1 further layers that predict several tokens at once",
    )


def test_a_type_that_nobody_knows_is_named() -> None:
    model = model_from_config({**LLAMA, "model_type": "zebra"}, "zebra")
    assert model.params == pytest.approx(8.03e9, rel=0.001)
    assert model.remarks == ('model_type "zebra" is unknown: counted as a transformer like Llama',)


@pytest.mark.parametrize("kind", ["rwkv", "zamba2", "jetmoe", "longcat_flash"])
def test_layers_of_a_kind_of_their_own_are_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=rf"model_type {kind}: layers of its own kind; pass its size instead"):
        model_from_config({**LLAMA, "model_type": kind}, "odd")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"layer_types": ["full_attention", "zebra"] * 16}, 'layer_types: unknown kind of layer "zebra"'),
        ({"layer_types": "zebra"}, "layer_types: expected a list of texts"),
        ({"hybrid_override_pattern": "MZ*"}, "hybrid_override_pattern: expected 32 of the letters"),
        ({"num_local_experts": "8"}, "num_experts: expected whole numbers"),
        ({"num_attention_heads": True}, "num_attention_heads: expected a whole number"),
    ],
)
def test_what_cannot_be_is_one_line_with_its_key(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        model_from_config({**LLAMA, **fields}, "wrong")


@pytest.mark.parametrize("name", [name for name, kind in model_types().items() if not kind.refused])
def test_each_type_of_the_table_is_sized_by_its_defaults_or_says_what_is_missing(name: str) -> None:
    with suppress(ValueError):  # a type whose defaults are incomplete
        assert model_from_config({"model_type": name}, name).params > 1e5
