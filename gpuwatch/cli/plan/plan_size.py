"""`gpuwatch plan size`: a model's memory by part, and the cards that hold it, and `plan models`: the known models."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from gpuwatch.app.history.svg_charts import range_chart
from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command, refuse_given
from gpuwatch.cli.html import html_option, recorded_page, refuse_html_with, save_page
from gpuwatch.cli.options import (
    FILE,
    Between,
    Function,
    as_struct,
    config_option,
    gpu_option,
    json_option,
    value_option,
)
from gpuwatch.cli.output import Recording, echo, json_out, note, record_output
from gpuwatch.cli.plan.plan import put_watch, refuse_watch_with, watch_options
from gpuwatch.cli.terminal_tables import left, right, table, text
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.plan.architectures.language_models import ListedModel, model_index
from gpuwatch.domain.plan.memory_need import (
    GB,
    MEMORY_METHOD_TEXT,
    Precision,
    TrainingMethod,
    WorkloadRequest,
    published_weights,
    source_gb,
)
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuwatch.app.plan.plan_size import SourceSize
    from gpuwatch.domain.plan.memory_need import CardFit, MemoryNeed, Workload

_SHOWN = 15
_NOT_IN_SEED = (
    "method", "optimizer", "context", "recompute", "fused_attention", "master", "rank", "targets", "offload",
    "micro_batch", "show_all", "watch", "html",
)  # fmt: skip
_PARTS = (left("part"), right("GB"), text("computed as"))
_CARDS = (
    left("cards"),
    right("GiB each"),
    right("filled"),
    right("at least", drop=3),
    right("machines", drop=4),
    text("but", drop=2),
)
_MODEL_COLUMNS = (
    left("model"),
    right("params"),
    right("active", drop=1),
    right("layers", drop=3),
    right("hidden", drop=4),
    right("KV kB/token", drop=2),
    left("from", drop=5),
)


def workload_options(*, needed: bool) -> Callable[[Function], Function]:
    """The options of a workload; they arrive as `workload: WorkloadRequest`. The model option is always `--model`."""
    flag = "--params" if needed else "--size-of"
    help_text = 'Parameters ("70B"), a model ("gpt-oss-120b", see `plan models`), or its config.json.'
    model = click.option("--model", flag, "params", metavar="N|MODEL|FILE", help=help_text)
    return as_struct("workload", WorkloadRequest, model, *_WORKLOAD_OPTIONS)


_WORKLOAD_OPTIONS = (
    value_option("--shape", FILE, "config.json of the model, for its exact shape."),
    value_option(
        "--method",
        click.Choice(["full", "lora", "qlora", "inference"]),
        "Training method, or inference. Default: full.",
    ),
    value_option(
        "--precision",
        click.Choice(["bf16", "fp16", "fp32", "fp8", "int8", "int4"]),
        "Data type of a weight. Default: as the config.json states its quantisation, else bf16.",
    ),
    value_option(
        "--optimizer",
        click.Choice(["adamw", "adamw8bit", "lion", "sgd-momentum", "sgd", "adafactor"]),
        "Optimizer used for training.",
        "adamw",
    ),
    value_option("--batch", click.IntRange(1, 1_000_000), "Sequences per batch.", 1),
    value_option("--context", click.IntRange(1, 100_000_000), "Tokens per sequence.", 4096),
    click.option("--recompute/--keep-activations", default=True, help="Gradient checkpointing. Default: --recompute."),
    click.option(
        "--fused/--plain-attention", "fused_attention", default=True, help="FlashAttention. Default: --fused."
    ),
    click.option("--master/--no-master", default=True, help="Keep a 32-bit copy of 16-bit weights. Default: --master."),
    value_option("--rank", click.IntRange(1, 4096), "Rank of LoRA's matrices.", 16),
    value_option(
        "--targets",
        click.Choice(["all", "qv"]),
        "Layers with LoRA adapters: all linear layers, or query and value.",
        "all",
    ),
    click.option("--offload", is_flag=True, help="Keep optimizer states, or frozen weights, in CPU memory."),
    value_option("--micro-batch", click.IntRange(1, 1_000_000), "Sequences per pass, if a batch takes several passes."),
)
_TRAINING = ("optimizer", "recompute", "master", "offload", "micro_batch")
_ADAPTERS = ("rank", "targets")


def refuse_ignored_workload(workload: WorkloadRequest, model: str) -> None:
    """Reject workload options that would have no effect. Raises UsageError.

    Args:
        model: the options that set a model.
    """
    if workload.params is None and workload.shape is None:
        names = ("method", "precision", "batch", "context", "fused_attention", *_TRAINING, *_ADAPTERS)
        refuse_given(f"requires a model: add {model}", *names)
    if workload.method == "inference":
        refuse_given("applies to training only", *_TRAINING, "fused_attention")
    if workload.method not in {"lora", "qlora"}:
        refuse_given("requires --method lora or qlora", *_ADAPTERS)
    if workload.method in {"lora", "qlora"}:
        refuse_given("requires --method full: adapters have no such copy", "master")


def note_model(workload: WorkloadRequest) -> None:
    """Print what is not understood of a model's own config.json, and its quantisation."""
    from gpuwatch.app.plan.plan_size import has_model, published_text, workload_of

    if not has_model(workload):
        return
    with suppress(UsageError):  # the command itself reports it
        work = workload_of(workload)
        for line in (*work.model.remarks, *published_text(work)):
            note(clean(line, 1_000))


@click.command(
    cls=Command,
    examples=(
        "gpuwatch plan size --params 70B --method qlora",
        "gpuwatch plan size --params 8B --method full --optimizer adamw8bit --context 8192",
        "gpuwatch plan size --params 70B --method inference --precision fp8 --batch 16",
    ),
)
@workload_options(needed=True)
@gpu_option("--gpu", "Only this GPU; may be repeated.", multiple=True)
@value_option("--max-cards", click.IntRange(1, 4096), "Largest number of cards.", 64)
@click.option("--all", "show_all", is_flag=True, help="List every card that fits.")
@click.option(
    "--seed",
    is_flag=True,
    help="Calculate as the sources do: weights (4 bytes by default) and input only, cards by nominal GB.",
)
@click.option("--input-gb", type=Between(min=0), default=0.0, help="With --seed: GB of one input in the batch.")
@watch_options("Print the [[watch]] for the smallest number of cards, instead of the table.")
@click.option(
    "--max-price",
    type=Between(min=0, min_open=True),
    default=None,
    metavar="USD",
    help="With --watch: USD per GPU-hour.",
)
@html_option
@json_option
@config_option
def size(
    gpu: tuple[str, ...],
    max_cards: int,
    show_all: bool,
    seed: bool,
    input_gb: float,
    watch: str | None,
    write: bool,
    max_price: float | None,
    html: Path | None,
    as_json: bool,
    config: str | None,
    workload: WorkloadRequest,
) -> int:
    """Compute the GPU memory that a model needs, and the cards that hold it."""
    from gpuwatch.app.plan.plan_size import fitting_cards_of, memory_needed, plan_size_json

    refuse_ignored_workload(workload, "--params or --shape")
    note_model(workload)
    _refuse_ignored_watch(watch, write, max_price, as_json=as_json)
    refuse_html_with(html, as_data=as_json or watch is not None)
    if seed:
        return _size_as_sources(workload, gpu, max_cards, input_gb, as_json)
    if input_gb:
        raise UsageError("--input-gb requires --seed: without it, activations are computed from --context")
    needed = memory_needed(workload)
    card_fits = fitting_cards_of(needed, gpu, max_cards)
    if watch is not None:
        from gpuwatch.app.plan.plan_watch import size_watch

        put_watch(watch, size_watch(watch, needed, card_fits, max_price or 0.0), config, write=write)
    elif as_json:
        json_out(plan_size_json(needed, card_fits))
    else:
        with record_output() as recording:
            _print(needed, card_fits, len(card_fits) if show_all else _SHOWN, max_cards)
        if html:
            save_page(html, _page(needed, card_fits, recording))
    return Exit.DONE


def _size_as_sources(
    workload: WorkloadRequest, gpu: tuple[str, ...], max_cards: int, input_gb: float, as_json: bool
) -> int:
    from gpuwatch.app.plan.plan_size import plan_size_sources_json, size_as_sources

    refuse_given("cannot be combined with --seed: the sources count weights and input only", *_NOT_IN_SEED)
    if workload.precision is None:
        workload = replace(workload, precision="fp32")  # the sources' formula uses four bytes per parameter
    printed = size_as_sources(workload, gpu, max_cards, input_gb)
    if as_json:
        json_out(plan_size_sources_json(printed))
    else:
        _print_sources(printed, input_gb)
    return Exit.DONE


def _refuse_ignored_watch(watch: str | None, write: bool, max_price: float | None, *, as_json: bool) -> None:
    refuse_watch_with(watch, write=write, as_json=as_json)
    if watch is None:
        refuse_given("requires --watch NAME", "max_price")
    elif max_price is None:
        raise UsageError("--watch requires --max-price USD per GPU-hour; plan fit --watch uses the market price")
    if not write:
        refuse_given("requires --write", "config")


def _page(needed: MemoryNeed, card_fits: Sequence[CardFit], recording: Recording) -> str:
    """The memory by part, the first cards that hold it, and everything that was printed."""
    bars = [(part.name, part.gb, part.gb) for part in needed.parts]
    first = f"; fewest cards: {card_fits[0].cards}× {card_fits[0].gpu.name}" if card_fits else "; no card holds it"
    verdict = [f"{needed.gb:,.2f} GB in total{first}"]
    return recorded_page(_title(needed.workload), verdict, [range_chart("GB by part", bars)], recording)


def _print(needed: MemoryNeed, card_fits: Sequence[CardFit], limit: int, max_cards: int) -> None:
    work, rows = needed.workload, [(part.name, f"{part.gb:,.2f}", part.how) for part in needed.parts]
    rows.append(("total", f"{needed.gb:,.2f}", "plus 1 GB of overhead on each card"))
    table(_PARTS, rows, title=_title(work))
    echo("")
    if card_fits:
        table(
            _CARDS,
            [_card_cells(fit) for fit in card_fits[:limit]],
            title="Cards that hold it, each filled to at most 90 %",
        )
    else:
        echo(f"{max_cards} or fewer cards of any model do not hold it.")
    if len(card_fits) > limit:
        echo(f"… and {len(card_fits) - limit} more (--all)")
    if work.model.like:
        note(f"model shape taken from {work.model.like}; use --shape FILE for your model's config.json")
    note(MEMORY_METHOD_TEXT)
    held = Precision.INT4 if work.method is TrainingMethod.QLORA else work.precision
    published = published_weights(work)
    gb = source_gb(work.model.params, held) if published is None else needed.parts[0].gb
    weights = f"{gb:,.1f} GB"
    note(f"the sources count weights only (--seed): {weights}; the other parts need memory as well")


def _title(work: Workload) -> str:
    published = published_weights(work)
    weights = published.method if published is not None and published.bits is not None else work.precision.value
    workload = f"{work.model.name}, {work.method.value}, {weights}"
    rest = f", {work.optimizer}" if work.trains else ""
    return f"{workload}{rest}, batch {work.batch} × {work.context:,} tokens"


def _card_cells(fit: CardFit) -> tuple[str, ...]:
    return (
        f"{fit.cards}× {fit.gpu.name}",
        f"{fit.gpu.memory_gib:g}",
        f"{fit.filled * 100:.0f} %",
        str(fit.least),
        str(-(-fit.cards // 8)),
        ", ".join(fit.against) or "–",
    )


def _print_sources(source_size: SourceSize, input_gb: float) -> None:
    work = source_size.workload
    rows = [
        ("weights", f"{source_size.weights_gb:,.2f}", f"{work.model.params / GB:g}B × {work.precision.value}"),
        ("input", f"{source_size.total_gb - source_size.weights_gb:,.2f}", f"{work.batch} × {input_gb:g} GB"),
        ("total", f"{source_size.total_gb:,.2f}", "as the sources calculate"),
    ]
    table(_PARTS, rows)
    click.echo()
    card_rows = [(f"{cards}× {name}", f"{memory:g}") for cards, memory, name in source_size.fits[:_SHOWN]]
    table((left("cards"), right("GiB each")), card_rows)
    note("not counted with --seed: gradients, optimizer, activations, KV cache, the card's own overhead")


@click.command(cls=Command, examples=("gpuwatch plan models", "gpuwatch plan models qwen3"))
@click.argument("named", required=False, metavar="[TEXT]")
@json_option
def models(named: str | None, as_json: bool) -> int:
    """List the models that `--model` knows by name, optionally filtered by a text."""
    from gpuwatch.app.plan.plan_size import listed_models, listed_models_json

    models = listed_models(named)
    if as_json:
        json_out(listed_models_json(models))
        return Exit.DONE
    index = model_index()
    table(
        _MODEL_COLUMNS,
        [_model_cells(model) for model in models],
        title=f"{len(models)} of {count_text(len(index.models), 'model')}, {index.date}",
    )
    note("params are computed from the shape; KV cache at 2 bytes per value. For any other model: --model config.json")
    return Exit.DONE


def _model_cells(model: ListedModel) -> tuple[str, ...]:
    shape = model.shape
    active = "–" if shape.experts == 1 else f"{shape.active_params / 1e9:.1f}B"
    cache_kb = 2 * shape.cached_values / 1e3
    params = f"{shape.params / 1e9:.1f}B"
    return model.short_name, params, active, str(shape.layers), f"{shape.hidden:,}", f"{cache_kb:,.0f}", model.source
