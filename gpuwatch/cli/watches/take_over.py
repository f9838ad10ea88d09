"""`gpuwatch watches take-over`: watches and launches of another owner become this one's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli.base import Command, command_actor
from gpuwatch.cli.options import json_option, stopping_settings_option
from gpuwatch.cli.output import json_out

if TYPE_CHECKING:
    from gpuwatch.settings import Settings


@click.command(
    cls=Command,
    examples=("gpuwatch watches take-over h100-night --from lab", "gpuwatch watches take-over --all --from lab"),
)
@click.argument("watches", nargs=-1)
@click.option("--from", "previous", required=True, metavar="OWNER", help='The other owner; "": the installation.')
@click.option("--all", "everything", is_flag=True, help="All its watches, and its jobs.")
@click.option("--yes", "is_sure", is_flag=True, help="Also while a host of the other owner leads.")
@json_option
@stopping_settings_option
def take_over(
    watches: tuple[str, ...], previous: str, everything: bool, is_sure: bool, as_json: bool, settings: Settings
) -> None:
    """Take over WATCHES of another owner: their launches, alerts, pauses and limits, in one step.

    If the other owner has paused everything, each of them is paused from then on.

    Stop the other owner's hosts first, or remove the watches from their settings: a host that still has them in its
    list begins them anew. Reload the settings of this owner's hosts afterwards.
    """
    from gpuwatch.app.watches.take_over import take_over as move

    taken = move(settings, watches, previous=previous, everything=everything, actor=command_actor(), is_sure=is_sure)
    if as_json:
        json_out(taken)
        return
    click.echo(f"watches: {', '.join(taken.watches) or 'none'}")
    if everything:
        click.echo(f"jobs: {', '.join(taken.jobs) or 'none'}")
    click.echo(f"active launches: {taken.active_launches}")
    if taken.paused:
        names = ", ".join(taken.paused)
        click.echo(f"still paused, as everything was: {names}; to lift it: gpuwatch watches resume {taken.paused[0]}")
