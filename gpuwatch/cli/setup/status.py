"""`gpuwatch status`: one screen: what needs you, what runs and costs, each watch, the providers that are down."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import click

from gpuwatch.cli.base import Command
from gpuwatch.cli.options import group_option, json_option, stopping_settings_option
from gpuwatch.cli.output import displayable, json_out

if TYPE_CHECKING:
    from gpuwatch.settings import Settings


@click.command(cls=Command, examples=("gpuwatch status", "gpuwatch status --group night"))
@group_option("Only the watches of this group, and what they rented.")
@json_option
@stopping_settings_option
def status(group: str | None, as_json: bool, settings: Settings) -> None:
    """Show one screen: what needs you, what runs and costs, each watch, the providers that are down.

    Sends no request and asks nothing: `watch -n 30 gpuwatch status` shows it all the time.

    Exit codes: 0 done, 2 usage or settings are wrong, 3 the store cannot tell.
    """
    from gpuwatch.app.setup.status import note_lines, status_now, status_view
    from gpuwatch.cli.launches.launches import print_launches
    from gpuwatch.cli.watches.watch_list import print_watches

    now, zone = status_now(settings, group), ZoneInfo(settings.timezone)
    if as_json:
        json_out(status_view(now, zone))
        return
    click.echo(displayable(now.sentence))
    for need in now.needs:
        click.echo(displayable(f"  {need.text}"))
        click.echo(displayable(f"    {need.command}"))
    if now.spending.alive:
        click.echo()
        print_launches(now.spending.alive, now.at, settings.timezone)
    if now.watches:
        click.echo()
        print_watches(now.watches, settings.timezone)
    click.echo()
    for line in note_lines(now, zone):
        click.echo(displayable(line))
