"""`gpuwatch plan size`: the memory that a model wants, by parts, and the cards that hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command
from gpuwatch.cli.options import Between, completes, json_option
from gpuwatch.cli.plan_options import WorkloadOptions, workload_of, workload_options
from gpuwatch.cli.tables import left, right, text

if TYPE_CHECKING:
    from gpuwatch.domain.planning.memory_need import CardFit, MemoryNeed, Workload

_SHOWN = 15
_COLUMNS = (
    left("cards"),
    right("GB each"),
    right("filled"),
    right("at least", drop=3),
    right("machines", drop=4),
    text("but", drop=2),
)


@click.command(
    cls=Command,
    examples=(
        "gpuwatch plan size --params 70B --method qlora",
        "gpuwatch plan size --params 8B --method full --optimizer adamw8bit --context 8192",
        "gpuwatch plan size --params 70B --method inference --precision fp8 --batch 16",
    ),
)
@workload_options(needed=True)
@click.option(
    "--gpu", multiple=True, metavar="GPU", help="Only these cards; may be repeated.", shell_complete=completes("gpus")
)
@click.option("--max-cards", type=click.IntRange(1, 4096), default=64, show_default=True, help="No more cards.")
@click.option("--all", "show_all", is_flag=True, help="Every card that holds it.")
@click.option(
    "--seed",
    is_flag=True,
    help="As the sources reckon: weights (4 bytes by default) and input alone, cards by printed GB.",
)
@click.option("--input-gb", type=Between(min=0), default=0.0, help="With --seed: GB of one input of the batch.")
@json_option
def size(
    gpu: tuple[str, ...], max_cards: int, show_all: bool, seed: bool, input_gb: float, as_json: bool, **given: Any
) -> int:
    """How much GPU memory a model wants, and which cards hold it."""
    from gpuwatch.app.past_prices import gpu_names_of
    from gpuwatch.app.plan_size import plan_size_json
    from gpuwatch.domain.planning.memory_need import memory_need
    from gpuwatch.errors import UsageError

    chosen = WorkloadOptions(**given)
    work = workload_of(chosen)
    names = [name for text in gpu for name in gpu_names_of(text)] or None
    if seed:
        if not _is_said("precision"):  # their formula's four bytes a parameter
            work = workload_of(chosen._replace(precision="fp32"))
        return _seed(work, names, max_cards, input_gb, as_json)
    if input_gb:
        raise UsageError("--input-gb goes with --seed: without it, activations are reckoned from --context")
    try:
        needed = memory_need(work)
    except ValueError as fault:
        raise UsageError(str(fault)) from fault
    from gpuwatch.domain.planning.memory_need import fitting_cards

    found = fitting_cards(needed, max_cards, names)
    if as_json:
        from gpuwatch.cli.output import json_out

        json_out(plan_size_json(needed, found))
    else:
        _print(needed, found, None if show_all else _SHOWN, max_cards)
    return Exit.DONE


def _print(needed: MemoryNeed, found: list[CardFit], limit: int | None, max_cards: int) -> None:
    from gpuwatch.cli.output import note
    from gpuwatch.cli.tables import table
    from gpuwatch.domain.planning.memory_need import METHOD_TEXT

    work, rows = needed.workload, [(part.name, f"{part.gb:,.2f}", part.how) for part in needed.parts]
    rows.append(("in all", f"{needed.gb:,.2f}", "and 1 GB of overhead on each card"))
    table((left("part"), right("GB"), text("computed as")), rows, title=_title(work))
    click.echo()
    if not found:
        click.echo(f"No card holds it with {max_cards} or fewer.")
    else:
        table(_COLUMNS, [_cells(fit) for fit in found[:limit]], title="Cards that hold it, 90 % of each filled at most")
        if limit is not None and len(found) > limit:
            click.echo(f"… and {len(found) - limit} more (--all)")
    if work.model.like:
        note(f"the shape of a model of this size is taken from {work.model.like}; --shape FILE: its own config.json")
    note(METHOD_TEXT)
    note(_differs(work))


def _title(work: Workload) -> str:
    what = f"{work.model.name}, {work.method.value}, {work.precision.value}"
    rest = f", {work.optimizer}" if work.trains else ""
    return f"{what}{rest}, batch {work.batch} × {work.context:,} tokens"


def _cells(fit: CardFit) -> tuple[str, ...]:
    from gpuwatch.domain.planning.memory_need import GIB_GB

    return (
        f"{fit.cards}× {fit.gpu.name}",
        f"{fit.gpu.memory_gib * GIB_GB:.1f}",
        f"{fit.filled * 100:.0f} %",
        str(fit.least),
        str(-(-fit.cards // 8)),
        ", ".join(fit.against) or "–",
    )


def _differs(work: Workload) -> str:
    """Where and why this is not what the sources print."""
    from gpuwatch.domain.planning.memory_need import Precision, TrainingMethod, source_gb

    held = Precision.INT4 if work.method is TrainingMethod.QLORA else work.precision
    seed = source_gb(work.model.params, held)
    return f"the sources count weights alone (--seed): {seed:,.1f} GB; the other parts lie in the same memory"


def _is_said(option: str) -> bool:
    """Was an option written, or is it what it is by default?"""
    source = click.get_current_context().get_parameter_source(option)
    return source is not click.core.ParameterSource.DEFAULT


def _seed(work: Workload, names: list[str] | None, max_cards: int, input_gb: float, as_json: bool) -> int:
    from gpuwatch.app.plan_size import plan_size_sources_json
    from gpuwatch.cli.output import json_out, note
    from gpuwatch.cli.tables import table
    from gpuwatch.domain.market.gpu_specs import gpu_specs
    from gpuwatch.domain.planning.memory_need import GB, source_cards, source_gb

    weights = source_gb(work.model.params, work.precision)
    total = source_gb(work.model.params, work.precision, work.batch, input_gb)
    specs = [one for one in gpu_specs().values() if names is None or one.name in names]
    found = sorted((source_cards(total, one.memory_gib), one.memory_gib, one.name) for one in specs if one.memory_gib)
    found = [one for one in found if one[0] <= max_cards]
    if as_json:
        json_out(plan_size_sources_json(weights, total, found))
        return Exit.DONE
    params = f"{work.model.params / GB:g}B × {work.precision.value}"
    rows = [
        ("weights", f"{weights:,.2f}", params),
        ("input", f"{total - weights:,.2f}", f"{work.batch} × {input_gb:g} GB"),
    ]
    rows.append(("in all", f"{total:,.2f}", "as the sources reckon"))
    table((left("part"), right("GB"), text("computed as")), rows)
    click.echo()
    shown = [(f"{cards}× {name}", f"{memory:g}") for cards, memory, name in found[:_SHOWN]]
    table((left("cards"), right("GB each, as printed")), shown)
    note(
        "left out: gradients, optimizer, activations, KV cache, what a card keeps for itself; they count without --seed"
    )
    return Exit.DONE
