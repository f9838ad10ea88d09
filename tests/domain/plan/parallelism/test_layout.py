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
    ):
        with case(cards):
            if not why:
                assert plan(cards, "8B", **keys).layouts
                continue
            with pytest.raises(UsageError, match=why):
                plan(cards, "8B", method="full", **keys)
