"""`gpuwatch handover`: print a watch's offer as an orchestrator's task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
from gpuwatch.cli.options import completes, json_option, provider_option, settings_option
from gpuwatch.cli.output import json_out, note

if TYPE_CHECKING:
    from gpuwatch.settings import Settings


@click.command(
    cls=Command,
    examples=(
        "gpuwatch handover h100 --to skypilot --run 'python train.py' > task.yaml && sky launch task.yaml",
        "gpuwatch handover h100 --to dstack > h100.dstack.yml && dstack apply -f h100.dstack.yml",
    ),
)
@click.argument("watch", shell_complete=completes("watches"))
@click.option("--to", "tool", type=click.Choice(("skypilot", "dstack")), required=True, help="The orchestrator.")
@click.option("--run", "command", default="nvidia-smi", show_default=True, help="Command to run on the machine.")
@provider_option("Poll only this provider; may be repeated.", multiple=True)
@json_option
@settings_option
def handover(watch: str, tool: str, command: str, provider: tuple[str, ...], as_json: bool, settings: Settings) -> int:
    """Print the cheapest offer of a watch as a SkyPilot or dstack task, with its region, type and price cap.

    Rents and stores nothing. gpuwatch's budgets, limits and guard do not apply to what the orchestrator rents.

    Exit codes: 0 printed, 1 nothing matched, 2 usage or settings are wrong, 3 cannot tell.
    """
    from gpuwatch.app.watches.handover import handover as build_handover
    from gpuwatch.app.watches.handover import handover_json
    from gpuwatch.domain.watches.orchestrator_task import as_yaml

    result = build_handover(settings, watch, tool, command, provider)
    if as_json:
        json_out(handover_json(result))
    elif result.task is not None:
        click.echo(as_yaml(result.task), nl=False)
    for name in result.skipped:
        note(f"{name} has a matching offer, but {tool} does not support that provider")
    if result.task is not None:
        return Exit.DONE
    note(f"no offer within the limit of watch {watch!r} that {tool} could rent")
    return Exit.FAILED if result.complete else Exit.CANNOT_TELL
