"""`gpuwatch plan measure`: short synthetic runs on this machine's GPU, as rows for `throughput.toml`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from gpuwatch import __version__
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.plan.memory_need import GB
from gpuwatch.domain.plan.own_rows import (
    OWN,
    OwnRow,
    SyntheticRun,
    percentile_ms,
    refuse_other_shapes,
    shape_keys,
    speed_of_steps,
)
from gpuwatch.domain.plan.roofline import TrainingMethod, WorkMethod
from gpuwatch.domain.plan.workload import Workload
from gpuwatch.errors import UsageError
from gpuwatch.measuring.machine_speeds import DiskSpeed, disk_speed, download_mbps
from gpuwatch.ports.measuring import Accelerator, CannotMeasure, DeviceFacts, MeasuredSteps

STEPS: Final = 10
_TRAINED: Final = {
    TrainingMethod.FULL: WorkMethod.FULL, TrainingMethod.LORA: WorkMethod.LORA, TrainingMethod.QLORA: WorkMethod.QLORA
}  # fmt: skip
_NOT_KNOWN: Final = "the GPU {!r} is not in the catalogue: `gpuwatch plan card` lists names"


class MeasureRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured beside the GPU. Raises UsageError: the model cannot be built.

    Attributes:
        folder: whose disk is measured; None: none.
        url: that is downloaded; None: the network is not measured.
    """

    work: Workload
    steps: int = STEPS
    folder: Path | None = None
    url: str | None = None

    def __post_init__(self) -> None:
        """Refuse other models, before a GPU is looked for."""
        try:
            refuse_other_shapes(self.work.model)
        except ValueError as fault:
            raise UsageError(str(fault)) from fault


class MeasureReport(msgspec.Struct, frozen=True, kw_only=True):
    """The rows, and why others are missing."""

    rows: list[OwnRow]
    skipped: list[str]


def measure(request: MeasureRequest, accelerator: Accelerator, now: datetime) -> MeasureReport:
    """Train and decode with random weights, then measure disk and network.

    Raises CannotMeasure: the GPU is not in the catalogue.
    """
    work = request.work
    facts = accelerator.facts()
    gpu = catalog().resolve(facts.gpu, facts.memory_gib or None)
    if not (gpu.known and gpu.certain):
        raise CannotMeasure(_NOT_KNOWN.format(facts.gpu))
    skipped: list[str] = []
    disk, network = _machine(request, skipped)
    rows = []
    for method, run, call in _runs(request, accelerator):
        try:
            steps = call(run)
        except CannotMeasure as reason:
            skipped.append(f"{method.value}, batch {run.batch} × {run.context:,} tokens: {reason}")
            continue
        row = _row(work, method, run, steps, (gpu.name, facts, now))
        rows.append(msgspec.structs.replace(row, disk_mb_s=disk, network_mbps=network))
    return MeasureReport(rows=rows, skipped=skipped)


def _runs(
    request: MeasureRequest, accelerator: Accelerator
) -> Iterator[tuple[WorkMethod, SyntheticRun, Callable[[SyntheticRun], MeasuredSteps]]]:
    work = request.work
    run = SyntheticRun(
        shape=work.model.shape,
        method=work.method,
        precision=work.precision,
        batch=work.at_once,
        context=work.context,
        steps=request.steps,
        recompute=work.recompute,
        rank=work.rank,
        targets=work.targets,
    )
    if work.trains:
        yield _TRAINED[work.method], run, accelerator.train
    yield WorkMethod.DECODE, msgspec.structs.replace(run, method=TrainingMethod.INFERENCE), accelerator.decode


def _row(
    work: Workload,
    method: WorkMethod,
    run: SyntheticRun,
    steps: MeasuredSteps,
    machine: tuple[str, DeviceFacts, datetime],
) -> OwnRow:
    gpu, facts, now = machine
    tokens = run.batch * (run.context if method.trains else 1)
    signed = signature(facts)
    return OwnRow(
        key=f"{now:%Y%m%dT%H%M%S}-{method.value}-{run.batch}x{run.context}",
        name=f"{OWN} of {now:%Y-%m-%d} ({signed})",
        at=now,
        signed=signed,
        model=work.model.name,
        shape=shape_keys(work.model),
        method=method,
        precision=run.precision,
        gpu=gpu,
        count=1,
        batch=run.batch,
        context=run.context,
        tokens_per_s=speed_of_steps(tokens, steps.step_s),
        peak_gb=None if steps.peak_bytes is None else steps.peak_bytes / GB,
        latency_ms=(percentile_ms(steps.step_s, 0.5), percentile_ms(steps.step_s, 0.95)),
        memory_keys=_memory_keys(work, method),
    )


def _memory_keys(work: Workload, method: WorkMethod) -> dict[str, Any]:
    """What else decides the peak: `plan size` uses it for the same keys only."""
    if not method.trains:
        return {}
    keys: dict[str, Any] = {"optimizer": "adamw", "recompute": work.recompute, "offload": False}
    return keys | ({} if method is WorkMethod.FULL else {"rank": work.rank, "targets": work.targets})


def signature(facts: DeviceFacts) -> str:
    """The versions of everything that took part; "unknown" is said."""
    cuda, driver = facts.cuda or "unknown", facts.driver or "unknown"
    return f"PyTorch {facts.torch}, CUDA {cuda}, driver {driver}, {facts.gpu}, gpuwatch {__version__}"


def _machine(request: MeasureRequest, skipped: list[str]) -> tuple[tuple[float, float] | None, float | None]:
    disk: DiskSpeed | None = None
    network: float | None = None
    try:
        if request.folder is not None:
            disk = disk_speed(request.folder)
    except CannotMeasure as reason:
        skipped.append(f"disk: {reason}")
    try:
        if request.url is not None:
            network = download_mbps(request.url)
    except CannotMeasure as reason:
        skipped.append(f"network: {reason}")
    return disk, network


def measure_json(report: MeasureReport) -> dict[str, Any]:
    """JSON of `gpuwatch plan measure`."""
    return {"rows": [_row_json(row) for row in report.rows], "skipped": report.skipped}


def _row_json(row: OwnRow) -> dict[str, Any]:
    latency, disk = row.latency_ms or (None, None), row.disk_mb_s or (None, None)
    return {
        "model": row.model,
        "params": row.shape["params"],
        "method": row.method.value,
        "precision": row.precision.value,
        "gpu": row.gpu,
        "count": row.count,
        "batch": row.batch,
        "context": row.context,
        "tokens_per_s": list(row.tokens_per_s),
        "peak_gb": row.peak_gb,
        "latency_p50_ms": latency[0],
        "latency_p95_ms": latency[1],
        "disk_write_mb_s": disk[0],
        "disk_read_mb_s": disk[1],
        "network_mbps": row.network_mbps,
        "signed": row.signed,
        "toml": row.toml,
    }


def rows_text(rows: Sequence[OwnRow]) -> str:
    """The rows as they are appended to a file."""
    return "\n".join(row.toml for row in rows)
