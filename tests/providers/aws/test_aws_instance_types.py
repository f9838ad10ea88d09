"""The GPUs of each instance type: the table, compared with EC2's type data, and types that it lacks."""

from __future__ import annotations

import gzip
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.providers.aws.offers import parse_instance_type, table
from gpuwatch.testing.suite import case


def _rows_with_gpu() -> list[dict[str, Any]]:
    """EC2's answer to DescribeInstanceTypes, from moto's data, without loading moto."""
    found = find_spec("moto")
    assert found is not None
    assert found.origin is not None
    packed = Path(found.origin).parent / "ec2/resources/instance_types.json.gz"
    return [row for row in json.loads(gzip.decompress(packed.read_bytes())).values() if row.get("GpuInfo")]


WITH_GPU = _rows_with_gpu()
TAKEN: dict[str, Any] = {
    "InstanceType": "p9.48xlarge",
    "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
    "GpuInfo": {"Gpus": [{"Name": "H200", "Count": 8, "MemoryInfo": {"SizeInMiB": 144_384}, "GpuPartitionSize": 1.0}]},
}


def _with(**gpu: Any) -> dict[str, Any]:
    return TAKEN | {"GpuInfo": {"Gpus": [TAKEN["GpuInfo"]["Gpus"][0] | gpu]}}


def test_the_type_data_has_gpus_to_compare_with() -> None:
    assert len(WITH_GPU) > 40


def test_the_table_says_what_ec2_says() -> None:
    for row in WITH_GPU:
        with case(row):
            reported, ours = parse_instance_type(row), table()[row["InstanceType"]]
            assert reported is not None
            assert (reported.gpu_wire, reported.count, reported.memory_mib, reported.fraction, reported.arch) == (
                ours.gpu_wire, ours.count, ours.memory_mib, ours.fraction, ours.arch,
            )  # fmt: skip


def test_every_gpu_of_the_table_is_in_the_catalogue_with_its_memory() -> None:
    for machine in table().values():
        with case(machine):
            gpu = catalog().get(machine.gpu.name)
            assert gpu is not None
            assert machine.gpu.known
            if machine.fraction == 1.0:
                assert machine.sold_memory_gib == pytest.approx(gpu.memory_gib, rel=0.02)
            else:
                assert machine.sold_memory_gib < gpu.memory_gib


def test_types_have_the_gpus_that_their_pages_name() -> None:
    cases: list[Any] = [
        ("p5.48xlarge", "H100 SXM", 8, 80),
        ("p4d.24xlarge", "A100 SXM 40GB", 8, 40),
        ("p4de.24xlarge", "A100 SXM 80GB", 8, 80),
        ("p3dn.24xlarge", "V100 SXM2 32GB", 8, 32),
        ("g5.12xlarge", "A10G", 4, 24),
        ("g4dn.metal", "T4", 8, 16),
        ("g5g.16xlarge", "T4G", 2, 16),
        ("g7e.24xlarge", "RTX PRO 6000 Server", 4, 96),
    ]
    for name, gpu, count, gib in cases:
        with case((name, gpu, count, gib)):
            machine = table()[name]
            assert (machine.gpu.name, machine.count, machine.sold_memory_gib) == (gpu, count, gib)


def test_slices_and_arm_machines_are_marked() -> None:
    assert {m.name: m.fraction for m in table().values() if m.fraction < 1} == {
        "g6f.large": 0.125, "g6f.xlarge": 0.125, "g6f.2xlarge": 0.25, "g6f.4xlarge": 0.5, "gr6f.4xlarge": 0.5,
    }  # fmt: skip
    assert {m.name.partition(".")[0] for m in table().values() if m.arch == "arm64"} == {"g5g", "p6e-gb200"}
    assert [m.name for m in table().values() if m.multi_node] == ["p6e-gb200.36xlarge"]


def test_a_new_type_is_read_from_ec2s_own_words() -> None:
    machine = parse_instance_type(TAKEN)
    assert machine is not None
    assert (machine.gpu.name, machine.count, machine.fraction) == ("H200 SXM", 8, 1.0)


def test_a_new_slice_is_read_as_a_slice() -> None:
    machine = parse_instance_type(_with(Count=0, GpuPartitionSize=0.25, Name="L4", MemoryInfo={"SizeInMiB": 5722}))
    assert machine is not None
    assert (machine.count, machine.fraction, machine.gpu.name) == (1, 0.25, "L4")
    assert machine.sold_memory_gib == pytest.approx(5.59, abs=0.01)


def test_a_gpu_that_nobody_knows_keeps_its_spelling() -> None:
    machine = parse_instance_type(_with(Name="Z1000"))
    assert machine is not None
    assert (machine.gpu.name, machine.gpu.known) == ("Z1000", False)


def test_a_type_that_makes_no_sense_is_none() -> None:
    cases: list[Any] = [
        {},
        {"InstanceType": "p9.48xlarge"},
        TAKEN | {"GpuInfo": None},
        TAKEN | {"GpuInfo": {"Gpus": []}},
        TAKEN | {"InstanceType": 17},
        _with(Count=-8),
        _with(Count="many"),
        _with(Count=1_000),
        _with(Count=0, GpuPartitionSize=0),
        _with(MemoryInfo={"SizeInMiB": float("nan")}),
        _with(MemoryInfo={}),
        _with(Name=""),
    ]
    for row in cases:
        with case(row):
            assert parse_instance_type(row) is None
