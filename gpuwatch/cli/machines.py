"""`gpuwatch machines`: which machines are not rented, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Group
from gpuwatch.cli.options import config_option, duration_option, json_option, provider_option
from gpuwatch.cli.tables import left, text

if TYPE_CHECKING:
    pass

_COLUMNS = (left("provider"), left("machine"), text("why"), left("launch", drop=2), left("until", drop=1))


@click.group(
    invoke_without_command=True,
    cls=Group,
    examples=(
        "gpuwatch machines",
        "gpuwatch machines block 48211 --for 7d --why 'slow disk'",
    ),
)
@json_option
@config_option
@click.pass_context
def machines(ctx: click.Context, as_json: bool, config: str | None) -> int:
    """List machines that are not rented: a launch failed on them within a day, or you blocked them."""
    from gpuwatch.app.machines import avoided_machine_json

    ctx.find_root().obj = config
    if ctx.invoked_subcommand is not None:
        return Exit.DONE
    from gpuwatch.app.machines import machines_avoided
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.cli.output import json_out, local
    from gpuwatch.cli.tables import table

    loaded = load_settings(config)
    found = machines_avoided(loaded)
    if as_json:
        json_out([avoided_machine_json(one) for one in found])
    elif found:
        rows = [
            (one.provider, one.machine_id, one.why, one.launch_id or "–", local(one.until, loaded.timezone))
            for one in found
        ]
        table(_COLUMNS, rows)
    else:
        click.echo("no machine is avoided")
    return Exit.DONE


@machines.command(examples=("gpuwatch machines forgive 48211",))
@click.argument("machine")
@provider_option
@config_option
def forgive(machine: str, provider: str | None, config: str | None) -> int:
    """Clear the failures of a MACHINE, so that it may be rented again."""
    return _allow(machine, provider, config, forgive_only=True)


@machines.command(examples=("gpuwatch machines allow 48211",))
@click.argument("machine")
@provider_option
@config_option
def allow(machine: str, provider: str | None, config: str | None) -> int:
    """Unblock a MACHINE and clear its failures."""
    return _allow(machine, provider, config, forgive_only=False)


@machines.command(examples=("gpuwatch machines block 48211 --for 7d --why 'slow disk'",))
@click.argument("machine")
@duration_option("--for", "for_s", "Duration, such as 7d. Default: until `gpuwatch machines allow`.")
@click.option("--why", default="", help="Reason shown in the list.")
@provider_option
@config_option
def block(machine: str, for_s: float | None, why: str, provider: str | None, config: str | None) -> int:
    """Never rent this MACHINE. Instances that run on it continue."""
    from gpuwatch.app.machines import block_machine as shut_out
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.cli.output import local

    loaded = load_settings(config)
    note = shut_out(loaded, provider, machine, for_s, why)
    until = "" if note.until is None else f" until {local(note.until, loaded.timezone)}"
    click.echo(f"machine {machine} at {note.provider} is blocked{until}")
    return Exit.DONE


def _allow(machine: str, provider: str | None, config: str | None, forgive_only: bool) -> int:
    from gpuwatch.app.machines import allow_machine as let_in
    from gpuwatch.bootstrap.settings_loading import load_settings

    stood = let_in(load_settings(config), provider, machine, forgive_only)
    said = "was not avoided" if stood is None else f"may be rented again (it was avoided: {stood.why})"
    click.echo(f"machine {machine} {said}")
    return Exit.DONE
