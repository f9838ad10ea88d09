"""`gpuwatch job handover`: print a multi-node job as an orchestrator's task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
from gpuwatch.cli.options import json_option, provider_option, settings_option
from gpuwatch.cli.output import json_out, note

if TYPE_CHECKING:
    from gpuwatch.settings import Settings


@click.command(
    cls=Command,
    examples=("gpuwatch job handover jobs/cluster.toml --to skypilot > task.yaml && sky launch -c cluster task.yaml",),
)
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--to", "tool", type=click.Choice(("skypilot", "dstack")), required=True, help="The orchestrator.")
@provider_option("Poll only this provider; may be repeated.", multiple=True)
@json_option
@settings_option
def handover(file: Path, tool: str, provider: tuple[str, ...], as_json: bool, settings: Settings) -> int:
    """Print a multi-node job (nodes ≥ 2) as a SkyPilot or dstack task, with its price cap and end time.

    Rents and stores nothing. gpuwatch's budgets, limits and guard do not apply to what the orchestrator rents.

    Exit codes: 0 printed, 1 nothing matched, 2 usage or settings are wrong, 3 cannot tell.
    """
    from gpuwatch.app.jobs.job_handover import job_handover
    from gpuwatch.app.watches.handover import handover_json
    from gpuwatch.domain.watches.orchestrator_task import as_yaml

    result = job_handover(settings, file, tool, provider)
    task_handover = result.handover
    if as_json:
        figures = {"usd_hour": result.usd_hour, "usd_low": result.usd_low, "usd_high": result.usd_high}
        more = {"nodes": result.nodes, "runtime_s": result.runtime_s, "left_out": list(result.left_out)}
        json_out(handover_json(task_handover) | more | figures)
    elif task_handover.task is not None:
        click.echo(as_yaml(task_handover.task), nl=False)
    for name in task_handover.skipped:
        note(f"{name} has a matching offer, but {tool} does not support that provider")
    if task_handover.task is None:
        note(f"no offer within the job's limit that {tool} could rent")
        return Exit.FAILED if task_handover.complete else Exit.CANNOT_TELL
    total_text = "" if result.usd_low is None else f"; {result.usd_low:.2f} to {result.usd_high:.2f} $ in total"
    note(
        f"{result.nodes} machines at this price: {result.usd_hour:.2f} $/h{total_text}. gpuwatch does not monitor them"
    )
    if result.left_out:
        note(f"{tool} does not support: {', '.join(result.left_out)}")
    return Exit.DONE
