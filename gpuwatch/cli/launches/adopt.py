"""`gpuwatch adopt`: take over an instance with gpuwatch's label that belongs to no launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli.base import Command
from gpuwatch.cli.options import completes, provider_option, settings_option
from gpuwatch.cli.output import note
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.settings import Settings


@click.command(
    cls=Command,
    examples=("gpuwatch adopt 48000027 --watch h100-night", "gpuwatch adopt 48000027 --not-mine"),
)
@click.argument("instance")
@click.option(
    "--watch",
    metavar="NAME",
    default=None,
    help="Watch whose limits apply. Default: the only watch that rents.",
    shell_complete=completes("watches"),
)
@click.option(
    "--not-mine",
    is_flag=True,
    help="Mark it as another installation's: never report or touch that installation's instances.",
)
@provider_option()
@settings_option
def adopt(instance: str, watch: str | None, not_mine: bool, provider: str | None, settings: Settings) -> None:
    """Take over an INSTANCE that has gpuwatch's label and belongs to no launch.

    Exit codes: 0 done, 1 failed, 2 usage, 3 the provider did not list its instances.
    """
    from gpuwatch.app.launches import adoption

    if not_mine and watch is not None:
        raise UsageError("use either --not-mine or --watch NAME")
    if not_mine:
        adoption.mark_foreign(settings, instance, provider)
        click.echo(f"instance {instance} is marked as another installation's; gpuwatch leaves it alone")
        return
    launch = adoption.adopt(settings, instance, provider, watch)
    click.echo(f"instance {instance} is launch {launch.launch_id} of watch {launch.watch}, {launch.state.value}")
    if launch.max_runtime_s is None:
        note("its watch has no max_runtime: the instance runs until you end it")
