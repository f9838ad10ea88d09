"""`gpuwatch plan measure`: rows from a device that is played, and the planner that prefers them."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.app.plan.plan_measure import MeasureRequest, measure
from gpuwatch.app.plan.plan_request import request_of
from gpuwatch.app.plan.plan_size import memory_needed
from gpuwatch.app.plan.speed_table import parse_throughput, published_speeds, throughput_table
from gpuwatch.domain.market.gpu_cards import gpu_specs
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.plan.own_rows import SyntheticRun, percentile_ms
from gpuwatch.domain.plan.plan_schema import SizeRequest
from gpuwatch.domain.plan.throughput import estimate_speed, speed_of
from gpuwatch.domain.plan.workload import Workload
from gpuwatch.errors import UsageError
from gpuwatch.measuring.own_speeds import FILE, add_own_rows
from gpuwatch.ports.measuring import CannotMeasure, DeviceFacts, MeasuredSteps, RunOutOfMemory

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOPPER = DeviceFacts(gpu="NVIDIA H100 80GB HBM3", memory_gib=79.6, torch="2.9.0", cuda="12.8", driver="570.86.15")


class PlayedDevice(msgspec.Struct):
    """Steps of a quarter of a second, or tokens of 5 ms; `full_gb`: training beyond it does not fit."""

    known: DeviceFacts = HOPPER
    peak_gb: float = 20.0
    fits: bool = True

    def facts(self) -> DeviceFacts:
        return self.known

    def train(self, run: SyntheticRun) -> MeasuredSteps:
        if not self.fits:
            raise RunOutOfMemory("out of GPU memory")
        return MeasuredSteps(step_s=(0.25,) * run.steps, peak_bytes=round(self.peak_gb * 1e9))

    def decode(self, run: SyntheticRun) -> MeasuredSteps:
        return MeasuredSteps(step_s=(*(0.005,) * (run.steps - 1), 0.020), peak_bytes=17_000_000_000)


def work(**keys: object) -> Workload:
    found = request_of(
        SizeRequest, {"model": "llama-3.1-8b", "method": "lora", "batch": 2, "context": 2048} | keys
    ).workload()
    assert found is not None
    return found


def test_a_row_has_speed_memory_latency_and_the_versions_and_is_read_back(tmp_path: Path) -> None:
    report = measure(MeasureRequest(work=work(), steps=20, folder=tmp_path), PlayedDevice(), NOW)
    trained, decoded = report.rows
    assert (trained.tokens_per_s.low, trained.peak_gb, trained.gpu) == (2 * 2048 / 0.25, 20.0, "H100 SXM")
    assert decoded.latency_ms == pytest.approx((5.0, 5.0))
    assert decoded.tokens_per_s.high == pytest.approx(400)
    assert "PyTorch 2.9.0, CUDA 12.8, driver 570.86.15, NVIDIA H100 80GB HBM3, gpuwatch " in trained.toml
    assert trained.disk_mb_s is not None
    assert min(trained.disk_mb_s) > 0
    rows = parse_throughput(tomllib.loads("\n".join(row.toml for row in report.rows))).rows
    assert [(row.task.method.value, row.is_own) for row in rows] == [("lora", True), ("decode", True)]
    assert (rows[0].task.layers, rows[0].task.hidden, rows[0].peak_gb) == (32, 4096, 20.0)


def test_what_does_not_fit_is_left_out_with_the_reason_and_the_rest_is_measured() -> None:
    report = measure(MeasureRequest(work=work(method="full")), PlayedDevice(fits=False), NOW)
    assert [row.method.value for row in report.rows] == ["decode"]
    assert report.skipped == ["full, batch 2 × 2,048 tokens: out of GPU memory"]


def test_other_models_and_unknown_gpus_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match="gpt-oss-120b: only decoders with equal layers"):
        measure(MeasureRequest(work=work(model="gpt-oss-120b")), PlayedDevice(), NOW)
    with pytest.raises(CannotMeasure, match="'Quadro K9' is not in the catalogue"):
        measure(MeasureRequest(work=work()), PlayedDevice(known=msgspec.structs.replace(HOPPER, gpu="Quadro K9")), NOW)


def test_a_percentile_is_a_measured_step() -> None:
    steps = [one / 1000 for one in range(1, 101)]
    assert (percentile_ms(steps, 0.5), percentile_ms(steps, 0.95)) == pytest.approx((50.0, 95.0))
    assert percentile_ms([0.002], 0.95) == pytest.approx(2.0)


def test_the_planner_prefers_and_names_the_owners_own_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    counted = memory_needed(work())
    assert counted.measured is None
    rows = measure(MeasureRequest(work=work()), PlayedDevice(), NOW).rows
    assert (add_own_rows(tmp_path / FILE, rows), add_own_rows(tmp_path / FILE, rows)) == (2, 0)
    assert len(throughput_table().rows) == len(published_speeds().rows) + 2
    needed = memory_needed(work())
    assert needed.measured is not None
    assert (needed.gb, needed.counted_gb) == (20.0, counted.gb)
    assert needed.measured.how.startswith("own measurement of 2026-11-30 (PyTorch 2.9.0")
    assert memory_needed(work(recompute=False)).measured is None, "other keys, another peak"
    task = speed_of(work(), throughput_table()).task
    found = estimate_speed(throughput_table(), task, gpu_specs()["H100 SXM"], 1)
    assert found is not None
    assert (found.is_measured, found.rows[0].is_own) == (True, True)
    assert "own measurement of 2026-11-30" in found.how
    assert found.tokens_per_s.low < 2 * 2048 / 0.25 < found.tokens_per_s.high


@pytest.mark.parametrize("recompute", [True, False])
def test_a_row_counts_for_the_checkpointing_that_it_was_measured_with(
    recompute: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    rows = measure(MeasureRequest(work=work(recompute=recompute)), PlayedDevice(), NOW).rows
    add_own_rows(tmp_path / FILE, rows)
    for other in (True, False):
        found = speed_of(work(recompute=other), throughput_table()).on("H100 SXM", 1)
        assert found is not None
        assert found.is_measured is (other is recompute)
        gain = 1.25 ** ((not other) - (not recompute))
        assert found.middle == pytest.approx(2 * 2048 / 0.25 * gain, rel=0.01)


@given(st.floats(1e-6, 1e9), st.floats(1, 10))
def test_any_speed_that_is_written_can_be_read(speed: float, times: float) -> None:
    row = measure(MeasureRequest(work=work(method="inference")), PlayedDevice(), NOW).rows[0]
    written = msgspec.structs.replace(row, tokens_per_s=FigureRange(speed, speed * times)).toml
    (read,) = parse_throughput(tomllib.loads(written)).rows
    assert tuple(read.tokens_per_s) == pytest.approx((speed, speed * times), rel=1e-3)


def test_a_row_joins_a_file_that_is_not_text_and_whoever_reads_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    (tmp_path / FILE).write_bytes(b"\xff\xfe\n")
    add_own_rows(tmp_path / FILE, measure(MeasureRequest(work=work()), PlayedDevice(), NOW).rows)
    assert (tmp_path / FILE).read_bytes().startswith(b"\xff\xfe\n")
    with pytest.raises(UsageError, match="not a file of measured speeds"):
        memory_needed(work())


def test_a_broken_file_of_measurements_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    (tmp_path / FILE).write_text('[[publication]]\nrows = [{ gpu = "H100 SXM" }]\n')
    with pytest.raises(UsageError, match="not a file of measured speeds"):
        memory_needed(work())
