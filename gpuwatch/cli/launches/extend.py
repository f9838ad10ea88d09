"""`gpuwatch extend`: extend the runtime of a launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.bootstrap import real_now
from gpuwatch.cli.base import Command
from gpuwatch.cli.options import completes, duration_option, json_option, settings_option
from gpuwatch.cli.output import json_out, local, note
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.settings import Settings


@click.command(cls=Command, examples=("gpuwatch extend k3f7q2mzt5ab --by 2h",))
@click.argument("launch_id", shell_complete=completes("launches"))
@duration_option("--by", "by_s", "Additional time, such as 2h.")
@json_option
@settings_option
def extend(launch_id: str, by_s: float | None, as_json: bool, settings: Settings) -> None:
    """Let a running launch run past its max_runtime, if the budgets allow it."""
    from decimal import ROUND_CEILING

    from gpuwatch.app.launches.extend import extend as extend_launch
    from gpuwatch.domain.launches.life.launch_json import launch_json
    from gpuwatch.domain.market.money import amount_text
    from gpuwatch.domain.market.pricing import usd

    if not by_s:
        raise UsageError("expected the additional time, such as --by 2h")
    extension = extend_launch(settings, launch_id, by_s)
    if not extension.is_contract_known:
        note(f"{extension.launch.provider} does not list the instance now: its contract may end earlier")
    if as_json:
        json_out(launch_json(extension.launch, real_now()))
        return
    at, max_cost = (
        local(extension.ends_at, settings.timezone),
        amount_text(usd(extension.more_microusd), rounding=ROUND_CEILING),
    )
    click.echo(f"launch {launch_id} ends at {at}; additional cost at most ${max_cost}")
