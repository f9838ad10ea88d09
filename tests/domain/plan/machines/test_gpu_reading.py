"""What nvidia-smi prints, recorded, unmeasured and hostile."""

from __future__ import annotations

import pytest

from gpuwatch.domain.plan.machines.gpu_reading import MOST_GPUS, GpuReading, mean_percent, memory_share, parse_gpus
from gpuwatch.testing.suite import case
from tests.own_machines import RECORDED


def report(name: str) -> str:
    return "".join(f"gpu={line}\n" for line in (RECORDED / f"{name}.csv").read_text().splitlines())


def test_recorded_rows_are_read_and_what_is_not_measured_is_none() -> None:
    assert parse_gpus(report("a100-sxm"))[0] == GpuReading(
        percent=84, used_mib=33717, total_mib=81252, name="A100-SXM-80GB"
    )
    (split,) = parse_gpus(report("a800-mig"))
    assert (split.percent, split.used_mib, split.is_split) == (None, 36537, True)
    (shared,) = parse_gpus(report("gb10"))
    assert (shared.percent, shared.used_mib, shared.total_mib, shared.is_split) == (0, None, None, False)
    assert [gpu.name for gpu in parse_gpus(report("consumer"))] == ["NVIDIA GeForce RTX 4090", "Tesla T4"]


def test_rows_of_a_runner_without_names_and_other_lines() -> None:
    assert parse_gpus("load=3.1\ngpu=41,8000,80000\ncpus=8\n") == [
        GpuReading(percent=41, used_mib=8000, total_mib=80000)
    ]
    assert parse_gpus("gpu=[Not Supported], [N/A], 15360, Tesla T4") == [GpuReading(total_mib=15360, name="Tesla T4")]


def test_a_lost_gpu_and_a_forbidden_figure_are_unmeasured_and_spoil_no_other() -> None:
    lost = ", ".join(["[GPU is lost]"] * 4)
    first, second = parse_gpus(f"gpu=10, 100, 81559, NVIDIA H100 80GB HBM3\ngpu={lost}\n")
    assert (first.percent, second) == (10, GpuReading())
    (instance,) = parse_gpus("gpu=[N/A], [Insufficient Permissions], [Insufficient Permissions], NVIDIA A100-SXM4-80GB")
    assert instance == GpuReading(name="NVIDIA A100-SXM4-80GB")
    assert parse_gpus("gpu=ERR!, 300, 8192, GeForce GTX 1080")[0].is_split


def test_a_warning_among_the_rows_is_no_gpu() -> None:
    warning = "gpu=WARNING: infoROM is corrupted at gpu 0000:17:00.0"
    for report_lines in (f"{warning}\ngpu=12, 100, 81559, X", f"gpu=12, 100, 81559, X\n{warning}\ngpu=\n"):
        assert parse_gpus(report_lines) == [GpuReading(percent=12, used_mib=100, total_mib=81559, name="X")]


def test_a_failure_is_shown_in_the_words_of_the_driver() -> None:
    for words in (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest"
        " NVIDIA driver is installed and running.",
        "No devices were found",
        "Failed to initialize NVML: Driver/library version mismatch",
        "Unable to determine the device handle for GPU 0000:41:00.0: Unknown Error",
    ):
        with case(words), pytest.raises(ValueError, match="instead of GPU 0") as refused:
            parse_gpus(f"gpu={words}")
        assert words in str(refused.value)


def test_hostile_rows_are_refused_by_the_name_of_their_field() -> None:
    for row, what in (
        ("500, 1, 2, X", "GPU 0: utilization.gpu: expected a number from 0 to 100, not '500'"),
        ("-1, 1, 2, X", "utilization.gpu"),
        ("nan, 1, 2, X", "utilization.gpu"),
        ("1e9, 1, 2, X", "utilization.gpu"),
        ("5, 9999999999, 2, X", "memory.used"),
        ("5, 3, 2, X", "GPU 0: memory: 3 of 2 MiB are used"),
        ("5, 0, 0, X", "GPU 0: 0 MiB"),
        ("5, 1, , X", "memory.total"),
        ("5, 1", "instead of GPU 0 it prints '5, 1'"),
        ("5, 1, 2, \x1b[2Jgone", r"name: expected one line of plain text, not '\x1b[2Jgone'"),
        ("5, 1, 2, " + "x" * 200, "name: expected"),
        ("$(reboot), 1, 2, X", "utilization.gpu"),
    ):
        with case(row), pytest.raises(ValueError, match="GPU 0") as refused:
            parse_gpus(f"gpu={row}")
        assert what in str(refused.value)
    with pytest.raises(ValueError, match="at most 64"):
        parse_gpus("gpu=1,1,2,X\n" * (MOST_GPUS + 1))


def test_a_mean_needs_every_gpu() -> None:
    both = [GpuReading(percent=40, used_mib=10, total_mib=100), GpuReading(percent=80, used_mib=30, total_mib=100)]
    assert (mean_percent(both), memory_share(both)) == (60, 0.2)
    assert (mean_percent([*both, GpuReading()]), memory_share([*both, GpuReading()])) == (None, None)
    assert (mean_percent([]), memory_share([])) == (None, None)
