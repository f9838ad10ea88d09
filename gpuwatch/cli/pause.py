"""`gpuwatch pause` and `gpuwatch resume`: stop and allow renting, for every daemon of this store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command
from gpuwatch.cli.options import completes, config_option, duration_option, json_option

if TYPE_CHECKING:
    from gpuwatch.settings import Settings
    from gpuwatch.storage.pauses import PauseTable


@click.command(
    cls=Command,
    examples=(
        "gpuwatch pause --for 12h --why 'budget review'",
        "gpuwatch pause h100-night",
    ),
)
@click.argument("watch", required=False, shell_complete=completes("watches"))
@duration_option("--for", "for_s", "Duration, such as 2h. Default: until `gpuwatch resume`.")
@click.option("--why", default="", help="Reason shown in alerts while paused.")
@json_option
@config_option
def pause(watch: str | None, for_s: float | None, why: str, as_json: bool, config: str | None) -> int:
    """Rent nothing new, at all or for one WATCH. Running instances continue and stay under guard."""
    from gpuwatch.app.pauses import pause as switch_off
    from gpuwatch.bootstrap.settings_loading import load_settings

    loaded = load_settings(config, for_stopping=True)
    _show(loaded, switch_off(loaded, watch, for_s, why), as_json)
    return Exit.DONE


@click.command(
    cls=Command,
    examples=(
        "gpuwatch resume",
        "gpuwatch resume h100-night",
    ),
)
@click.argument("watch", required=False, shell_complete=completes("watches"))
@json_option
@config_option
def resume(watch: str | None, as_json: bool, config: str | None) -> int:
    """Allow renting again. With WATCH: lift its own pause and reset its failure count."""
    from gpuwatch.app.pauses import resume as switch_on
    from gpuwatch.bootstrap.settings_loading import load_settings

    loaded = load_settings(config, for_stopping=True)
    lifted, left = switch_on(loaded, watch)
    if not as_json:
        what = "renting" if watch is None else f"watch {watch!r}"
        click.echo(f"{what} resumed" if lifted else f"{what} was not paused")
    _show(loaded, left, as_json)
    return Exit.DONE


def _show(loaded: Settings, found: PauseTable, as_json: bool) -> None:
    from gpuwatch.app.pauses import pause_lines, pauses_json
    from gpuwatch.bootstrap import real_now

    if as_json:
        from gpuwatch.cli.output import json_out

        json_out(pauses_json(found))
        return
    for line in pause_lines(found, real_now(), loaded.timezone):
        click.echo(line)
