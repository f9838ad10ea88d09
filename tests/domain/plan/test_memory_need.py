"""The memory that a model needs: the sources' figures, published ones, and their consequences."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.plan.architectures.language_models import (
    MODELS,
    LanguageModel,
    model_from_config,
    model_of,
    of_size,
)
from gpuwatch.domain.plan.memory_need import (
    OPTIMIZER_BYTES,
    MemoryNeed,
    cards_for,
    cards_hold,
    even_card_count,
    fitting_cards,
    lora_params,
    memory_need,
    usable_gb,
)
from gpuwatch.domain.plan.roofline import Precision, TrainingMethod
from gpuwatch.domain.plan.workload import Workload

LLAMA_8B = model_of("Llama 3.1 8B")
LLAMA_70B = model_of("Llama 3.1 70B")


def part(needed: MemoryNeed, name: str) -> float:
    return next(one.gb for one in needed.parts if one.name == name)


@pytest.mark.parametrize(
    ("params", "precision", "gb"),
    [
        (7e9, Precision.FP32, 28.0),
        (70e9, Precision.FP32, 280.0),
        (70e9, Precision.BF16, 140.0),
        (70e9, Precision.INT4, 35.0),
    ],
)
def test_the_sources_formula_to_the_byte(params: float, precision: Precision, gb: float) -> None:
    """They count weights alone; in 4 bits, 0.127 bits of constants come on top."""
    work = Workload(model=of_size(params, "x"), method=TrainingMethod.INFERENCE, precision=precision)
    needed = memory_need(work)
    if precision is Precision.INT4:  # and what is not quantised: as many parameters, in 16 bits
        as_source = part(needed, "weights") / 4.127 * 4 + part(needed, "embeddings") / 4
        assert as_source == pytest.approx(gb)
    else:
        assert part(needed, "weights") == pytest.approx(gb)


def test_the_sources_batch_term() -> None:
    """7B in 32 bits, and a batch of four inputs of 0.5 GB: 28 and 2."""
    needed = memory_need(
        Workload.model_validate(
            {"model": "7B", "method": "inference", "precision": "fp32", "batch": 4, "context": 1, "input_gb": 0.5}
        )
    )
    assert (part(needed, "weights"), part(needed, "input")) == (28.0, 2.0)
    assert needed.gb == pytest.approx(30.0, abs=0.01)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_the_shape_of_a_known_model_has_its_parameters(model: LanguageModel) -> None:
    assert model.shape.params == pytest.approx(model.params, rel=0.01)


def test_adapters_count_as_published() -> None:
    """PEFT prints 41,943,040 for all linear layers of Llama 8B at rank 16, 4,194,304 for q and v of 7B at 8."""
    assert lora_params(LLAMA_8B.shape, 16, "all") == 41_943_040
    assert lora_params(model_of("Llama 2 7B").shape, 8, "qv") == 4_194_304


def test_adamw_in_mixed_precision_takes_sixteen_bytes_a_parameter() -> None:
    """ZeRO (2020): 2 + 2 + 12."""
    needed = memory_need(Workload(model=of_size(1e9, "1B")))
    states = sum(part(needed, name) for name in ("weights", "gradients", "master copy", "optimizer"))
    assert states == pytest.approx(16.0)


@pytest.mark.parametrize(("optimizer", "each"), [("adamw", 8), ("adamw8bit", 2), ("sgd", 0), ("lion", 4)])
def test_each_optimizer_has_its_states(optimizer: str, each: float) -> None:
    needed = memory_need(Workload(model=of_size(1e9, "1B"), optimizer=optimizer))
    assert part(needed, "optimizer") == pytest.approx(each)


def test_four_bits_are_four_and_an_eighth_with_their_constants() -> None:
    """QLoRA (2023): 0.127 bits a parameter for doubly quantised constants."""
    needed = memory_need(Workload(model=of_size(70e9, "70B"), method=TrainingMethod.QLORA))
    quantised = 70 - part(needed, "embeddings") / 2
    assert part(needed, "weights") == pytest.approx(quantised * 4.127 / 8)
    assert part(needed, "embeddings") == pytest.approx(2 * 2 * 128_256 * 8192 / 1e9), "they stay in 16 bits"
    assert part(needed, "dequantised") == pytest.approx(2 * 28_672 * 8192 / 1e9), "one matrix at a time"


def test_the_cache_of_a_llama_70b() -> None:
    """80 layers × 2 × 8 heads × 128 × 2 bytes = 327,680 bytes a token."""
    needed = memory_need(Workload(model=LLAMA_70B, method=TrainingMethod.INFERENCE, context=8192))
    assert part(needed, "KV cache") * 1e9 == 327_680 * 8192


def test_kept_activations_are_34_bytes_and_recomputed_ones_2() -> None:
    work = Workload(model=LLAMA_8B, context=2048, recompute=False)
    kept = part(memory_need(work), "activations") * 1e9
    assert kept == 34 * 2048 * 4096 * 32
    again = part(memory_need(Workload(model=LLAMA_8B, context=2048)), "activations") * 1e9
    assert again == 2 * 2048 * 4096 * 32 + 34 * 2048 * 4096


def test_plain_attention_grows_with_the_square_of_the_context() -> None:
    def extra(context: int) -> float:
        plain = Workload(model=LLAMA_8B, context=context, fused_attention=False, recompute=False)
        fused = Workload(model=LLAMA_8B, context=context, recompute=False)
        return memory_need(plain).gb - memory_need(fused).gb

    assert extra(4096) == pytest.approx(4 * extra(2048))


@pytest.mark.parametrize("precision", [Precision.INT4, Precision.INT8])
def test_whole_numbers_are_not_trained_in_full(precision: Precision) -> None:
    with pytest.raises(ValueError, match="cannot be trained"):
        memory_need(Workload(model=LLAMA_8B, precision=precision))


def test_an_unknown_size_has_a_shape_of_about_that_size() -> None:
    for size in ("0.5B", "20B", "180B", "1T"):
        model = model_of(size)
        assert model.like is not None
        assert model.shape.params == pytest.approx(model.params, rel=0.35), size


def test_a_models_own_config_is_read() -> None:
    fields = {
        "hidden_size": 8192,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "num_hidden_layers": 80,
        "intermediate_size": 28672,
        "vocab_size": 128256,
    }
    mine = model_from_config(fields, "mine").shape
    assert (mine.params, mine.cached_values) == (LLAMA_70B.shape.params, LLAMA_70B.shape.cached_values)
    with pytest.raises(ValueError, match="vocab_size: expected"):
        model_from_config(fields | {"vocab_size": "many"}, "mine")


def test_only_some_experts_work_on_a_token() -> None:
    mixtral = model_of("Mixtral 8x7B")
    assert mixtral.active_params < mixtral.params / 3
    fields = {
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 32,
        "intermediate_size": 14336,
        "vocab_size": 32000,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    }
    assert model_from_config(fields, "mine").active_params == pytest.approx(mixtral.active_params, rel=0.01)


def test_an_unknown_model_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"Llama 3\.1 70B"):
        model_of("GPT-5")


def test_counts_over_which_layers_divide_come_first() -> None:
    assert [even_card_count(count, LLAMA_70B.shape) for count in (1, 2, 3, 5, 9, 17)] == [1, 2, 4, 8, 16, 24]
    assert even_card_count(3, model_of("Qwen2.5 7B").shape) == 4  # 28 attention heads
    assert even_card_count(5, model_of("Qwen2.5 7B").shape) == 5  # … which 8 does not divide


def test_a_70b_in_16_bits_runs_on_two_h100_and_is_trained_on_sixteen() -> None:
    runs = memory_need(Workload(model=LLAMA_70B, method=TrainingMethod.INFERENCE))
    (h100,) = fitting_cards(runs, 64, ["H100 SXM"])
    assert (h100.least, h100.cards) == (2, 2)
    trains = memory_need(Workload(model=LLAMA_70B))
    (h100,) = fitting_cards(trains, 64, ["H100 SXM"])
    assert (h100.least, h100.cards) == (15, 16)
    assert fitting_cards(trains, 8, ["H100 SXM"]) == []


def test_training_wants_tensor_cores_and_nvlink_and_inference_does_not() -> None:
    names = ["RTX 4090", "A100 SXM 80GB", "P40"]
    trained = {fit.gpu.name: fit.against for fit in fitting_cards(memory_need(Workload(model=LLAMA_8B)), 64, names)}
    assert trained == {
        "A100 SXM 80GB": (),
        "RTX 4090": ("no NVLink",),
        "P40": ("no bf16", "no Tensor cores", "no NVLink"),
    }
    half = Workload(model=LLAMA_8B, method=TrainingMethod.INFERENCE, precision=Precision.FP16)
    assert all(fit.against == () for fit in fitting_cards(memory_need(half), 64, names))


def test_what_nothing_speaks_against_comes_first_then_even_counts_then_few_cards() -> None:
    found = fitting_cards(memory_need(Workload(model=LLAMA_70B, method=TrainingMethod.LORA)), 64)
    assert found == sorted(found, key=lambda fit: (len(fit.against), not fit.is_even, fit.cards))
    assert any(fit.against for fit in found)


@given(st.floats(0.001, 5_000), st.floats(5, 300))
def test_the_cards_hold_it_and_one_less_does_not(gb: float, memory_gib: float) -> None:
    cards = cards_for(gb, memory_gib)
    assert cards_hold(gb, memory_gib, cards)
    assert cards == 1 or gb > (cards - 1) * usable_gb(memory_gib) - 1e-6


@given(
    st.sampled_from(TrainingMethod),
    st.sampled_from([Precision.BF16, Precision.FP32, Precision.FP16]),
    st.sampled_from(sorted(OPTIMIZER_BYTES)),
    st.integers(1, 64),
    st.integers(1, 100_000),
)
def test_more_of_anything_never_needs_less(
    method: TrainingMethod, precision: Precision, optimizer: str, batch: int, context: int
) -> None:
    def gb(model: LanguageModel, batch: int, context: int) -> float:
        work = Workload(
            model=model, method=method, precision=precision, optimizer=optimizer, batch=batch, context=context
        )
        return memory_need(work).gb

    one = gb(LLAMA_8B, batch, context)
    assert one > 0
    assert gb(LLAMA_8B, batch + 1, context) > one
    assert gb(LLAMA_8B, batch, context + 1) > one
    assert gb(LLAMA_70B, batch, context) > one


def test_a_card_that_is_all_overhead_holds_nothing() -> None:
    assert usable_gb(1.0) == 0.0
    assert cards_for(10, 1.0) == 0


PUBLISHED_WEIGHTS = {
    "GPT-2": 124_439_808, "Llama 3.2 1B": 1_235_814_400, "Llama 3.2 3B": 3_212_749_824, "Llama 2 7B": 6_738_415_616,
    "Mistral 7B": 7_241_732_096, "Qwen2.5 7B": 7_615_616_512, "Llama 3.1 8B": 8_030_261_248,
    "Llama 2 13B": 13_015_864_320, "Qwen2.5 14B": 14_770_033_664, "Qwen2.5 32B": 32_763_876_352,
    "Mixtral 8x7B": 46_702_792_704, "Llama 2 70B": 68_976_648_192, "Llama 3.1 70B": 70_553_706_496,
    "Qwen2.5 72B": 72_706_203_648, "Mixtral 8x22B": 140_630_071_296, "Llama 3.1 405B": 405_853_388_800,
}  # fmt: skip


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_known_models_shape_has_as_many_weights_as_its_publisher_counts(model: LanguageModel) -> None:
    shape = model.shape
    small = (2 * shape.layers + 1) * shape.hidden  # norms
    if model.name.startswith("Qwen"):
        small += shape.layers * (shape.hidden + 2 * shape.kv_width)  # biases
    if model.name == "GPT-2":
        small = 1024 * shape.hidden + shape.layers * 13 * shape.hidden + 2 * shape.hidden  # positions, norms, biases
    assert shape.params + small == PUBLISHED_WEIGHTS[model.name]
    assert model.params == pytest.approx(PUBLISHED_WEIGHTS[model.name], rel=0.005)
    assert round(model.params / 1e6) == round(model.params / 1e6, 3)
    if model.name != "GPT-2":
        assert abs(model.params - PUBLISHED_WEIGHTS[model.name]) < 600_000
    if shape.experts > 1:
        two = msgspec.structs.replace(shape, experts=2)
        looked_up = shape.vocab * shape.hidden  # the input embedding is not multiplied
        assert model.active_params == pytest.approx(two.params - looked_up, rel=0.001)


def test_a_tiny_model_has_at_least_one_layer() -> None:
    assert of_size(1000.0, "1K").shape.layers == 1


def test_attention_without_a_fused_kernel_keeps_its_scores() -> None:
    """Korthikanti et al., 2022: 34 bytes and 5 × heads × context ÷ hidden for each token and unit of width."""
    fused, plain = (
        part(memory_need(Workload(model=LLAMA_8B, recompute=False, fused_attention=fused)), "activations")
        for fused in (True, False)
    )
    shape, context = LLAMA_8B.shape, Workload(model=LLAMA_8B).context
    assert (plain - fused) * 1e9 == pytest.approx(5 * shape.heads * context * context * shape.layers)


def test_an_inference_server_keeps_keys_and_values_and_reads_8192_tokens_at_once() -> None:
    shape, work = LLAMA_8B.shape, Workload(model=LLAMA_8B, method=TrainingMethod.INFERENCE, context=10_000)
    cache = 2 * shape.layers * shape.kv_width * 10_000
    assert part(memory_need(work), "KV cache") * 1e9 == pytest.approx(cache * 2)
    in_32_bits = work.model_copy(update={"precision": Precision.FP32})
    assert part(memory_need(in_32_bits), "KV cache") * 1e9 == pytest.approx(cache * 4)
    read = 2 * 8192 * (2 * shape.hidden + 3 * shape.ffn) + 4 * shape.vocab
    assert part(memory_need(work), "activations") * 1e9 == pytest.approx(read)


def test_training_in_32_bits_needs_no_master_copy() -> None:
    names = [one.name for one in memory_need(Workload(model=LLAMA_8B, precision=Precision.FP32, master=True)).parts]
    assert "master copy" not in names


def test_as_many_cards_as_allowed_are_not_too_many() -> None:
    needed = memory_need(Workload(model=LLAMA_70B, method=TrainingMethod.INFERENCE))
    [fit] = fitting_cards(needed, 8, ["H100 SXM"])
    assert (fit.least, fit.cards, fit.is_even) == (2, 2, True)
    assert fit.filled == pytest.approx((needed.gb / 2 + 1.0) / (80 * 1.073741824)), "of the whole card"
    assert fit.filled <= 0.9
    assert fitting_cards(needed, 2, ["H100 SXM"]) == [fit]
    assert fitting_cards(needed, 1, ["H100 SXM"]) == []


def test_fp16_takes_two_bytes_a_parameter_and_lora_has_rank_16() -> None:
    half = Workload(model=of_size(1e9, "1B"), method=TrainingMethod.INFERENCE, precision=Precision.FP16)
    assert part(memory_need(half), "weights") == 2.0
    assert Workload(model=LLAMA_8B).rank == 16
