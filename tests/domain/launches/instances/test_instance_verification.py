"""An instance compared with its offer."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gpuwatch.domain.launches.instance import Instance, InstanceState
from gpuwatch.domain.launches.instances.instance_checks import (
    MeasuredInstance,
    listing_mismatch,
    measurement_mismatch,
    slow_download,
)
from gpuwatch.domain.launches.launch import EndReason, Promise
from tests.domain.launches.guard_values import a_running_launch

PROMISED = Promise(gpu_memory_gib=80.0, disk_gb=100.0, cuda=12.8)
LAUNCH = a_running_launch(gpu_count=4, promised=PROMISED)


def listed(**changes: Any) -> Instance:
    plain: dict[str, Any] = {
        "instance_id": "9000",
        "label": None,
        "state": InstanceState.RUNNING,
        "status": "running",
        "gpu": "H100 SXM",
        "gpu_count": 4,
        "gpu_memory_gib": 79.6,
        "disk_gb": 100.0,
        "cuda": 12.8,
    }
    return Instance(**(plain | changes))


def test_what_was_promised_is_no_fault_and_more_is_none_either() -> None:
    assert listing_mismatch(LAUNCH, listed()) is None
    assert listing_mismatch(LAUNCH, listed(gpu_count=8, gpu_memory_gib=94.0, disk_gb=500.0, cuda=13.0)) is None


@pytest.mark.parametrize(
    ("less", "words"),
    [
        ({"gpu": "A100 PCIe"}, "A100 PCIe instead of H100 SXM"),
        ({"gpu_count": 2}, "2 of 4 GPUs"),
        ({"gpu_memory_gib": 77.5}, "GiB of GPU memory: 77.5 of 80"),
        ({"disk_gb": 99.0}, "GB of disk: 99 of 100"),
        ({"cuda": 12.4}, "CUDA: 12.4 of 12.8"),
    ],
)
def test_less_than_promised_is_reported_in_one_line(less: dict[str, Any], words: str) -> None:
    assert listing_mismatch(LAUNCH, listed(**less)) == (EndReason.NOT_AS_PROMISED, words)


@pytest.mark.parametrize("field", ["gpu", "gpu_count", "gpu_memory_gib", "disk_gb", "cuda"])
def test_what_the_list_does_not_say_is_no_fault(field: str) -> None:
    assert listing_mismatch(LAUNCH, listed(**{field: None})) is None


@pytest.mark.parametrize("odd", [math.nan, -1.0, 0.0, -math.inf])
def test_a_number_that_makes_no_sense_is_no_fault(odd: float) -> None:
    assert listing_mismatch(LAUNCH, listed(gpu_memory_gib=odd, disk_gb=odd, cuda=odd)) is None


def test_97_percent_of_the_memory_is_all_of_it() -> None:
    assert listing_mismatch(LAUNCH, listed(gpu_memory_gib=77.6)) is None


def test_an_offer_that_promised_nothing_is_held_to_nothing() -> None:
    assert listing_mismatch(a_running_launch(), listed(gpu_count=1, gpu_memory_gib=1.0, disk_gb=1.0, cuda=1.0)) is None


def test_what_the_instance_shows_itself() -> None:
    h100 = ("NVIDIA H100 80GB HBM3", 81_559.0)
    assert measurement_mismatch(LAUNCH, MeasuredInstance(gpus=(h100,) * 4)) is None
    assert measurement_mismatch(LAUNCH, MeasuredInstance()) is None
    assert measurement_mismatch(LAUNCH, MeasuredInstance(gpus=(h100,) * 2)) == (
        EndReason.NOT_AS_PROMISED,
        "nvidia-smi shows 2 of 4 GPUs",
    )
    other = measurement_mismatch(LAUNCH, MeasuredInstance(gpus=(("NVIDIA GeForce RTX 4090", 24_564.0),) * 4))
    assert other == (EndReason.NOT_AS_PROMISED, "nvidia-smi shows RTX 4090 instead of H100 SXM")
    small = measurement_mismatch(LAUNCH, MeasuredInstance(gpus=(h100, h100, h100, (h100[0], 40_960.0))))
    assert small == (EndReason.NOT_AS_PROMISED, "nvidia-smi shows GiB of GPU memory: 40 of 80")


def test_a_spelling_that_nobody_knows_is_no_fault() -> None:
    assert measurement_mismatch(LAUNCH, MeasuredInstance(gpus=(("Graphics Device", 81_559.0),) * 4)) is None


@pytest.mark.parametrize("promised", ["H100", "H100 SXM"])
@pytest.mark.parametrize("given", ["H100", "H100 SXM"])
def test_a_card_whose_socket_nobody_reported_is_no_other_card(promised: str, given: str) -> None:
    launch = a_running_launch(gpu=promised, gpu_count=4, promised=PROMISED)
    assert listing_mismatch(launch, listed(gpu=given)) is None
    assert listing_mismatch(launch, listed(gpu="A100 80GB")) == (
        EndReason.NOT_AS_PROMISED,
        f"A100 80GB instead of {promised}",
    )


def test_a_name_of_three_families_is_kept_by_each_of_them() -> None:
    launch = a_running_launch(gpu="RTX 6000", gpu_count=1, promised=Promise(gpu_memory_gib=24.0))
    assert measurement_mismatch(launch, MeasuredInstance(gpus=(("Quadro RTX 6000", 24_220.0),))) is None
    other = measurement_mismatch(launch, MeasuredInstance(gpus=(("NVIDIA RTX A6000", 49_140.0),)))
    assert other == (EndReason.NOT_AS_PROMISED, "nvidia-smi shows RTX A6000 instead of RTX 6000")


def test_slow_is_under_70_percent_of_what_is_wanted() -> None:
    assert slow_download(350.0, 500.0) is None
    assert slow_download(349.0, 500.0) == (EndReason.TOO_SLOW, "349 of 500 Mbit/s download")
    assert slow_download(None, 500.0) is None
    assert slow_download(1.0, None) is None
    assert slow_download(math.nan, 500.0) is None


def test_a_gpu_whose_memory_the_list_does_not_say_is_not_taken_for_its_larger_sister() -> None:
    """The list calls both "A100 SXM4"; without the memory that means the common one."""
    small = a_running_launch(gpu="A100 SXM 40GB", promised=Promise(gpu_memory_gib=40.0))
    unreported_failures = listed(gpu="A100 SXM 80GB", gpu_memory_gib=None)
    assert listing_mismatch(small, unreported_failures) is None
    assert listing_mismatch(small, listed(gpu="H100 SXM", gpu_memory_gib=None)) is not None
    assert listing_mismatch(small, listed(gpu="A100 PCIe 40GB", gpu_memory_gib=39.0)) is not None
