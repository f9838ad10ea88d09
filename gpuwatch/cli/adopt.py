"""`gpuwatch adopt`: take over an instance with gpuwatch's label that belongs to no launch."""

from __future__ import annotations

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command
from gpuwatch.cli.options import completes, config_option, provider_option
from gpuwatch.errors import UsageError


@click.command(
    cls=Command,
    examples=(
        "gpuwatch adopt 48000027 --watch h100-night",
        "gpuwatch adopt 48000027 --not-mine",
    ),
)
@click.argument("instance")
@click.option(
    "--watch",
    metavar="NAME",
    default=None,
    help="Watch whose limits apply to it. Default: the one watch that rents.",
    shell_complete=completes("watches"),
)
@click.option(
    "--not-mine", is_flag=True, help="It belongs to another installation: report it no more, and never touch it."
)
@provider_option
@config_option
def adopt(instance: str, watch: str | None, not_mine: bool, provider: str | None, config: str | None) -> int:
    """Take over an INSTANCE that carries gpuwatch's label and belongs to no launch.

    Exit codes: 0 done, 1 failed, 2 usage, 3 the provider did not list its instances.
    """
    from gpuwatch.app import adoption
    from gpuwatch.app.launches import ProviderStateUnknown
    from gpuwatch.bootstrap.settings_loading import load_settings

    if not_mine and watch is not None:
        raise UsageError("use either --not-mine or --watch NAME")
    loaded = load_settings(config)
    try:
        if not_mine:
            adoption.mark_foreign(loaded, instance, provider)
            click.echo(f"instance {instance} is marked as another installation's; gpuwatch leaves it alone")
            return Exit.DONE
        launch = adoption.adopt(loaded, instance, provider, watch)
    except ProviderStateUnknown as error:
        click.echo(f"gpuwatch: {error}", err=True)
        return Exit.CANNOT_TELL
    click.echo(f"instance {instance} is launch {launch.launch_id} of watch {launch.watch}, {launch.state.value}")
    if launch.max_runtime_s is None:
        click.echo("its watch has no max_runtime: it runs until you end it", err=True)
    return Exit.DONE
