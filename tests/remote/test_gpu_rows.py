"""What the runner reads of a machine's GPUs: recorded outputs of AMD's tools, and their failures."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from gpuwatch.domain.plan.machines.gpu_reading import GpuReading, parse_gpus
from gpuwatch.testing.suite import case
from tests.checkout import ROOT

AMD = ROOT / "tests/recorded/amd-smi"
Report = Callable[..., str]


@pytest.fixture
def report(tmp_path: Path) -> Report:
    """The report of a machine that has these programs, as shell scripts."""

    def read(**programs: str) -> str:
        for name, script in programs.items():
            path = tmp_path / name.replace("_", "-")
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        ran = subprocess.run(
            ["sh", "-s", "use"],
            input=files("gpuwatch.remote").joinpath("runner.sh").read_bytes(),
            env={"PATH": f"{tmp_path}:{os.defpath}"},
            capture_output=True,
            timeout=60,
            check=True,
        )
        return ran.stdout.decode()

    return read


def rocm_smi(name: str) -> str:
    return f"cat {AMD / f'rocm-smi-{name}'}"


def amd_smi(card: str) -> str:
    """It prints what its first argument asks for, if that was recorded."""
    return f"cat {AMD}/amd-smi-{card}-$1.json"


def test_rocm_smi_is_read_with_a_row_for_each_die_of_a_card(report: Report) -> None:
    name = "AMD INSTINCT MI250 (MCM) OAM AC MBA"
    assert parse_gpus(report(rocm_smi=rocm_smi("mi250.json"))) == [
        GpuReading(percent=50, used_mib=49140, total_mib=65520, name=name),
        GpuReading(percent=0, used_mib=11, total_mib=65520, name=name),
    ]


def test_a_warning_before_the_json_is_passed_over(report: Report) -> None:
    expected = [GpuReading(percent=0, used_mib=27, total_mib=20464, name="Radeon RX 7900 XT")]
    assert parse_gpus(report(rocm_smi=rocm_smi("rx7900xt.json"))) == expected
    assert parse_gpus(report(rocm_smi=rocm_smi("low-power.txt"))) == expected


def test_amd_smi_is_read_in_both_of_its_shapes(report: Report) -> None:
    assert parse_gpus(report(amd_smi=amd_smi("mi355x"))) == [
        GpuReading(percent=0, used_mib=283, total_mib=294896, name="AMD Instinct MI355X")
    ]
    assert parse_gpus(report(amd_smi=amd_smi("w7700"))) == [GpuReading(percent=42)]
    assert parse_gpus(report(amd_smi=amd_smi("mi300x-dpx"))) == [GpuReading(percent=0), GpuReading()]


def test_rocm_smi_is_asked_only_where_amd_smi_shows_no_gpu(report: Report) -> None:
    older = rocm_smi("rx7900xt.json")
    for broken in ("exit 1", "echo 'AMDSMI_STATUS_NO_PERM: not in the render group'", "echo '[]'"):
        with case(broken):
            (gpu,) = parse_gpus(report(amd_smi=broken, rocm_smi=older))
            assert gpu.name == "Radeon RX 7900 XT"
    (gpu,) = parse_gpus(report(amd_smi=amd_smi("mi355x"), rocm_smi=older))
    assert gpu.name == "AMD Instinct MI355X"


def test_nothing_of_amds_is_run_where_nvidia_smi_is(report: Report, tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    found = report(nvidia_smi="echo '5, 1, 2, X'", amd_smi=f"touch {touched}", rocm_smi=f"touch {touched}")
    assert parse_gpus(found) == [GpuReading(percent=5, used_mib=1, total_mib=2, name="X")]
    assert not touched.exists()


def test_a_machine_of_64_partitions_stays_within_the_report(report: Report) -> None:
    card = (
        '"card%s": {"GPU use (%%)": "7", "VRAM Total Memory (B)": "25769803776", "Card Series": "AMD Instinct MI300X"}'
    )
    cards = ", ".join(card % index for index in range(64))
    found = report(rocm_smi=f"echo '{{{cards}}}'")
    assert len(parse_gpus(found)) == 64
    assert len(found) < 8192  # what a rented machine's report may hold


def test_hostile_json_becomes_a_refused_row_and_never_a_command(report: Report, tmp_path: Path) -> None:
    hostile = '{"card0": {"GPU use (%)": "$(touch ' + str(tmp_path / "made") + ')", "VRAM Total Memory (B)": "1"}}'
    with pytest.raises(ValueError, match=r"utilization.gpu: expected a number"):
        parse_gpus(report(rocm_smi=f"cat <<'END'\n{hostile}\nEND"))
    assert not (tmp_path / "made").exists()
