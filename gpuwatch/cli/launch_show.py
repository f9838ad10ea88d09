"""`gpuwatch launches show`: the life of one launch, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command
from gpuwatch.cli.options import completes, config_option, json_option
from gpuwatch.cli.tables import left, right, text

if TYPE_CHECKING:
    from gpuwatch.domain.launches.launch import LaunchEvent

_COLUMNS = (
    left("at"),
    left("state"),
    right("$/h"),
    right("listed $/h", drop=2),
    text("cause"),
    text("provider's words", drop=1),
)


@click.command(cls=Command, examples=("gpuwatch launches show k3f7q2mzt5ab",))
@click.argument("launch_id", shell_complete=completes("launches"))
@json_option
@config_option
def show(launch_id: str, as_json: bool, config: str | None) -> int:
    """The life of a launch: each step with its time, cause, the provider's own words, and the price."""
    from gpuwatch.app.launches import event_json, launch_events
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.cli.output import json_out
    from gpuwatch.cli.tables import table

    loaded = load_settings(config, for_stopping=True)
    events = launch_events(loaded, launch_id)
    if as_json:
        json_out([event_json(event) for event in events])
        return Exit.DONE
    table(_COLUMNS, [_row(event, loaded.timezone) for event in events])
    return Exit.DONE


def _row(event: LaunchEvent, timezone: str) -> tuple[str, ...]:
    from gpuwatch.cli.output import local
    from gpuwatch.domain.market.money import usd_number

    prices = (usd_number(event.price_microusd_hour), usd_number(event.listed_microusd_hour))
    shown = ["–" if price is None else f"{price:.3f}" for price in prices]
    return local(event.at, timezone), event.to_state.value, *shown, event.cause, event.provider_words or "–"
