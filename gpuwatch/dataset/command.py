"""`gpuwatch plan dataset`: find duplicates in a training data set, and write a copy without them."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Group
from gpuwatch.cli.html import html_option, save_page
from gpuwatch.cli.options import FILE, POSITIVE, Between, Function, config_option, gpu_option, json_option, value_option
from gpuwatch.cli.output import json_out, note, progress
from gpuwatch.cli.terminal_tables import left, right, table
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.plan.figures import parse_figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuwatch.dataset.run import FilterTarget

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_WORK = click.Path(file_okay=False, path_type=Path)
_NEW = click.Path(path_type=Path)
_YES = click.option("--yes", is_flag=True, help="Do not ask, even if more than half of the rows go.")
BACKENDS = ("onnx-int8", "onnx", "sentence-transformers")  # same as in `dataset.embedding`, which is not imported here

_NAMES_SHOWN = 5


@click.group(cls=Group, examples=("gpuwatch plan dataset audit train.jsonl --gpu H100 --gpu-hours 200",))
def dataset() -> None:
    """Train on less: find duplicates in a data set, and write a copy without them.

    Runs on this machine's CPU and rents nothing. Requires the extra `dataset`.
    """


def _options(command: Function) -> Function:
    command = html_option(command)
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _figure(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    try:
        return None if value is None else parse_figure(value)
    except ValueError as fault:
        raise click.BadParameter(str(fault)) from fault


def _parse_near(_ctx: click.Context, _param: click.Parameter, value: str) -> float | None:
    if value == "off":
        return None
    try:
        cosine = float(value)
    except ValueError:
        cosine = 0.0
    if not 0.5 <= cosine <= 1:
        raise click.BadParameter('expected a cosine from 0.5 to 1, such as 0.95, or "off"')
    return cosine


def _sample(ctx: click.Context, param: click.Parameter, value: str) -> int | None:
    if value == "all":
        return 0
    if not value.isascii() or not value.isdigit() or not 100 <= int(value) <= 10**9:
        raise click.BadParameter('expected at least 100 rows, or "all"')
    source = ctx.get_parameter_source(param.name or "")
    return None if source is click.core.ParameterSource.DEFAULT else int(value)


_OPTIONS = (
    click.option(
        "--field", multiple=True, help="Field that holds text; may be repeated. Default: detected from the first rows."
    ),
    value_option(
        "--near", click.STRING, 'Cosine at which rows count as duplicates, or "off".', "0.95", callback=_parse_near
    ),
    value_option("--per-cluster", click.IntRange(1), "Keep at most N rows per cluster."),
    value_option("--clusters", click.IntRange(2, 2_000), "Number of clusters.", 100),
    value_option("--seed", click.IntRange(0, 2**31 - 1), "Random seed.", 42),
    value_option("--model", _FOLDER, "Embedding model. Default: MiniLM on this machine."),
    value_option("--backend", click.Choice(BACKENDS), "Library that runs the embedding model.", BACKENDS[0]),
    value_option("--perplexity-model", _FOLDER, "Small causal language model (ONNX) that computes perplexity."),
    value_option("--max-perplexity", POSITIVE, "Remove rows above this perplexity."),
    value_option("--min-perplexity", POSITIVE, "Remove rows below this perplexity."),
    value_option("--tokenizer", FILE, "tokenizer.json that counts tokens. Default: an estimate."),
    value_option("--threads", click.IntRange(1, 1024), "Number of CPU threads. Default: all."),
    value_option(
        "--sample", click.STRING, 'Rows that the model reads, drawn at random, or "all".', "10000", callback=_sample
    ),
    value_option("--work", _WORK, "Folder for intermediate results. Default: FILE.audit."),
    click.option("--anew", is_flag=True, help="Start over and ignore cached results."),
    gpu_option("--gpu", "GPU to train on; its cheapest offer in the store sets the price.", metavar=None),
    click.option("--poll", is_flag=True, help="Poll the providers for that offer instead."),
    value_option("--price", POSITIVE, "Price of the GPU in USD per GPU-hour."),
    value_option("--gpu-hours", POSITIVE, "GPU-hours that training on the whole file takes."),
    click.option(
        "--tokens-per-s",
        callback=_figure,
        default=None,
        metavar="N",
        help="Alternative: training tokens per second of one GPU.",
    ),
    click.option(
        "--params", callback=_figure, default=None, metavar="N", help="Alternative: size of the model to train (7B)."
    ),
    click.option("--lora", is_flag=True, help="With --params: train adapters only (LoRA)."),
    value_option("--utilisation", Between(0.01, 1), "Share of the GPU's FLOP/s that training reaches.", 0.4),
    value_option("--epochs", POSITIVE, "Passes over the data.", 1.0),
    value_option("--whole-gb", POSITIVE, "Size in GB of the whole set, if FILE is a part of it. Default: FILE."),
    value_option("--cpu-price", POSITIVE, "Price of a machine without GPUs in USD per hour. Default: the cheapest."),
    value_option("--cpu-processors", POSITIVE, "Processors of that machine. Default: as stated, or as here."),
)


@dataset.command(
    examples=(
        "gpuwatch plan dataset audit train.jsonl",
        "gpuwatch plan dataset audit train.jsonl --field text --params 7B --gpu H100",
    )
)
@click.argument("file", type=FILE)
@_options
@json_option
@config_option
def audit(as_json: bool, config: str | None, **options: Any) -> int:
    """Report the duplicates in FILE, what training without them saves, and what preparing it costs, step by step.

    FILE holds JSON lines, TFRecord or a WebDataset shard (each also .gz), Parquet or Arrow.
    Writes report.html and report.json to FILE.audit. Exit codes: 0 done, 2 usage, 3 FILE has no readable row.
    """
    return _run(options, as_json, config)


@dataset.command("filter", examples=("gpuwatch plan dataset filter train.jsonl smaller.jsonl --removed removed.jsonl",))
@click.argument("file", type=FILE)
@click.argument("out", type=_NEW)
@click.option("--removed", type=_NEW, default=None, help="Write the removed rows to this file.")
@click.option("--drop-unread", is_flag=True, help="Remove unreadable lines as well. Default: keep them.")
@click.option("--force", is_flag=True, help="Replace OUT if it exists; never FILE.")
@_YES
@_options
@json_option
@config_option
def filter_(
    out: Path,
    removed: Path | None,
    drop_unread: bool,
    force: bool,
    yes: bool,
    as_json: bool,
    config: str | None,
    **options: Any,
) -> int:
    """Write the rows of FILE to keep to OUT, in their order and in its format. FILE is never changed.

    Reuses the results of an earlier audit. If more than half of the rows would go, it prints the reasons first, and on
    a terminal it asks. Exit codes as for `audit`, and 1: you did not confirm.
    """
    from gpuwatch.dataset.run import FilterTarget

    target = FilterTarget(out=out, removed=removed, drop_unread=drop_unread, force=force)
    target.check(options["file"])
    return _run(options, as_json, config, target, yes=yes)


@dataset.command(
    examples=(
        "gpuwatch plan dataset pipeline parts/ deduplicated/ --tasks 16",
        "gpuwatch plan dataset pipeline parts/ deduplicated/ --executor slurm --tasks 200 --partition cpu",
    )
)
@click.argument("folder", type=_FOLDER)
@click.argument("out", type=_WORK)
@value_option("--executor", click.Choice(("local", "slurm", "ray")), "What runs the tasks.", "local")
@value_option("--tasks", click.IntRange(1, 100_000), "Number of tasks; each reads its share of the files.", 1)
@click.option(
    "--field", multiple=True, help="Field that holds text; may be repeated. Default: detected from the first rows."
)
@click.option("--exact-only", is_flag=True, help="Remove exact duplicates only, not near duplicates.")
@value_option("--time", click.STRING, "With slurm: time limit of a task.", "10:00:00")
@value_option("--partition", click.STRING, "With slurm: partition.", "cpu")
@_YES
@json_option
def pipeline(
    folder: Path, out: Path, as_json: bool, exact_only: bool, field: tuple[str, ...], yes: bool, **how: Any
) -> int:
    """Remove exact and near duplicates from the files of FOLDER, as a datatrove pipeline for one or many machines.

    Writes the copies to OUT/kept and the findings to OUT/summary.json. Completed tasks are not repeated. FOLDER and
    OUT must be the same on all machines. Requires the extras `dataset` and `datatrove`.
    """
    from gpuwatch.dataset.audit_report import loss_lines
    from gpuwatch.dataset.pipeline import PipelinePlan, readings_of, run_pipeline
    from gpuwatch.dataset.scan import NoUsableRows

    def may_copy(counts: dict[str, Any]) -> bool:
        reasons = {"the same text": counts["exact_duplicates"], "nearly the same wording": counts["wording_duplicates"]}
        return _may_remove(loss_lines(counts["rows"] - counts["kept_rows"], counts["rows"], reasons), yes=yes)

    try:
        readings = readings_of(folder, field)
    except NoUsableRows as fault:
        note(str(fault))
        return Exit.CANNOT_TELL
    plan = PipelinePlan(source=folder, out=out, readings=readings, wording=not exact_only, **how)
    summary = run_pipeline(plan, may_copy)
    if summary is None:
        return Exit.FAILED
    if as_json:
        json_out(summary)
    elif "rows" not in summary:
        click.echo(
            f"Submitted to {summary['executor']}; when its jobs are done, see {clean(summary['summary'], 1_000)}"
        )
    else:
        removed = summary["rows"] - summary["kept_rows"]
        click.echo(
            f"{summary['files']:,} files, {summary['rows']:,} rows: {summary['exact_duplicates']:,} exact duplicates,"
            f" {summary['wording_duplicates']:,} near duplicates; {removed:,} rows removed"
        )
        if summary["skipped"]:
            unusable = ", ".join(f"{clean(reason, 200)} {count:,}" for reason, count in summary["skipped"].items())
            click.echo(f"Not judged, and kept: {sum(summary['skipped'].values()):,} lines ({unusable})")
        if others := summary.get("not_read"):
            names = ", ".join(clean(name, 100) for name in others[:_NAMES_SHOWN])
            more = f" and {len(others) - _NAMES_SHOWN:,} more" if len(others) > _NAMES_SHOWN else ""
            click.echo(
                f"Not read, and not copied: {len(others):,} of the folder's other files and folders: {names}{more}"
            )
        click.echo(f"{clean(str(out / 'kept'), 1_000)}: {summary['kept_rows']:,} rows, {summary['kept_bytes']:,} bytes")
    return Exit.DONE


def _run(
    options: dict[str, Any], as_json: bool, config: str | None, target: FilterTarget | None = None, *, yes: bool = False
) -> int:
    """Audit the file, write the requested outputs, and print the findings."""
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.dataset.audit_report import loss_lines
    from gpuwatch.dataset.run import AuditRequest, audited, preparing_machine, training_price
    from gpuwatch.dataset.scan import NoUsableRows

    html = options.pop("html")
    request = AuditRequest(**options)
    price, missing = training_price(request, lambda: load_settings(config))
    machine = preparing_machine(request, lambda: load_settings(config))
    if missing:
        note(missing)
    with ExitStack() as stack:
        try:
            with progress() as stage:
                finished = stack.enter_context(audited(request, price, machine, stage))
        except NoUsableRows as fault:
            note(str(fault))
            return Exit.CANNOT_TELL
        report = finished.report
        if target is not None:
            if not _may_remove(loss_lines(*_losses(report, target)), yes=yes):
                return Exit.FAILED
            finished.write(target)
    _show(report, request.folder, as_json)
    if html:
        save_page(html, (request.folder / "report.html").read_text(encoding="utf-8"))
    return Exit.DONE


def _losses(report: dict[str, Any], target: FilterTarget) -> tuple[int, int, dict[str, int]]:
    """How many lines go, of how many, and how many for each reason."""
    reasons = {reason: weight["rows"] for reason, weight in report["removed"]["reasons"].items()}
    unusable = report["skipped"] if target.drop_unread else {}
    lines = report["rows"]["rows"] + sum(unusable.values())
    return report["removed"]["rows"] + sum(unusable.values()), lines, {**reasons, **unusable}


def _may_remove(warnings: Sequence[str], *, yes: bool) -> bool:
    """Print what is about to be removed, and ask on a terminal only: the input is never changed, and a script cannot
    answer.
    """
    for line in warnings:
        note(clean(line, 1_000))
    if not warnings or yes or not sys.stdin.isatty() or click.confirm("Write the copy?", err=True):
        return True
    note("nothing was written")
    return False


def _show(report: dict[str, Any], folder: Path, as_json: bool) -> None:
    from gpuwatch.dataset.audit_report import size_text
    from gpuwatch.dataset.preparation.chain import COLUMNS, report_lines, step_cells

    lines = [clean(line, 1_000) for line in report_lines(report)]
    if as_json:
        if report["clusters"]["verdict"] == "crowded":
            note(lines[0])
        json_out(report)
        return
    for line in lines:
        click.echo(line)
    table([left(COLUMNS[0]), *map(right, COLUMNS[1:])], [list(cells) for cells in step_cells(report["preparation"])])
    if written := report.get("written"):
        unread = f", and {written['unread_lines']:,} unreadable lines" if written["unread_lines"] else ""
        click.echo(f"{clean(written['file'], 1_000)}: {written['rows']:,} rows{unread}, {size_text(written['bytes'])}")
    click.echo(f"Report: {clean(str(folder / 'report.html'), 1_000)} and report.json")
