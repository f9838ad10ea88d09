"""`gpuwatch plan measure`: the speed and memory of a model on this machine's GPU, as rows that the planner prefers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.app.plan.plan_measure import STEPS, MeasureRequest, measure, measure_json, rows_text
from gpuwatch.app.plan.plan_request import refuse_ignored_workload, request_of
from gpuwatch.bootstrap import real_now
from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
from gpuwatch.cli.options import json_option
from gpuwatch.cli.output import echo, json_out, note
from gpuwatch.domain.plan.plan_schema import SizeRequest
from gpuwatch.domain.plan.roofline import TrainingMethod
from gpuwatch.errors import UsageError
from gpuwatch.measuring.own_speeds import FILE, add_own_rows
from gpuwatch.measuring.torch_accelerator import find_accelerator
from gpuwatch.measuring.torch_decoder import DTYPES
from gpuwatch.ports.measuring import CannotMeasure
from gpuwatch.settings.external_values import state_folder

if TYPE_CHECKING:
    from gpuwatch.app.plan.plan_measure import MeasureReport
    from gpuwatch.domain.plan.own_rows import OwnRow

_OPTIONS = {
    "CONFIG": "model", "--method": "method", "--precision": "precision", "--batch": "batch", "--context": "context",
    "--rank": "rank", "--keep-activations": "recompute",
}  # fmt: skip


@click.command(
    cls=Command,
    examples=(
        "gpuwatch plan measure llama-8b/config.json --method qlora --batch 4",
        "gpuwatch plan measure config.json --method full --context 2048 --write",
    ),
)
@click.argument("model", metavar="CONFIG")
@click.option("--method", type=click.Choice([str(one) for one in TrainingMethod]), default="lora", show_default=True,
              help="Training to measure; inference: decoding alone.")  # fmt: skip
@click.option("--precision", type=click.Choice([str(one) for one in DTYPES]), default="bf16", show_default=True,
              help="Number format; fp32 computes in TF32.")  # fmt: skip
@click.option("--batch", type=click.IntRange(1, 4096), default=1, show_default=True, help="Sequences at once.")
@click.option("--context", type=click.IntRange(16, 1_000_000), default=2048, show_default=True,
              help="Tokens per sequence.")  # fmt: skip
@click.option("--rank", type=click.IntRange(1, 4096), default=None, help="Rank of the adapters. Default: 16.")
@click.option("--keep-activations", is_flag=True, help="Without gradient checkpointing.")
@click.option("--steps", type=click.IntRange(2, 1000), default=STEPS, show_default=True, help="Steps that are timed.")
@click.option("--disk", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path(),
              metavar="FOLDER", help="Folder whose disk is measured. Default: the current one.")  # fmt: skip
@click.option("--download", metavar="URL", default=None, help="Large file to download, for the speed of the network.")
@click.option("--write", is_flag=True, help="Add the rows to your measurements, which plan size and plan job prefer.")
@json_option
def measure_command(
    steps: int, disk: Path, download: str | None, write: bool, as_json: bool, keep_activations: bool, **keys: Any
) -> int:
    """Measure a model's training and decoding on this machine's GPU, with random weights.

    CONFIG is a model's config.json, or its name. Needs PyTorch, which gpuwatch finds by import and does not install.
    Nothing is downloaded, except with --download.

    Exit codes: 0 measured, 1 no run fits or works, 2 usage, 3 no PyTorch or no GPU here: nothing was measured.
    """
    values = {key: value for key, value in keys.items() if value is not None}
    values |= {"recompute": False} if keep_activations else {}
    request = request_of(SizeRequest, values, _OPTIONS)
    refuse_ignored_workload(request, _OPTIONS)
    work = request.workload()
    if work is None:
        raise UsageError("CONFIG: expected a model's config.json")
    try:
        wanted = MeasureRequest(work=work, steps=steps, folder=disk, url=download)
        report = measure(wanted, find_accelerator(), real_now())
    except CannotMeasure as reason:
        click.echo(f"not measured: {reason}", err=True)
        return Exit.CANNOT_TELL
    if as_json:
        json_out(measure_json(report))
    else:
        _print(report)
    for line in report.skipped:
        note(f"not measured: {line}")
    if write and report.rows:
        _write(report)
    return Exit.DONE if report.rows else Exit.FAILED


def _print(report: MeasureReport) -> None:
    if not report.rows:
        return
    first = report.rows[0]
    echo(f"{first.model}, {first.precision.value}, on {first.gpu}: {first.signed}")
    for row in report.rows:
        echo(f"{row.method.value}, {row.batch} × {row.context:,} tokens: {_figures(row)}")
    if first.disk_mb_s is not None:
        echo("disk: {:,.0f} MB/s written, {:,.0f} MB/s read".format(*first.disk_mb_s))
    if first.network_mbps is not None:
        echo(f"network: {first.network_mbps:,.0f} Mbit/s downloaded")
    echo("")
    echo(rows_text(report.rows).rstrip())


def _figures(row: OwnRow) -> str:
    found = ["–".join(dict.fromkeys(f"{one:,.0f}" for one in row.tokens_per_s)) + " tokens/s"]
    if row.peak_gb is not None:
        found.append(f"peak {row.peak_gb:,.2f} GB")
    if row.latency_ms is not None:
        found.append("a {} in {:,.1f} ms (p50), {:,.1f} ms (p95)".format(
            "step" if row.method.trains else "token", *row.latency_ms))  # fmt: skip
    return ", ".join(found)


def _write(report: MeasureReport) -> None:
    path = state_folder(os.environ) / FILE
    try:
        added = add_own_rows(path, report.rows)
    except OSError as fault:
        raise UsageError(f"--write: {path}: {fault.strerror}") from fault
    note(f"{added} added to {path}; plan size and plan job prefer them")
