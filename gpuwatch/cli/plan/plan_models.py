"""`gpuwatch plan models`: list the models known by name."""

from __future__ import annotations

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
from gpuwatch.cli.options import json_option
from gpuwatch.cli.output import json_out, note
from gpuwatch.cli.terminal_tables import left, right, table
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.plan.architectures.model_index import ListedModel, model_index

_MODEL_COLUMNS = (
    left("model"),
    right("params"),
    right("active", drop=1),
    right("layers", drop=3),
    right("hidden", drop=4),
    right("KV kB/token", drop=2),
    left("from", drop=5),
)


@click.command(cls=Command, examples=("gpuwatch plan models", "gpuwatch plan models qwen3"))
@click.argument("named", required=False, metavar="[TEXT]")
@json_option
def models(named: str | None, as_json: bool) -> int:
    """List the models that `--model` knows by name, optionally filtered by a text."""
    from gpuwatch.app.plan.plan_models import listed_models, listed_models_json

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
