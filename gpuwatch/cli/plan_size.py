"""`gpuwatch plan size`: the memory that a model wants, by parts, and the cards that hold it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command
from gpuwatch.cli.options import Between, Function, as_struct, completes, json_option
from gpuwatch.cli.tables import left, right, text
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.planning.language_models import LanguageModel
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
_MOST_BYTES = 1_000_000  # of a config.json


class WorkloadOptions(NamedTuple):
    """What `workload_options` gives."""

    params: str | None
    shape: Path | None
    method: str
    precision: str
    optimizer: str
    batch: int
    context: int
    recompute: bool
    fused: bool
    master: bool
    rank: int
    targets: str


def workload_options(*, needed: bool) -> Callable[[Function], Function]:
    """The options of a workload; they arrive as `workload: WorkloadOptions`. The model is `--params` or `--size-of`."""
    flag = "--params" if needed else "--size-of"
    model = click.option(flag, "params", metavar="N|MODEL", help='Parameters ("70B") or a model ("Llama 3.1 8B").')
    return as_struct("workload", WorkloadOptions, model, *_WORKLOAD_OPTIONS)


_WORKLOAD_OPTIONS = (
    click.option(
        "--shape",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="config.json of the model, for its exact shape.",
    ),
    click.option(
        "--method",
        type=click.Choice(["full", "lora", "qlora", "inference"]),
        default="full",
        show_default=True,
        help="Training method, or inference.",
    ),
    click.option(
        "--precision",
        type=click.Choice(["bf16", "fp16", "fp32", "fp8", "int8", "int4"]),
        default="bf16",
        show_default=True,
        help="Data type of a weight.",
    ),
    click.option(
        "--optimizer",
        type=click.Choice(["adamw", "adamw8bit", "lion", "sgd-momentum", "sgd", "adafactor"]),
        default="adamw",
        show_default=True,
        help="Optimizer used for training.",
    ),
    click.option(
        "--batch", type=click.IntRange(1, 1_000_000), default=1, show_default=True, help="Sequences per batch."
    ),
    click.option(
        "--context", type=click.IntRange(1, 100_000_000), default=4096, show_default=True, help="Tokens per sequence."
    ),
    click.option("--recompute/--keep-activations", default=True, help="Gradient checkpointing. Default: --recompute."),
    click.option("--fused/--plain-attention", default=True, help="FlashAttention. Default: --fused."),
    click.option("--master/--no-master", default=True, help="Keep a 32-bit copy of 16-bit weights. Default: --master."),
    click.option(
        "--rank", type=click.IntRange(1, 4096), default=16, show_default=True, help="Rank of LoRA's matrices."
    ),
    click.option(
        "--targets",
        type=click.Choice(["all", "qv"]),
        default="all",
        show_default=True,
        help="Layers with LoRA adapters: all linear layers, or query and value.",
    ),
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
    "--gpu", multiple=True, metavar="GPU", help="Only this GPU; may be repeated.", shell_complete=completes("gpus")
)
@click.option(
    "--max-cards", type=click.IntRange(1, 4096), default=64, show_default=True, help="Largest number of cards."
)
@click.option("--all", "show_all", is_flag=True, help="List every card that fits.")
@click.option(
    "--seed",
    is_flag=True,
    help="Compute as the sources do: weights (4 bytes by default) and input only, cards by nominal GB.",
)
@click.option("--input-gb", type=Between(min=0), default=0.0, help="With --seed: GB of one input in the batch.")
@json_option
def size(
    gpu: tuple[str, ...],
    max_cards: int,
    show_all: bool,
    seed: bool,
    input_gb: float,
    as_json: bool,
    workload: WorkloadOptions,
) -> int:
    """Compute the GPU memory that a model needs, and which cards hold it."""
    from gpuwatch.app.past_prices import gpu_names_of
    from gpuwatch.app.plan_size import plan_size_json
    from gpuwatch.domain.planning.memory_need import memory_need

    work = workload_of(workload)
    names = [name for text in gpu for name in gpu_names_of(text)] or None
    if seed:
        if not _is_said("precision"):  # their formula's four bytes a parameter
            work = workload_of(workload._replace(precision="fp32"))
        return _seed(work, names, max_cards, input_gb, as_json)
    if input_gb:
        raise UsageError("--input-gb goes with --seed: without it, activations are computed from --context")
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
    rows.append(("in all", f"{total:,.2f}", "as the sources compute it"))
    table((left("part"), right("GB"), text("computed as")), rows)
    click.echo()
    shown = [(f"{cards}× {name}", f"{memory:g}") for cards, memory, name in found[:_SHOWN]]
    table((left("cards"), right("GB each, as printed")), shown)
    note(
        "left out: gradients, optimizer, activations, KV cache, what a card keeps for itself; they count without --seed"
    )
    return Exit.DONE


# --- the workload -----------------------------------------------------------------------------------------------------


def workload_of(chosen: WorkloadOptions) -> Workload:
    """What is to be held. Raises UsageError."""
    from gpuwatch.domain.planning.memory_need import Precision, TrainingMethod, Workload

    return Workload(
        model=_model(chosen),
        method=TrainingMethod(chosen.method),
        precision=Precision(chosen.precision),
        optimizer=chosen.optimizer,
        batch=chosen.batch,
        context=chosen.context,
        recompute=chosen.recompute,
        fused_attention=chosen.fused,
        master=chosen.master,
        rank=chosen.rank,
        targets=chosen.targets,
    )


def _model(chosen: WorkloadOptions) -> LanguageModel:
    from gpuwatch.domain.planning.language_models import model_of

    if chosen.shape is None:
        if chosen.params is None:
            raise UsageError("which model? Use --params 70B, a model's name, or --shape config.json")
        try:
            return model_of(chosen.params)
        except ValueError as fault:
            raise UsageError(f"--params {chosen.params!r}: {fault}") from fault
    return _shaped(chosen.shape, chosen.params)


def _shaped(path: Path, params: str | None) -> LanguageModel:
    import json

    import msgspec

    from gpuwatch.domain.planning.figures import parse_figure
    from gpuwatch.domain.planning.language_models import model_from_config

    try:
        text = path.read_bytes()
        fields = json.loads(text) if len(text) <= _MOST_BYTES else None
        if not isinstance(fields, dict):
            raise UsageError(f"{path}: not the config.json of a model")
        model = model_from_config(fields, path.parent.name or path.name)
        return model if params is None else msgspec.structs.replace(model, params=parse_figure(params))
    except OSError as fault:
        raise UsageError(f"{path}: {fault.strerror}") from fault
    except (ValueError, RecursionError) as fault:
        raise UsageError(f"{path}: {fault}") from fault
