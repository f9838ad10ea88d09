"""Every spelling in the providers' documents: the card that it means, ambiguous ones, and rejected ones."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import pytest

from gpuwatch.domain.market.gpu_names import CatalogGpu, GpuCatalog, catalog
from tests.builders import shared_gpu_names

ROWS = list(csv.DictReader(Path(__file__).with_name("gpu-spellings.csv").read_text("utf-8").splitlines()))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['source']}-{row['spelling']}-{row['memory_gib']}")
def test_a_documented_spelling_means_its_card_or_is_refused_with_a_reason(row: dict[str, str]) -> None:
    memory = float(row["memory_gib"]) if row["memory_gib"] else None
    found = catalog().resolve(row["spelling"], memory, row["socket"] or None)
    if not row["name"]:
        assert not found.known
        assert row["open_to"] == "no" or row["open_to"] in (found.reason or "")
        return
    assert (found.name, found.known) == (row["name"], True)
    assert found.certain is not bool(row["open_to"])
    if row["open_to"]:
        assert set(found.candidates) == set(row["open_to"].split("|"))
        assert all(name in (found.reason or "") for name in found.candidates)


@pytest.mark.parametrize("joint", shared_gpu_names(), ids=lambda gpu: gpu.name)
def test_what_cards_have_in_common_is_wanted_by_their_family_and_by_none_of_them(joint: CatalogGpu) -> None:
    assert joint.name in catalog().wanted(joint.name)
    assert set(joint.members) <= set(catalog().wanted(joint.name))
    assert not any(joint.name in catalog().wanted(member) for member in joint.members)
    assert catalog().get(joint.name) == joint
    assert catalog().get(joint.name) not in catalog().gpus()


@pytest.mark.parametrize("joint", shared_gpu_names(), ids=lambda gpu: gpu.name)
def test_what_cards_have_in_common_is_found_by_its_own_name(joint: CatalogGpu) -> None:
    found = catalog().resolve(joint.name)
    assert (found.name, found.certain, found.family) == (joint.name, False, joint.family)
    assert set(found.candidates) <= set(joint.members)


def test_a_watch_on_a_card_does_not_take_one_whose_socket_nobody_knows() -> None:
    offered = catalog().resolve("H100", 80.0).name
    assert offered in catalog().wanted("H100")
    assert offered in catalog().wanted("H100 80GB")
    assert offered not in catalog().wanted("H100 SXM")
    assert offered not in catalog().wanted("H100 PCIe")


def test_a_size_keeps_out_what_may_be_of_another_size() -> None:
    assert catalog().resolve("A100").name not in catalog().wanted("A100 80GB")
    assert catalog().resolve("A100", 80.0).name in catalog().wanted("A100 80GB")


@pytest.mark.parametrize(
    ("name", "other", "may"),
    [
        ("H100", "H100 SXM", True),
        ("H100 SXM", "H100", True),
        ("H100 SXM", "H100 PCIe", False),
        ("A100 80GB", "A100 SXM 40GB", False),
        ("A100 80GB", "A100 SXM", True),
        ("H100", "A100", False),
        ("Tesla X9000", "Tesla X9000", True),
        ("Tesla X9000", "H100", False),
    ],
)
def test_two_names_may_mean_one_card_if_they_share_a_candidate(name: str, other: str, may: bool) -> None:
    assert catalog().may_be(name, other) is may


def test_a_socket_that_fits_no_such_card_is_not_believed() -> None:
    assert catalog().resolve("L40S", 48.0, "SXM5").name == "L40S"
    assert catalog().resolve("H100", 80.0, "LGA1700").name == "H100"
    assert catalog().resolve("H200", 141.0, "PCIe").name == "H200 NVL"


@pytest.mark.parametrize(
    ("joint", "reported_gib", "sold_gib"),
    [("H100", 79.6, 80), ("V100 16GB", 15.8, 16), ("A100", 39.6, 40), ("H100", 40.0, 40)],
)
def test_memory_as_sold_of_a_card_that_is_open_is_that_of_the_nearest(
    joint: str, reported_gib: float, sold_gib: float
) -> None:
    assert catalog().sold_memory_gib(joint, reported_gib) == sold_gib


def test_a_poll_of_ten_thousand_rows_is_named_in_a_moment() -> None:
    """The hot path: known spellings are cached, including ambiguous and rejected ones."""
    few = GpuCatalog(catalog().gpus())
    rows = [(row["spelling"], float(row["memory_gib"] or 0)) for row in ROWS] * 40
    for spelling, memory in rows[: len(ROWS)]:
        few.resolve(spelling, memory)
    best = 1.0
    for _ in range(3):
        before = time.process_time()
        for spelling, memory in rows:
            few.resolve(spelling, memory)
        best = min(best, time.process_time() - before)
    assert best / len(rows) * 10_000 < 0.05
