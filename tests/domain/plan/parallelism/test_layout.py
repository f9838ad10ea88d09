"""Tensor, pipeline and data parallelism: published rules, volumes by hand, and what does not fit."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.app.plan.machines.parallel_plan import ParallelPlan, plan_parallel
from gpuwatch.app.plan.plan_request import request_of
from gpuwatch.domain.market.links import machine_network
from gpuwatch.domain.plan.parallelism.card_layout import Layout
from gpuwatch.domain.plan.parallelism.parallel_request import ParallelRequest
from gpuwatch.errors import UsageError
from gpuwatch.testing.suite import case


def plan(cards: str, model: str, **keys: Any) -> ParallelPlan:
    return plan_parallel(request_of(ParallelRequest, {"candidates": [cards], "model": model} | keys))


def best(cards: str, model: str, **keys: Any) -> Layout:
    found = plan(cards, model, **keys).best
    assert found is not None
    return found


def test_all_reduce_moves_two_times_n_minus_one_of_n_of_the_gradients() -> None:
    """8B parameters in bf16 are 16 GB of gradients; 2 × 7/8 of them are 28 GB, at 450 GB/s 62 ms."""
    found = best("8x H100 SXM", "8B", method="full")
    assert (found.tensor, found.pipeline, found.data, found.zero) == (1, 1, 8, 1)
    assert found.data_gb == pytest.approx(28.0, rel=1e-6)
    assert found.data_s == pytest.approx(28.0 / 450)


def test_zero_3_moves_one_and_a_half_times_as_much() -> None:
    """Rajbhandari et al. (2020), section 7: 3 instead of 2 volumes."""
    layouts = plan("8x H100 SXM", "8B", method="full").layouts
    by_stage = {one.zero: one.data_gb for one in layouts if one.data == 8}
    assert by_stage[0] == by_stage[1] == by_stage[2]
    assert by_stage[3] == pytest.approx(1.5 * by_stage[0])


def test_memory_falls_with_the_stage_as_zero_says() -> None:
    """ZeRO's figure 1: 16 bytes a parameter; stage 3 divides all of them."""
    gb = {one.zero: one.gb for one in plan("8x H100 SXM", "8B", method="full").layouts if one.data == 8}
    assert gb[0] > gb[1] > gb[2] > gb[3]
    assert gb[0] - gb[3] == pytest.approx(16 * 8.03 * 7 / 8, rel=0.02)


def test_tensor_parallelism_stays_within_a_machine_and_a_pipeline_crosses() -> None:
    for one in plan("32x H100 SXM", "70B", method="full", batch=64, machine="p5.48xlarge").layouts:
        assert one.tensor <= 8
    large = best("64x H100 SXM", "70B", method="full", batch=64, machine="p5.48xlarge")
    assert large.tensor > 1
    assert large.tensor * large.pipeline * large.data == 64


def test_a_slow_network_makes_data_parallelism_across_machines_expensive() -> None:
    """Per machine 8 × 12.5 GB/s against 400: the same bytes take 32 times as long there."""
    fast = plan("16x H100 SXM", "8B", method="full", network_gbps=3200)
    slow = plan("16x H100 SXM", "8B", method="full", network_gbps=100)

    def seconds(found: ParallelPlan) -> float:
        return next(one.data_s for one in found.layouts if (one.data, one.zero) == (16, 1))

    inside = 2 * 7 / 8 * 16.06 / 450
    assert (seconds(slow) - inside) / (seconds(fast) - inside) == pytest.approx(32, rel=0.05)


def test_the_bubble_of_a_pipeline_is_stages_less_one_over_micro_batches() -> None:
    layouts = plan("8x H100 SXM", "8B", method="full", batch=16).layouts
    one = next(one for one in layouts if (one.tensor, one.pipeline, one.data) == (1, 8, 1))
    assert one.bubble == pytest.approx(7 / 16)
    assert next(one for one in layouts if one.data == 8).bubble == 0


def test_heads_groups_of_keys_and_feed_forward_width_divide() -> None:
    """Qwen2.5 7B: 28 heads, 4 groups, a width of 18,944: seven cards share it in stages alone."""
    assert {one.tensor for one in plan("7x H100 SXM", "Qwen2.5 7B", method="inference", batch=7).layouts} == {1}
    assert {one.tensor for one in plan("4x H100 SXM", "Qwen2.5 7B", method="inference", batch=4).layouts} == {1, 2, 4}


def test_published_layouts_are_among_those_that_fit() -> None:
    """Llama 3 405B (2024, table 4), GPT-3 (Narayanan et al., 2021, table 1), DeepSeek-V3 in vLLM's own recipe."""
    for cards, model, keys, wanted in (
        ("8192x H100 SXM", "405B", {"batch": 2048, "context": 8192, "network_gbps": 3200}, (8, 16, 64)),
        ("16384x H100 SXM", "405B", {"batch": 2048, "context": 8192, "network_gbps": 3200}, (8, 16, 128)),
        ("1536x A100 SXM 80GB", "175B", {"batch": 1536, "context": 2048, "network_gbps": 1600}, (8, 12, 16)),
        ("16x H100 SXM", "DeepSeek-V3", {"method": "inference", "batch": 16, "network_gbps": 3200}, (8, 2, 1)),
    ):
        with case((cards, model)):
            layouts = plan(cards, model, **{"method": "full"} | keys).layouts
            least = min(one.step_s for one in layouts if one.fits)
            found = [one for one in layouts if (one.tensor, one.pipeline, one.data) == wanted and one.fits]
            assert found
            assert min(one.step_s for one in found) < 1.05 * least


def test_a_pipeline_holds_as_many_micro_batches_as_it_has_stages() -> None:
    """1F1B: the first stage keeps p of them, each of 1/p of the layers; so the number of micro-batches is no matter."""
    few, many = (
        next(one for one in plan("8x H100 SXM", "8B", method="full", batch=batch).layouts if one.pipeline == 8)
        for batch in (8, 64)
    )
    assert few.gb == pytest.approx(many.gb)
    assert (many.micro, many.passes) == (1, 64)


def test_memory_with_zero_and_megatron_by_hand() -> None:
    """8.03B × (2 + 2 + 12 / d) with ZeRO 1, and Megatron-LM's 6 + 12 / d with 32-bit gradients; all but activations."""
    layouts = plan("8x H100 SXM", "8B", method="full", context=1, batch=8).layouts
    zero = {one.zero: one.gb - 1 for one in layouts if one.data == 8}
    billions = 8.0
    assert zero[0] == pytest.approx(billions * 16, rel=0.005)
    assert zero[1] == pytest.approx(billions * (4 + 12 / 8), rel=0.005)
    assert zero[2] == pytest.approx(billions * (2 + 14 / 8), rel=0.005)
    assert zero[3] == pytest.approx(billions * (16 / 8 + 2 * 2 / 32), rel=0.005)  # and two of 32 layers gathered
    tensor = {one.zero: one.gb - 1 for one in layouts if (one.tensor, one.data) == (2, 4)}
    assert tensor[0] == pytest.approx(billions * 18 / 2, rel=0.005)
    assert tensor[1] == pytest.approx(billions * (6 + 12 / 4) / 2, rel=0.005)


def test_passes_repeat_what_zero_2_and_3_send() -> None:
    once, often = (
        {one.zero: one.data_gb for one in plan("8x H100 SXM", "8B", method="full", batch=32, **keys).layouts
         if one.data == 8}
        for keys in ({}, {"micro_batch": 8})
    )  # fmt: skip
    assert often[0] == once[0]
    assert often[2] == pytest.approx(once[2] * (4 + 1) / 2)
    assert often[3] == pytest.approx(once[3] * 4)


def test_a_large_batch_is_taken_in_passes_that_fit() -> None:
    found = best("8x H100 SXM", "70B", method="lora", batch=256)
    assert found.fits
    assert found.passes > 1


def test_a_link_is_that_of_the_cards_data_sheet() -> None:
    """MI300X: seven links of 64 GB/s each way, 448 in all (AMD's data sheet)."""
    known, assumed = (plan(cards, "8B", method="full") for cards in ("8x MI300X", "8x MI250X"))
    assert known.group.inside_gb_s == 448
    assert not any("assumed" in line for line in known.reasons)
    assert any("assumed: no data sheet states the link of MI250X" in line for line in assumed.reasons)


def test_inference_prefers_copies_where_one_card_holds_the_model_and_tensors_where_not() -> None:
    assert best("4x H100 SXM", "8B", method="inference", batch=4).tensor == 4  # fastest token
    many = best("8x H100 SXM", "405B", method="inference", precision="fp8", batch=1)
    assert (many.tensor, many.pipeline) == (8, 1)


def test_networks_have_sources() -> None:
    known = machine_network("P5.48xlarge")
    assert known is not None
    assert (known[0], "AWS" in known[1]) == (3200, True)
    for machine, gbps in (("Standard_ND96asr_v4", 1600), ("Standard_ND96amsr_A100_v4", 1600)):
        assert (machine_network(machine) or (0,))[0] == gbps == 8 * 200  # learn.microsoft.com, ND A100 v4 series
    reasons = plan("16x H100 SXM", "8B", method="full", machine="p5.48xlarge").reasons
    assert any("3,200 Gbit/s, 50 GB/s for each card (AWS" in line for line in reasons)


def test_what_cannot_be_planned_says_why() -> None:
    assert plan("8x RTX 4090", "70B", method="full").best is None
    for cards, keys, why in (
        ("16x H100 SXM", {}, "2 machines: add --machine TYPE"),
        ("16x H100 SXM", {"machine": "xyz"}, "its network rate is unknown"),
        ("16x H100 SXM", {"machine": "p5.48xlarge", "network_gbps": 10}, "use either"),
        ("12x H100 SXM", {}, "12 cards are not whole machines of 8"),
        ("8x H100 SXM", {"batch": 1, "per_machine": 1, "network_gbps": 10, "context": 1}, ""),
        ("8x Ascend 910B", {}, "lacks its 16-bit rate"),
        ("8x V100 32GB", {}, "has no bf16: add --precision fp16"),
        ("8x A100 SXM 80GB", {"precision": "fp8"}, "no 8-bit arithmetic"),
        ("8x A100 SXM 80GB", {"machine": "p5.48xlarge"}, "has H100 SXM, not A100"),
        ("8x H100 SXM", {"batch": 11, "offload": True}, "try --batch 16"),
    ):
        with case(cards):
            if not why:
                assert plan(cards, "8B", **keys).layouts
                continue
            with pytest.raises(UsageError, match=why):
                plan(cards, "8B", method="full", **keys)
