"""`gpuwatch keep`: end once what is overdue, without the daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
from gpuwatch.cli.options import config_option, json_option
from gpuwatch.cli.output import echo, json_out, note
from gpuwatch.domain.market.figure_text import count_text

if TYPE_CHECKING:
    from gpuwatch.app.launches.keep import KeepView, KeptView


@click.command(cls=Command, examples=("gpuwatch keep", "gpuwatch keep --json"))
@json_option
@config_option
def keep(as_json: bool, config: str | None) -> int:
    """End once what outlived its end, with nothing but the keeper's file: for a timer beside the daemon.

    Does nothing while a daemon's keeper works here. Neither the database nor valid settings are needed; a later end
    that the database proves wins. `gpuwatch service install` also installs the timer.

    With on_end = "stop" it stops the machine and keeps its disk.

    Exit codes: 0 nothing is overdue, or all of it has ended or is stopped, 1 something could not be ended, 2 the
    settings name no database, 3 the keeper's file cannot be read.
    """
    from gpuwatch.app.launches.keep import keep as end_overdue
    from gpuwatch.bootstrap.settings_loading import load_for_keeping

    loaded = load_for_keeping(config)
    for line in loaded.lines:
        note(line)
    found = end_overdue(loaded.settings)
    if as_json:
        json_out(found)
    else:
        for text in _lines(found):
            echo(text)
    return Exit.DONE if found.is_done else Exit.FAILED


def _lines(found: KeepView) -> list[str]:
    if found.keeper_alive:
        return ["a daemon's keeper works here; nothing to do"]
    if not found.overdue:
        return [f"nothing is overdue; {count_text(found.open_launches, 'launch', 'launches')} in the keeper's file"]
    return [_line(one) for one in found.overdue]


def _line(one: KeptView) -> str:
    instance = f"instance {one.instance_id}" if one.instance_id else f"the instance labelled {one.label}"
    what = f"launch {one.launch_id} ({one.watch}) at {one.provider}: {instance}"
    texts = {
        "ended": "ended",
        "stopped": "stopped; its disk is kept",
        "extended": "was extended, and goes on",
        "absent": "does not exist; nothing to end",
        "failed": f"could not be ended: {one.error}; end it at the provider",
    }
    return f"{what} {texts[one.result.value]}"
