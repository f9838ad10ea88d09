"""Slices: which names mean a part of a GPU, and which do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.market.gpu_cards import WHOLE, gpu_fraction
from gpuwatch.domain.market.gpu_names import catalog


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb", 1 / 4),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 2g.48gb", 1 / 2),
        ("PRO 6000 MIG 24GB", 1 / 4),
        ("PRO 6000 MIG 48GB", 1 / 2),
        ("MIG 3g.40gb", 3 / 7),
        ("A100-SXM4-80GB-MIG-1g.10gb", 1 / 7),
        ("H100 MIG 1g.10gb+me", 1 / 7),
        ("A30 2g.12gb", 1 / 2),
        ("A100-1-5C", 1 / 7),
        ("A30-1-6C", 1 / 4),
        ("NVIDIA A100D-3-40C", 3 / 7),
        ("A100D-20C", 1 / 4),
        ("A40-8Q", 1 / 6),
        ("GRID V100D-8Q", 1 / 4),
        ("A16-2Q", 1 / 8),
        ("vcg-a16-2c-8g-2vram", 1 / 8),
        ("vcg-a100-1c-6g-4vram", 1 / 10),
        ("g6f.large", 1 / 8),
        ("g6f.xlarge", 1 / 8),
        ("g6f.2xlarge", 1 / 4),
        ("gr6f.4xlarge", 1 / 2),
        ("Standard_NV6ads_A10_v5", 1 / 6),
        ("Standard_NV12ads_A10_v5", 1 / 3),
        ("Standard_NV18ads_A10_v5", 1 / 2),
        ("g4-standard-6", 1 / 8),
        ("g4-standard-12", 1 / 4),
        ("g4-standard-24", 1 / 2),
        ("1/2", 1 / 2),
        ("1/8 L4", 1 / 8),
        ("0.5x A10", 1 / 2),
        ("0.125 GPU", 1 / 8),
    ],
)
def test_a_slice_is_reported_with_its_share(text: str, share: float) -> None:
    assert gpu_fraction(text) == pytest.approx(share)
    assert gpu_fraction(text.upper()) == pytest.approx(share)
    assert gpu_fraction(text.lower()) == pytest.approx(share)


@pytest.mark.parametrize(
    "text",
    [
        "", "H100", "H100 80GB", "RTX 4090", "7g.80gb", "A100 MIG 7g.40gb", "4g.96gb", "A30 4g.24gb",
        "A100-7-40C", "T4-16Q", "A16-16Q", "g6.large", "g6.xlarge", "g6e.xlarge", "gr6.4xlarge",
        "Standard_NV36ads_A10_v5", "Standard_NV72ads_A10_v5", "Standard_NC4as_T4_v3", "g4-standard-48",
        "g4dn.xlarge", "H100-1-80G", "L40S-1-48G", "L4-1-24G", "8x H200 SXM5 141GB", "2026/01/02", "N/A", "n/a",
        "1/1", "4/2", "1/0", "0/4", "A100/H100", "us-east1/2", "1.5x faster", "PRO 6000 MIG 96GB", "MIG",
        "1A100.40S", "v1/2", "GPU 0.9.5x", "1g.24gb" * 100,
    ],
)  # fmt: skip
def test_what_names_no_slice_is_whole(text: str) -> None:
    assert gpu_fraction(text) == WHOLE


def test_no_card_is_ever_a_slice() -> None:
    """Every spelling of every card in the catalogue, including machines with whole cards."""
    slices = [text for gpu in catalog().gpus() for text in gpu.spellings if gpu_fraction(text) < WHOLE]
    assert slices == []


@given(st.text(max_size=300))
def test_any_text_is_a_share_above_nothing_and_at_most_a_whole(text: str) -> None:
    assert 0 < gpu_fraction(text) <= WHOLE


@given(
    st.sampled_from(["{}g.{}gb", "A100-{}-{}C", "{}/{}", "A40-{}{}Q", "vcg-a16-{}c-{}vram", "NV{}ads_A10_v{}"]),
    st.data(),
)
def test_whatever_numbers_stand_in_a_pattern_the_share_is_possible(pattern: str, data: st.DataObject) -> None:
    numbers = [data.draw(st.integers(0, 999)) for _ in range(2)]
    assert 0 < gpu_fraction(pattern.format(*numbers)) <= WHOLE


@given(st.integers(1, 7), st.integers(1, 999))
def test_a_mig_instance_is_a_slice_unless_it_takes_the_card(slices: int, memory_gb: int) -> None:
    share = gpu_fraction(f"H100 {slices}g.{memory_gb}gb")
    assert (share == WHOLE) is (slices == 7 or (slices, memory_gb) in {(4, 24), (4, 96)})


@pytest.mark.parametrize("text", ["PRO 6000 MIG 24GB", "H100 1g.10gb", "g6f.large", "A100-1-5C"])
def test_a_slice_is_no_name_of_a_card(text: str) -> None:
    found = catalog().resolve(text, 10.0)
    assert (found.known, found.name) == (False, text)
    assert found.reason is not None
    assert "a slice" in found.reason


@pytest.mark.parametrize(("plan", "share"), [("g6f.large", 1 / 8), ("g6f.2xlarge", 1 / 4), ("gr6f.4xlarge", 1 / 2)])
def test_an_ec2_plan_with_a_part_of_a_gpu(plan: str, share: float) -> None:
    assert gpu_fraction(plan) == share


@pytest.mark.parametrize(
    ("card", "gib"),
    [
        ("A2", 16), ("A10", 24), ("A10G", 24), ("A16", 16), ("A30", 24), ("A40", 48), ("A100", 40), ("A100D", 80),
        ("A100X", 80), ("H100", 80), ("H100L", 94), ("H200", 141), ("L4", 24), ("L40", 48), ("L40S", 48), ("T4", 16),
        ("M10", 8), ("M60", 8), ("P4", 8), ("P6", 16), ("P40", 24), ("P100", 16), ("V100", 16), ("V100D", 32),
        ("V100X", 16), ("V100DX", 32), ("RTX6000", 24), ("RTX8000", 48), ("RTXA5000", 24), ("RTXA6000", 48),
    ],
)  # fmt: skip
def test_a_vgpu_counts_by_its_share_of_the_cards_memory(card: str, gib: int) -> None:
    """Profiles with NVIDIA's names: the largest of each card is the whole card."""
    assert gpu_fraction(f"{card}-{gib}Q") == WHOLE
    assert gpu_fraction(f"{card}-{gib - 1}Q") == pytest.approx((gib - 1) / gib)
