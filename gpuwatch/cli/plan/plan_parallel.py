"""`gpuwatch plan parallel`: how several cards share a model, and the files that start that plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.app.plan.machines.parallel_plan import (
    OTHERS,
    PARALLEL_METHOD_TEXT,
    PARALLEL_OPTIONS,
    plan_parallel,
    plan_parallel_json,
    write_files,
)
from gpuwatch.app.plan.plan_request import refuse_ignored_workload, request_of
from gpuwatch.cli import Exit
from gpuwatch.cli.base import verbose_option, wants_method
from gpuwatch.cli.options import json_option
from gpuwatch.cli.output import displayable, echo, json_out, note
from gpuwatch.cli.plan.plan import KeyCommand, key_options, note_model
from gpuwatch.cli.terminal_tables import left, right, table, text
from gpuwatch.domain.plan.parallelism.parallel_request import ParallelRequest

if TYPE_CHECKING:
    from gpuwatch.app.plan.machines.parallel_plan import ParallelPlan
    from gpuwatch.domain.plan.parallelism.card_layout import Layout

_COLUMNS = (
    left("layout"),
    right("GB a card"),
    right("compute", drop=3),
    right("data", drop=2),
    right("tensor", drop=2),
    right("pipeline", drop=2),
    right("a step"),
    text("", drop=1),
)


@click.command(
    cls=KeyCommand,
    keys=ParallelRequest,
    options=PARALLEL_OPTIONS,
    example="articles-size.toml",
    examples=(
        "gpuwatch plan parallel '8x H100 SXM' --size-of 8B --method full",
        "gpuwatch plan parallel '32x H100 SXM' --size-of 70B --method full --machine p5.48xlarge --write run",
        "gpuwatch plan parallel '4x RTX 4090' --size-of 70B --method inference --precision int4",
    ),
)
@key_options(ParallelRequest, PARALLEL_OPTIONS, "[FILE] CARDS")
@click.option("--write", "folder", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER",
              help="Write configuration and command for DeepSpeed, FSDP, Megatron-LM or vLLM there.")  # fmt: skip
@verbose_option
@json_option
def parallel(values: dict[str, Any], folder: Path | None, as_json: bool) -> int:
    """Choose tensor, pipeline and data parallelism for cards that share a model.

    Exit codes: 0 done, 1 the cards do not hold the model, 2 usage.
    """
    request = request_of(ParallelRequest, values, PARALLEL_OPTIONS)
    refuse_ignored_workload(request, PARALLEL_OPTIONS)
    note_model(request)
    plan = plan_parallel(request)
    if plan.group.warning is not None:
        note(plan.group.warning)
    written = write_files(plan, folder) if folder is not None and plan.best is not None else []
    if as_json:
        json_out(plan_parallel_json(plan))
    else:
        _print(plan)
    for path in written:
        note(f"written: {displayable(str(path))}")
    return Exit.DONE if plan.best is not None else Exit.FAILED


def _print(plan: ParallelPlan) -> None:
    group, best = plan.group, plan.best
    machines = "" if group.machines == 1 else f"{group.machines} machines of "
    cards = f"{machines}{group.per_machine}× {group.gpu.name}"
    if best is None:
        least = plan.layouts[0]
        echo(f"{cards} do not hold it: the best layout, {least.text}, needs {least.gb:,.1f} GB on each card.")
        fewer = "--method lora or qlora, --set offload=true" if plan.work.trains else "fewer bits (--precision)"
        note(f"more cards, {fewer} or a shorter --context: each needs less memory on a card")
        return
    echo(f"{best.text} on {cards}.")
    for line in plan.reasons:
        echo(f"- {line}")
    echo("")
    shown = [one for one in plan.layouts if one.fits][: OTHERS + 1]
    table(_COLUMNS, [_cells(one, best) for one in shown])
    if wants_method():
        note(PARALLEL_METHOD_TEXT)
    note(f"batch {plan.work.batch} × {plan.work.context:,} tokens; a pilot of some steps measures what overlaps")


def _cells(one: Layout, best: Layout) -> tuple[str, ...]:
    return (
        one.text,
        f"{one.gb:,.1f}",
        _time(one.compute_s * (1 + one.bubble)),
        _time(one.data_s),
        _time(one.tensor_s),
        _time(one.pipeline_s),
        _time(one.step_s),
        "chosen" if one is best else "",
    )


def _time(seconds: float) -> str:
    return "–" if not seconds else f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.1f} ms"
