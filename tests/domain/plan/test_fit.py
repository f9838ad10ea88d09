"""Right-sizing: which GPUs are enough for a task, and which is cheapest by which measure."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.market.gpu_cards import gpu_specs
from gpuwatch.domain.plan.fit import (
    CostMeasure,
    GpuTask,
    PricedClass,
    TaskNeeds,
    cards_needed,
    price_ratio,
    rank_classes,
)
from gpuwatch.domain.plan.memory_need import cards_hold
from gpuwatch.domain.plan.roofline import card_specs_of

NAMES = sorted(gpu_specs())


def priced(gpu: str, usd: str, cards: int = 1, high: str | None = None, any_number: bool = False) -> PricedClass:
    high_usd = None if high is None else Decimal(high)
    return PricedClass(gpu=gpu, cards=cards, usd_hour=Decimal(usd), high_usd_hour=high_usd, any_number=any_number)


B200 = priced("B200 SXM", "9.50", high="12.00")
H100 = priced("H100 SXM", "3.50", high="5.50")


def test_a_b200_costs_2_18_to_2_71_times_an_h100() -> None:
    assert [round(one, 2) for one in price_ratio(B200, H100)] == [Decimal("2.18"), Decimal("2.71")]


def test_the_measures_of_an_h100() -> None:
    (one,) = rank_classes(TaskNeeds(), [priced("H100 SXM", "6.70", cards=2)]).choices
    assert one.per(CostMeasure.HOUR) == Decimal("6.70")
    assert round(one.per(CostMeasure.MEMORY) or 0, 5) == round(Decimal("3.35") / Decimal("85.89934592"), 5)
    assert round(one.per(CostMeasure.COMPUTE) or 0, 6) == round(Decimal("3.35") / Decimal("989.4"), 6)
    assert round(one.per(CostMeasure.BANDWIDTH) or 0, 6) == 1  # 3.35 TB/s


def test_a_small_chatbot_is_served_by_the_cheapest_that_holds_it() -> None:
    needs = TaskNeeds(task=GpuTask.INFERENCE, vram_gb=2.0, token_s=0.1)
    found = rank_classes(needs, [priced("T4", "0.526"), priced("A100 SXM 40GB", "5.27"), priced("L4", "0.80")])
    assert [choice.gpu.name for choice in found.choices] == ["T4", "L4", "A100 SXM 40GB"]


def test_training_is_bought_by_its_arithmetic() -> None:
    offers = [priced("A100 SXM 80GB", "1.20"), priced("H100 SXM", "2.40")]
    assert [choice.gpu.name for choice in rank_classes(TaskNeeds(task=GpuTask.TRAINING), offers).choices] == [
        "H100 SXM",
        "A100 SXM 80GB",
    ]
    assert (
        rank_classes(TaskNeeds(task=GpuTask.TRAINING), offers, CostMeasure.HOUR).choices[0].gpu.name == "A100 SXM 80GB"
    )


def test_a_latency_class_asks_for_bandwidth_not_only_for_memory() -> None:
    t4 = gpu_specs()["T4"]  # 320 GB/s, of which 192 are reached
    slow = TaskNeeds(task=GpuTask.INFERENCE, vram_gb=9.6)  # 50 ms a token
    assert cards_needed(slow, t4) == 1
    assert cards_needed(TaskNeeds(task=GpuTask.INFERENCE, vram_gb=9.6, token_s=0.05), t4) == 1
    assert cards_needed(TaskNeeds(task=GpuTask.INFERENCE, vram_gb=9.6, token_s=0.02), t4) == 3
    assert cards_needed(TaskNeeds(task=GpuTask.INFERENCE, vram_gb=9.6, read_gb=3.0, token_s=0.02), t4) == 1


def test_what_does_not_fit_is_reported_with_its_reason() -> None:
    needs = TaskNeeds(task=GpuTask.TRAINING, vram_gb=100.0)
    offers = [
        priced("RTX 4090", "2.0", cards=8),
        priced("P100 PCIe", "0.2", cards=8),
        priced("A100 SXM 80GB", "1.0"),
        priced("Nobody's GPU", "0.1"),
        priced("T4", "0.1", cards=8),
    ]
    assert rank_classes(needs, offers).left_out == {
        "no offer with that many cards": ("A100 SXM 80GB",),
        "not in our data sheets": ("Nobody's GPU",),
        "no Tensor cores": ("P100 PCIe",),
        "several cards without NVLink": ("RTX 4090", "T4"),
    }
    linked = rank_classes(TaskNeeds(task=GpuTask.TRAINING, vram_gb=100.0, any_link=True), offers)
    assert [choice.gpu.name for choice in linked.choices] == ["T4", "RTX 4090"]


def test_a_name_that_leaves_the_card_open_counts_as_its_weakest() -> None:
    found = card_specs_of("H100")
    assert found is not None
    assert (found.memory_gib, found.fp16_tflops, found.bandwidth_gb_s, found.nvlink) == (80.0, 756.0, 2000.0, False)
    assert card_specs_of("H100 SXM") is gpu_specs()["H100 SXM"]
    assert card_specs_of("Nobody's GPU") is None


@given(
    st.sampled_from(NAMES),
    st.floats(min_value=0.1, max_value=2000),
    st.integers(min_value=1, max_value=64),
    st.decimals(min_value="0.01", max_value=100, places=3),
)
def test_what_is_chosen_holds_the_task_within_the_cards_allowed(
    name: str, vram_gb: float, most: int, price: Decimal
) -> None:
    needs = TaskNeeds(vram_gb=vram_gb, max_cards=most)
    offers = [priced(name, str(price * cards), cards=cards) for cards in (1, 2, 4, 8)]
    offers.append(priced(name, str(price), any_number=True))
    for choice in rank_classes(needs, offers).choices:
        assert choice.priced.cards <= most
        assert cards_hold(vram_gb, choice.gpu.memory_gib, choice.priced.cards)
        assert not cards_hold(vram_gb, choice.gpu.memory_gib, choice.needed - 1)
        assert choice.usd_hour == price * choice.priced.cards


@pytest.mark.parametrize("by", list(CostMeasure))
def test_the_order_is_that_of_the_measure(by: CostMeasure) -> None:
    offers = [priced(name, str(1 + number % 7), any_number=True) for number, name in enumerate(NAMES)]
    values = [choice.per(by) for choice in rank_classes(TaskNeeds(), offers, by).choices]
    known = [value for value in values if value is not None]
    assert known == sorted(known)
    assert values == [*known, *[None] * (len(values) - len(known))]


def test_why_a_class_is_left_out() -> None:
    slow = TaskNeeds(task=GpuTask.INFERENCE, vram_gb=10.0, token_s=0.0001, max_cards=2)
    assert rank_classes(slow, [priced("T4", "1")]).left_out == {"more than 2 cards": ("T4",)}
    two = TaskNeeds(task=GpuTask.TRAINING, vram_gb=40.0)
    assert rank_classes(two, [priced("L4", "1", cards=2)]).left_out == {"several cards without NVLink": ("L4",)}
    assert rank_classes(two, [priced("L40S", "1", cards=1)]).choices != ()


def test_two_cards_read_a_token_in_half_the_time() -> None:
    needs = TaskNeeds(task=GpuTask.INFERENCE, vram_gb=10.0)
    one, two = (rank_classes(needs, [priced("L4", "1", cards=cards)]).choices[0].token_s for cards in (1, 2))
    assert one is not None
    assert two == (one.low / 2, one.high / 2)


def test_a_price_ratio_is_per_card() -> None:
    twice = priced("H100 SXM", "7.00", cards=2, high="11.00")
    assert price_ratio(twice, H100) == (1, 1)
    assert price_ratio(H100, twice) == (1, 1)
