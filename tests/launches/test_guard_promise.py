"""What was promised, against what is there."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gpuwatch.launches.instance import Instance, InstanceState
from gpuwatch.launches.launch import End, Promise
from gpuwatch.launches.promise import Inside, not_as_found, not_as_listed, too_slow
from tests.launches.guard_values import a_running_launch

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
    assert not_as_listed(LAUNCH, listed()) is None
    assert not_as_listed(LAUNCH, listed(gpu_count=8, gpu_memory_gib=94.0, disk_gb=500.0, cuda=13.0)) is None


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
def test_less_than_promised_is_told_in_one_line(less: dict[str, Any], words: str) -> None:
    assert not_as_listed(LAUNCH, listed(**less)) == (End.NOT_AS_PROMISED, words)


@pytest.mark.parametrize("field", ["gpu", "gpu_count", "gpu_memory_gib", "disk_gb", "cuda"])
def test_what_the_list_does_not_say_is_no_fault(field: str) -> None:
    assert not_as_listed(LAUNCH, listed(**{field: None})) is None


@pytest.mark.parametrize("odd", [math.nan, -1.0, 0.0, -math.inf])
def test_a_number_that_makes_no_sense_is_no_fault(odd: float) -> None:
    assert not_as_listed(LAUNCH, listed(gpu_memory_gib=odd, disk_gb=odd, cuda=odd)) is None


def test_97_percent_of_the_memory_is_all_of_it() -> None:
    assert not_as_listed(LAUNCH, listed(gpu_memory_gib=77.6)) is None


def test_an_offer_that_promised_nothing_is_held_to_nothing() -> None:
    assert not_as_listed(a_running_launch(), listed(gpu_count=1, gpu_memory_gib=1.0, disk_gb=1.0, cuda=1.0)) is None


def test_what_the_instance_shows_itself() -> None:
    h100 = ("NVIDIA H100 80GB HBM3", 81_559.0)
    assert not_as_found(LAUNCH, Inside(gpus=(h100,) * 4)) is None
    assert not_as_found(LAUNCH, Inside()) is None
    assert not_as_found(LAUNCH, Inside(gpus=(h100,) * 2)) == (End.NOT_AS_PROMISED, "nvidia-smi shows 2 of 4 GPUs")
    other = not_as_found(LAUNCH, Inside(gpus=(("NVIDIA GeForce RTX 4090", 24_564.0),) * 4))
    assert other == (End.NOT_AS_PROMISED, "nvidia-smi shows RTX 4090 instead of H100 SXM")
    small = not_as_found(LAUNCH, Inside(gpus=(h100, h100, h100, (h100[0], 40_960.0))))
    assert small == (End.NOT_AS_PROMISED, "nvidia-smi shows GiB of GPU memory: 40 of 80")


def test_a_spelling_that_nobody_knows_is_no_fault() -> None:
    assert not_as_found(LAUNCH, Inside(gpus=(("Graphics Device", 81_559.0),) * 4)) is None


@pytest.mark.parametrize("promised", ["H100", "H100 SXM"])
@pytest.mark.parametrize("given", ["H100", "H100 SXM"])
def test_a_card_whose_socket_nobody_told_is_no_other_card(promised: str, given: str) -> None:
    launch = a_running_launch(gpu=promised, gpu_count=4, promised=PROMISED)
    assert not_as_listed(launch, listed(gpu=given)) is None
    assert not_as_listed(launch, listed(gpu="A100 80GB")) == (
        End.NOT_AS_PROMISED,
        f"A100 80GB instead of {promised}",
    )


def test_a_name_of_three_families_is_kept_by_each_of_them() -> None:
    launch = a_running_launch(gpu="RTX 6000", gpu_count=1, promised=Promise(gpu_memory_gib=24.0))
    assert not_as_found(launch, Inside(gpus=(("Quadro RTX 6000", 24_220.0),))) is None
    other = not_as_found(launch, Inside(gpus=(("NVIDIA RTX A6000", 49_140.0),)))
    assert other == (End.NOT_AS_PROMISED, "nvidia-smi shows RTX A6000 instead of RTX 6000")


def test_slow_is_under_70_percent_of_what_is_wanted() -> None:
    assert too_slow(350.0, 500.0) is None
    assert too_slow(349.0, 500.0) == (End.TOO_SLOW, "349 of 500 Mbit/s download")
    assert too_slow(None, 500.0) is None
    assert too_slow(1.0, None) is None
    assert too_slow(math.nan, 500.0) is None


def test_a_gpu_whose_memory_the_list_does_not_say_is_not_taken_for_its_larger_sister() -> None:
    """The list calls both "A100 SXM4"; without a memory that resolves to the common one."""
    small = a_running_launch(gpu="A100 SXM 40GB", promised=Promise(gpu_memory_gib=40.0))
    unsaid = listed(gpu="A100 SXM 80GB", gpu_memory_gib=None)
    assert not_as_listed(small, unsaid) is None
    assert not_as_listed(small, listed(gpu="H100 SXM", gpu_memory_gib=None)) is not None
    assert not_as_listed(small, listed(gpu="A100 PCIe 40GB", gpu_memory_gib=39.0)) is not None
