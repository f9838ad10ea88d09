"""`gpuwatch dataset`: find what repeats in a training data set, and write a copy without it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Group
from gpuwatch.cli.options import Between, completes, config_option, json_option

if TYPE_CHECKING:
    from gpuwatch.app.dataset.audit import Audit, AuditModels, RemovalRules
    from gpuwatch.app.dataset.rows import FieldSelection
    from gpuwatch.app.dataset.saving import TrainingPrice, TrainingSaving, TrainingWork
    from gpuwatch.app.dataset.work_folder import WorkFolder

Command = Callable[..., Any]
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_WORK = click.Path(file_okay=False, path_type=Path)
_NEW = click.Path(path_type=Path)
BACKENDS = ("onnx", "sentence-transformers")  # as `dataset.embedding` has them, which is not imported yet
_POSITIVE = Between(min=0, min_open=True)


@click.group(cls=Group, examples=("gpuwatch dataset audit train.jsonl --gpu H100 --gpu-hours 200",))
def dataset() -> None:
    """Less to train on: what of a data set repeats itself, and a copy without it.

    Runs on this machine's CPU, before anything is rented. Needs the extra `dataset`.
    """


def _options(command: Command) -> Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _figure(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    from gpuwatch.domain.planning.figures import parse_figure

    try:
        return None if value is None else parse_figure(value)
    except ValueError as fault:
        raise click.BadParameter(str(fault)) from fault


def _near(_ctx: click.Context, _param: click.Parameter, value: str) -> float | None:
    if value == "off":
        return None
    try:
        found = float(value)
    except ValueError:
        found = 0.0
    if not 0.5 <= found <= 1:
        raise click.BadParameter('expected a cosine from 0.5 to 1, such as 0.95, or "off"')
    return found


_OPTIONS = (
    click.option(
        "--field", multiple=True, help="Field that holds text; may be repeated. Default: detected from the first rows."
    ),
    click.option(
        "--near",
        default="0.95",
        show_default=True,
        callback=_near,
        help='Cosine at which rows count as duplicates, or "off".',
    ),
    click.option("--per-cluster", type=click.IntRange(1), default=None, help="Keep at most N rows per cluster."),
    click.option(
        "--clusters", type=click.IntRange(2, 2_000), default=100, show_default=True, help="Number of clusters."
    ),
    click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=42, show_default=True, help="Random seed."),
    click.option("--model", type=_FOLDER, default=None, help="Embedding model. Default: MiniLM on this machine."),
    click.option(
        "--backend",
        type=click.Choice(BACKENDS),
        default=BACKENDS[0],
        show_default=True,
        help="Library that runs the embedding model.",
    ),
    click.option(
        "--perplexity-model",
        type=_FOLDER,
        default=None,
        help="Small causal language model (ONNX) that computes perplexity.",
    ),
    click.option("--max-perplexity", type=_POSITIVE, default=None, help="Remove rows above this perplexity."),
    click.option("--min-perplexity", type=_POSITIVE, default=None, help="Remove rows below this perplexity."),
    click.option(
        "--tokenizer", type=_FILE, default=None, help="tokenizer.json that counts tokens. Default: an estimate."
    ),
    click.option("--threads", type=click.IntRange(1, 1024), default=None, help="Number of CPU threads. Default: all."),
    click.option("--work", type=_WORK, default=None, help="Folder for intermediate results. Default: FILE.audit."),
    click.option("--anew", is_flag=True, help="Start over and ignore earlier results."),
    click.option(
        "--gpu",
        default=None,
        help="GPU to train on; its cheapest offer in the store sets the price.",
        shell_complete=completes("gpus"),
    ),
    click.option("--poll", is_flag=True, help="Poll the providers for that offer instead."),
    click.option("--price", type=_POSITIVE, default=None, help="Price of the GPU in USD per GPU-hour."),
    click.option("--gpu-hours", type=_POSITIVE, default=None, help="GPU-hours that training on the whole file takes."),
    click.option(
        "--tokens-per-s", callback=_figure, default=None, metavar="N", help="Or: tokens per second that one GPU trains."
    ),
    click.option("--params", callback=_figure, default=None, metavar="N", help="Or: size of the model to train (7B)."),
    click.option("--lora", is_flag=True, help="With --params: train adapters only (LoRA)."),
    click.option(
        "--utilisation",
        type=Between(0.01, 1),
        default=0.4,
        show_default=True,
        help="Share of the GPU's FLOP/s that training reaches.",
    ),
    click.option("--epochs", type=_POSITIVE, default=1.0, show_default=True, help="Passes over the data."),
)


@dataset.command(
    examples=(
        "gpuwatch dataset audit train.jsonl",
        "gpuwatch dataset audit train.jsonl --field text --params 7B --gpu H100",
    )
)
@click.argument("file", type=_FILE)
@_options
@json_option
@config_option
def audit(file: Path, as_json: bool, config: str | None, **chosen: Any) -> int:
    """Report what repeats in FILE (JSON lines, also .gz), and what training on less would save.

    Writes report.html and report.json to FILE.audit. Exit codes: 0 done, 2 usage, 3 FILE holds no readable row.
    """
    return _run_audit(file, as_json, config, chosen, write=None)


@dataset.command("filter", examples=("gpuwatch dataset filter train.jsonl smaller.jsonl --removed removed.jsonl",))
@click.argument("file", type=_FILE)
@click.argument("out", type=_NEW)
@click.option("--removed", type=_NEW, default=None, help="Write the removed rows to this file.")
@click.option("--drop-unread", is_flag=True, help="Remove unreadable lines, too. Default: keep them.")
@click.option("--force", is_flag=True, help="Replace OUT if it exists; never FILE.")
@_options
@json_option
@config_option
def filter_(
    file: Path,
    out: Path,
    removed: Path | None,
    drop_unread: bool,
    force: bool,
    as_json: bool,
    config: str | None,
    **chosen: Any,
) -> int:
    """Write the rows of FILE that stay to OUT, byte for byte, in their order. FILE is never changed.

    Reuses the results of an earlier audit. Exit codes as for `audit`.
    """
    from gpuwatch.app.dataset.filtering import check_target, write_kept

    for target in (out, removed) if removed else (out,):
        check_target(file, target, force=force)

    def write(done: Audit) -> dict[str, Any]:
        found = write_kept(done, out, removed, drop_unread=drop_unread, force=force)
        return {"file": str(out), "rows": found.rows, "bytes": found.bytes, "unread_lines": found.unread}

    return _run_audit(file, as_json, config, chosen, write=write)


def _run_audit(
    file: Path,
    as_json: bool,
    config: str | None,
    chosen: dict[str, Any],
    write: Callable[[Audit], dict[str, Any]] | None,
) -> int:
    """Audit, write what is to be written, and say what was found."""
    from gpuwatch.app.dataset.scan import NoUsableRows, read_as
    from gpuwatch.app.dataset.work_folder import open_work_folder

    if not file.is_file():
        raise click.UsageError(f"{file} is not a file that can be read twice")
    work, price = _work(chosen), _price(chosen, config)
    place = chosen["work"] or file.with_name(f"{file.name}.audit")
    try:
        reading = read_as(file, chosen["field"])
        with open_work_folder(place, anew=chosen["anew"]) as folder:
            done = _audited(file, reading, folder, chosen)
            report = _report(done, _saving(done, work, price, chosen))
            if write is not None:
                report["written"] = write(done)
            _keep(report, place)
    except NoUsableRows as fault:
        click.echo(str(fault), err=True)
        return Exit.CANNOT_TELL
    _show(report, place, as_json)
    return Exit.DONE


def _audited(file: Path, reading: FieldSelection, folder: WorkFolder, chosen: dict[str, Any]) -> Audit:
    from gpuwatch.app.dataset.audit import audit_file
    from gpuwatch.cli.output import progress

    rules, models = _rules(chosen), _models(chosen)
    with progress() as report:
        return audit_file(file, reading, rules, models, folder, report)


def _rules(chosen: dict[str, Any]) -> RemovalRules:
    from gpuwatch.app.dataset.audit import RemovalRules

    least, most = chosen["min_perplexity"], chosen["max_perplexity"]
    if (least or most) and chosen["perplexity_model"] is None:
        raise click.UsageError("a limit of perplexity wants --perplexity-model.")
    if least and most and least > most:
        raise click.UsageError("--min-perplexity is above --max-perplexity.")
    return RemovalRules(
        near=chosen["near"],
        least_perplexity=least,
        most_perplexity=most,
        per_cluster=chosen["per_cluster"],
        clusters=chosen["clusters"],
        seed=chosen["seed"],
    )


def _models(chosen: dict[str, Any]) -> AuditModels:
    from gpuwatch.app.dataset.audit import AuditModels
    from gpuwatch.app.dataset.embedding import open_embedder
    from gpuwatch.app.dataset.onnx_models import TokenCounter, find_model
    from gpuwatch.app.dataset.perplexity import CausalModel

    threads = chosen["threads"] or _processors()
    named, causal = chosen["tokenizer"], chosen["perplexity_model"]
    return AuditModels(
        embedder=open_embedder(chosen["model"], chosen["backend"], threads),
        counter=TokenCounter(named or find_model(chosen["model"]).tokenizer, estimate=named is None),
        causal=None if causal is None else CausalModel(causal, threads),
    )


def _processors() -> int:
    """Those that this process may use, where the system says it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _work(chosen: dict[str, Any]) -> TrainingWork:
    from gpuwatch.app.dataset.saving import TrainingWork

    names = ("gpu_hours", "tokens_per_s", "params", "lora", "utilisation", "epochs")
    if chosen["params"] is not None and chosen["gpu"] is None:
        raise click.UsageError("--params wants the GPU, too, such as --gpu H100.")
    return TrainingWork(**{name: chosen[name] for name in names})


def _price(chosen: dict[str, Any], config: str | None) -> TrainingPrice | None:
    """As it was said, else of the cheapest offer now."""
    from gpuwatch.app.dataset.saving import TrainingPrice
    from gpuwatch.app.past_prices import gpu_names_of

    gpu = chosen["gpu"]
    gpus = gpu_names_of(gpu) if gpu else ()
    if chosen["poll"] and gpu is None:
        raise click.UsageError("--poll wants the GPU, too, such as --gpu H100.")
    if chosen["price"] is not None:
        return TrainingPrice(usd_gpu_hour=chosen["price"], source="as said", gpu=next(iter(gpus), None))
    if gpu is None:
        return None
    from gpuwatch.app.gpu_price import polled_price, stored_price
    from gpuwatch.bootstrap import real_now
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.errors import StoreError

    loaded = load_settings(config)
    try:
        found = polled_price(loaded, gpu) if chosen["poll"] else stored_price(loaded, gpus, real_now())
    except StoreError as fault:
        click.echo(f"no price out of the store: {fault}", err=True)
        return None
    if found is None:
        known = "no provider offers it" if chosen["poll"] else "no offer of the last three hours is in the store"
        click.echo(
            f"no price of {gpu}: {known}; --price says one" + ("" if chosen["poll"] else ", --poll asks"), err=True
        )
    return found


def _saving(done: Audit, work: TrainingWork, price: TrainingPrice | None, chosen: dict[str, Any]) -> TrainingSaving:
    from gpuwatch.app.dataset.report import tokens_of
    from gpuwatch.app.dataset.saving import training_saving
    from gpuwatch.app.past_prices import gpu_names_of

    gpu = price.gpu if price else None
    if gpu is None and chosen["gpu"]:
        gpu = gpu_names_of(chosen["gpu"])[0]
    return training_saving(*tokens_of(done), work, gpu, price)


def _report(done: Audit, saved: TrainingSaving) -> dict[str, Any]:
    from gpuwatch.app.dataset.report import examples_of, report_of

    return report_of(done, saved, examples_of(done))


def _keep(report: dict[str, Any], place: Path) -> None:
    """The report, in files."""
    import msgspec

    from gpuwatch.app.dataset.rendering import lines_for, page_of

    (place / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    (place / "report.html").write_text(page_of(report, lines_for(report)), encoding="utf-8")


def _show(report: dict[str, Any], place: Path, as_json: bool) -> None:
    from gpuwatch.app.dataset.rendering import lines_for, size
    from gpuwatch.cli.output import json_out
    from gpuwatch.domain.market.text import clean

    lines = [clean(line, 1_000) for line in lines_for(report)]
    if as_json:
        if report["clusters"]["verdict"] == "crowded":
            click.echo(lines[0], err=True)
        json_out(report)
        return
    for line in lines:
        click.echo(line)
    if written := report.get("written"):
        unread = f", and {written['unread_lines']:,} lines that are no rows" if written["unread_lines"] else ""
        click.echo(f"{clean(written['file'], 1_000)}: {written['rows']:,} rows{unread}, {size(written['bytes'])}")
    click.echo(f"Report: {clean(str(place / 'report.html'), 1_000)}, report.json beside it")
