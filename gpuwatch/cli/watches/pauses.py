"""`gpuwatch watches pause` and `resume`: a pause holds for every daemon of this store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.bootstrap import real_now
from gpuwatch.cli.base import Command, command_actor
from gpuwatch.cli.options import completes, duration_option, group_option, json_option, stopping_settings_option
from gpuwatch.cli.output import json_out
from gpuwatch.domain.watches.owner_names import JOB_PREFIX

if TYPE_CHECKING:
    from gpuwatch.settings import Settings
    from gpuwatch.storage.alerts.pauses import PauseTable


@click.command(
    cls=Command,
    examples=(
        "gpuwatch watches pause --for 12h --why 'budget review'",
        "gpuwatch watches pause h100-night",
        "gpuwatch watches pause --group night --for 8h",
    ),
)
@click.argument("watch", required=False, shell_complete=completes("watches"))
@group_option("Pause each watch of this group.")
@duration_option("--for", "for_s", "Duration, such as 2h. Default: until `gpuwatch watches resume`.")
@click.option("--why", default="", help="Reason shown in alerts while paused.")
@json_option
@stopping_settings_option
def pause(
    watch: str | None, group: str | None, for_s: float | None, why: str, as_json: bool, settings: Settings
) -> None:
    """Stop renting, for all watches, one WATCH, a job (job:NAME) or a group.

    Running instances continue and stay under guard.
    """
    from gpuwatch.app.watches.pauses import pause as switch_off

    _, paused = switch_off(settings, watch, for_s, why, actor=command_actor(), group=group)
    _show(settings, paused, as_json)


@click.command(cls=Command, examples=("gpuwatch watches resume", "gpuwatch watches resume h100-night"))
@click.argument("watch", required=False, shell_complete=completes("watches"))
@group_option("Resume each watch of this group.")
@json_option
@stopping_settings_option
def resume(watch: str | None, group: str | None, as_json: bool, settings: Settings) -> None:
    """Resume renting. With WATCH or a group: end the pause of each watch and reset its failure count."""
    from gpuwatch.app.watches.pauses import resume as switch_on

    resumed, left = switch_on(settings, watch, actor=command_actor(), group=group)
    if not as_json:
        subject = _subject(watch, group)
        click.echo(f"{subject} resumed" if resumed else f"{subject} was not paused")
    _show(settings, left, as_json)


def _subject(watch: str | None, group: str | None) -> str:
    if watch is None:
        return "renting" if group is None else f"group {group!r}"
    job = watch.removeprefix(JOB_PREFIX)
    return f"watch {watch!r}" if job == watch else f"job {job!r}"


def _show(settings: Settings, pauses: PauseTable, as_json: bool) -> None:
    from gpuwatch.app.watches.pauses import pause_lines, pause_views

    if as_json:
        json_out(pause_views(pauses))
        return
    for line in pause_lines(pauses, real_now(), settings.timezone):
        click.echo(line)
