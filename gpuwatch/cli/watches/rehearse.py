"""`gpuwatch rehearse`: check everything a launch needs, without placing the order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
from gpuwatch.cli.options import completes, json_option, settings_option
from gpuwatch.cli.output import json_out

if TYPE_CHECKING:
    from gpuwatch.app.watches.rehearse import RehearsalLine
    from gpuwatch.settings import Settings

_SIGNS = {"met": "ok     ", "note": "note   ", "missing": "MISSING", "unknown": "unknown"}


@click.command(cls=Command, examples=("gpuwatch rehearse h100-night", "gpuwatch rehearse h100-night --json"))
@click.argument("watch", shell_complete=completes("watches"))
@json_option
@settings_option
def rehearse(watch: str, as_json: bool, settings: Settings) -> int:
    """Check everything a launch needs, but do not order: settings, limits, offers, keys, quotas, network, image.

    If the provider can validate an order without placing it, gpuwatch requests that. Rents, changes and stores nothing.

    Exit codes: 0 ready, 1 something is missing (one line each), 2 usage or settings are wrong, 3 cannot tell.
    """
    from gpuwatch.app.watches.rehearse import rehearsal_json
    from gpuwatch.app.watches.rehearse import rehearse as run_rehearsal

    rehearsal = run_rehearsal(settings, watch)
    if as_json:
        json_out(rehearsal_json(rehearsal))
    else:
        for line in rehearsal.lines:
            _print(line)
        click.echo(_RESULT[rehearsal.ready].format(watch))
    return {True: Exit.DONE, False: Exit.FAILED, None: Exit.CANNOT_TELL}[rehearsal.ready]


_RESULT = {
    True: "{} is ready to rent.",
    False: "{} is not ready to rent.",
    None: "Cannot tell whether {} is ready to rent.",
}


def _print(line: RehearsalLine) -> None:
    heading = " ".join(filter(None, (line.provider, line.name)))
    place = f" ({line.place})" if line.place else ""
    click.echo(f"{_SIGNS[line.state]} {heading}{place}: {line.text}")
    if line.mend and line.state != "met":
        click.echo(f"        → {line.mend}")
    if line.docs and line.state == "missing":
        click.echo(f"        see {line.docs}")
