"""Options that say which model is worked on, and how; shared by `plan size` and `plan job`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.planning.language_models import LanguageModel
    from gpuwatch.domain.planning.memory_need import Workload

Command = Callable[..., Any]
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


def workload_options(*, needed: bool) -> Callable[[Command], Command]:
    """The options of a workload, as `Chosen`'s fields; the model is `--params`, or for a job `--size-of`."""
    flag = "--params" if needed else "--size-of"

    def added(command: Command) -> Command:
        for option in reversed(_OPTIONS):
            command = option(command)
        model = click.option(flag, "params", metavar="N|MODEL", help='Parameters ("70B"), or a model ("Llama 3.1 8B").')
        return model(command)

    return added


_OPTIONS = (
    click.option(
        "--shape",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="The model's own config.json, for its exact shape.",
    ),
    click.option(
        "--method",
        type=click.Choice(["full", "lora", "qlora", "inference"]),
        default="full",
        show_default=True,
        help="What is done with it.",
    ),
    click.option(
        "--precision",
        type=click.Choice(["bf16", "fp16", "fp32", "fp8", "int8", "int4"]),
        default="bf16",
        show_default=True,
        help="How a weight is held.",
    ),
    click.option(
        "--optimizer",
        type=click.Choice(["adamw", "adamw8bit", "lion", "sgd-momentum", "sgd", "adafactor"]),
        default="adamw",
        show_default=True,
        help="For training.",
    ),
    click.option("--batch", type=click.IntRange(1, 1_000_000), default=1, show_default=True, help="Sequences at once."),
    click.option(
        "--context", type=click.IntRange(1, 100_000_000), default=4096, show_default=True, help="Tokens of a sequence."
    ),
    click.option("--recompute/--keep-activations", default=True, help="Gradient checkpointing; the first by default."),
    click.option("--fused/--plain-attention", default=True, help="FlashAttention; the first by default."),
    click.option(
        "--master/--no-master", default=True, help="A copy of 16-bit weights in 32 bits; the first by default."
    ),
    click.option("--rank", type=click.IntRange(1, 4096), default=16, show_default=True, help="Of LoRA's matrices."),
    click.option(
        "--targets",
        type=click.Choice(["all", "qv"]),
        default="all",
        show_default=True,
        help="Layers with LoRA adapters: all linear ones, or query and value.",
    ),
)


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
            raise UsageError("which model? Say --params 70B, a model's name, or --shape config.json")
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
