"""`gpuwatch adopt`: an instance with gpuwatch's label that no launch accounts for."""

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
    help="Whose rules hold for it; not needed where one rents.",
    shell_complete=completes("watches"),
)
@click.option("--not-mine", is_flag=True, help="It is another installation's: never told again, and in nobody's way.")
@provider_option
@config_option
def adopt(instance: str, watch: str | None, not_mine: bool, provider: str | None, config: str | None) -> int:
    """Take over an INSTANCE that carries gpuwatch's label and is in no launch. Exit 3: the provider gives no list."""
    from gpuwatch.app import adoption
    from gpuwatch.app.launches import ProviderStateUnknown
    from gpuwatch.bootstrap.settings_loading import load_settings

    if not_mine and watch is not None:
        raise UsageError("say either --not-mine or --watch NAME")
    loaded = load_settings(config)
    try:
        if not_mine:
            adoption.mark_foreign(loaded, instance, provider)
            click.echo(f"instance {instance} is noted as not of this gpuwatch; it is left alone")
            return Exit.DONE
        launch = adoption.adopt(loaded, instance, provider, watch)
    except ProviderStateUnknown as error:
        click.echo(f"gpuwatch: {error}", err=True)
        return Exit.CANNOT_TELL
    click.echo(f"instance {instance} is launch {launch.launch_id} of watch {launch.watch}, {launch.state.value}")
    if launch.max_runtime_s is None:
        click.echo("its watch has no max_runtime: it runs until you end it", err=True)
    return Exit.DONE
