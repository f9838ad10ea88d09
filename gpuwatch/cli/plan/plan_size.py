"""`gpuwatch plan size`: a model's memory by part, and the cards that hold it, and `plan models`: the known models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.app.history.svg_charts import range_chart
from gpuwatch.app.plan.plan_request import SIZE_OPTIONS, refuse_ignored_workload, request_of
from gpuwatch.app.plan.plan_size import (
    fitting_cards_of,
    listed_models,
    listed_models_json,
    memory_needed,
    plan_size_json,
)
from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command, refuse_given, verbose_option, wants_method
from gpuwatch.cli.html import html_option, recorded_page, refuse_html_with, save_page
from gpuwatch.cli.options import (
    POSITIVE,
    config_option,
    json_option,
)
from gpuwatch.cli.output import Recording, echo, json_out, note, record_output
from gpuwatch.cli.plan.plan import KeyCommand, key_options, note_model, put_watch, refuse_watch_with, watch_options
from gpuwatch.cli.terminal_tables import left, right, table, text
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.plan.architectures.language_models import ListedModel, model_index
from gpuwatch.domain.plan.memory_need import GB, MEMORY_METHOD_TEXT, published_weights
from gpuwatch.domain.plan.network_speed import speed_lines
from gpuwatch.domain.plan.plan_schema import SizeRequest
from gpuwatch.domain.plan.roofline import BYTES_PER_WEIGHT, Precision, TrainingMethod
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuwatch.domain.plan.memory_need import CardFit, MemoryNeed
    from gpuwatch.domain.plan.workload import Workload

_SHOWN = 15
_SPEEDS = 3  # cards whose speed is named
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


@click.command(
    cls=KeyCommand,
    keys=SizeRequest,
    options=SIZE_OPTIONS,
    example="articles-size.toml",
    examples=(
        "gpuwatch plan size --params 70B --method qlora",
        "gpuwatch plan size --params 8B --method full --optimizer adamw8bit --context 8192",
        "gpuwatch plan size --params 70B --method inference --precision fp8 --batch 16",
    ),
)
@key_options(SizeRequest, SIZE_OPTIONS)
@click.option("--all", "show_all", is_flag=True, help="List every card that fits.")
@watch_options("Print the [[watch]] for the smallest number of cards, instead of the table.")
@click.option("--max-price", type=POSITIVE, default=None, metavar="USD", help="With --watch: USD per GPU-hour.")
@html_option
@verbose_option
@json_option
@config_option
def size(
    values: dict[str, Any],
    show_all: bool,
    watch: str | None,
    write: bool,
    max_price: float | None,
    html: Path | None,
    as_json: bool,
    config: str | None,
) -> int:
    """Compute the GPU memory that a model needs, and the cards that hold it."""
    request = request_of(SizeRequest, values, SIZE_OPTIONS)
    work = request.workload()
    if work is None:
        raise UsageError("the model is missing: use --model 70B, a model's name, or its config.json")
    refuse_ignored_workload(request, SIZE_OPTIONS)
    note_model(request)
    _refuse_ignored_watch(watch, write, max_price, as_json=as_json)
    refuse_html_with(html, as_data=as_json or watch is not None)
    needed = memory_needed(work)
    card_fits = fitting_cards_of(needed, request)
    if watch is not None:
        from gpuwatch.app.plan.plan_watch import size_watch

        put_watch(watch, size_watch(watch, needed, card_fits, max_price or 0.0), config, write=write)
    elif as_json:
        json_out(plan_size_json(needed, card_fits, request.fill))
    else:
        with record_output() as recording:
            _print(needed, card_fits, len(card_fits) if show_all else _SHOWN, request)
        if html:
            save_page(html, _page(needed, card_fits, recording))
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


def _print(needed: MemoryNeed, card_fits: Sequence[CardFit], limit: int, request: SizeRequest) -> None:
    work, rows = needed.workload, [(part.name, f"{part.gb:,.2f}", part.how) for part in needed.parts]
    rows.append(("total", f"{needed.counted_gb:,.2f}", "plus 1 GB of overhead on each card"))
    if needed.measured is not None:
        rows.append(("measured", f"{needed.measured.gb:,.2f}", f"{needed.measured.how}; used instead of the total"))
    table(_PARTS, rows, title=_title(work))
    echo("")
    if card_fits:
        table(
            _CARDS,
            [_card_cells(fit) for fit in card_fits[:limit]],
            title=f"Cards that hold it, each filled to at most {request.fill:g} %",
        )
    else:
        echo(f"{request.max_cards} or fewer cards of any model do not hold it.")
    if len(card_fits) > limit:
        echo(f"… and {len(card_fits) - limit} more (--all)")
    for line in speed_lines(work, card_fits[:_SPEEDS]):
        note(line)
    if work.model.like:
        note(f"model shape taken from {work.model.like}; use --shape FILE for your model's config.json")
    if wants_method():
        note(MEMORY_METHOD_TEXT)
    held = Precision.INT4 if work.method is TrainingMethod.QLORA else work.precision
    published = published_weights(work)
    gb = work.model.params * BYTES_PER_WEIGHT[held] / GB if published is None else needed.parts[0].gb
    weights = f"{gb:,.1f} GB"
    note(f"the sources count weights only: {weights}; the other parts need memory as well")


def _title(work: Workload) -> str:
    if work.model.network is not None:
        name = f"{work.model.name} ({work.model.network.kind})"
        return f"{name}, {work.method.value}, {work.precision.value}, batch {work.batch}"
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


@click.command(cls=Command, examples=("gpuwatch plan models", "gpuwatch plan models qwen3"))
@click.argument("named", required=False, metavar="[TEXT]")
@json_option
def models(named: str | None, as_json: bool) -> int:
    """List the models that `--model` knows by name, optionally filtered by a text."""
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
