"""`gpuwatch providers machines`: list the machines that gpuwatch does not rent, and why."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.base import Group, command_actor
from gpuwatch.cli.options import config_option, duration_option, json_option, provider_option, settings_option
from gpuwatch.cli.output import local, note
from gpuwatch.cli.terminal_tables import left, print_list, right, text
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

_SCOPE_COLUMNS = (
    left("provider", "provider"),
    left("scope", "scope", drop=3),
    left("skipped", "name"),
    text("why", "why"),
    left("launch", "launch_id", drop=2),
    left("until", "until", drop=1),
)
_RECORD_COLUMNS = (
    left("provider", "provider"),
    left("machine", "machine_id"),
    right("went well", "good"),
    right("failed", "failed"),
    right("reputation", "reputation", ".3f"),
)
_COLUMNS = (
    left("provider", "provider"),
    left("machine", "machine_id"),
    text("why", "why"),
    left("launch", "launch_id", drop=2),
    left("until", "until", drop=1),
)


@click.group(
    invoke_without_command=True,
    cls=Group,
    examples=(
        "gpuwatch providers machines",
        "gpuwatch providers machines --scopes",
        "gpuwatch providers machines --reputation",
        "gpuwatch providers machines block 48211 --for 7d --why 'slow disk'",
    ),
)
@click.option("--scopes", is_flag=True, help="List quotas, zones and accounts that are skipped after a refusal.")
@click.option("--reputation", is_flag=True, help="List the results of your launches of the last 90 days, by machine.")
@json_option
@config_option
@click.pass_context
def machines(ctx: click.Context, scopes: bool, reputation: bool, as_json: bool, config: str | None) -> None:
    """List the machines gpuwatch does not rent: a launch failed there within a day, or you blocked them."""
    if ctx.invoked_subcommand is not None:
        return
    if scopes and reputation:
        raise UsageError("use either --scopes or --reputation")
    from gpuwatch.app.market import avoided_machines as app
    from gpuwatch.bootstrap.settings_loading import load_settings

    settings = load_settings(config)
    show = partial(print_list, as_json=as_json, timezone=settings.timezone)
    if reputation:
        records = app.machine_record_views(app.machine_records(settings))
        show(records, _RECORD_COLUMNS, "no launches of the last 90 days to rate a machine by")
        if records and not as_json:
            note("reputation assumes a reliability of 0.9; min_reputation uses the reliability of the current poll")
    elif scopes:
        skipped = app.skipped_scopes(settings)
        show([app.SkippedScopeView.of(scope) for scope in skipped], _SCOPE_COLUMNS, "nothing is skipped", rows=skipped)
    else:
        avoided = [app.avoided_machine_view(machine) for machine in app.avoided_machines(settings)]
        show(avoided, _COLUMNS, "no machine is blocked")


@machines.command(examples=("gpuwatch providers machines forgive 48211",))
@click.argument("machine")
@provider_option()
@settings_option
def forgive(machine: str, provider: str | None, settings: Settings) -> None:
    """Clear the failures of a MACHINE, so that it may be rented again."""
    _allow(machine, provider, settings, forgive_only=True)


@machines.command(examples=("gpuwatch providers machines allow 48211",))
@click.argument("machine")
@provider_option()
@settings_option
def allow(machine: str, provider: str | None, settings: Settings) -> None:
    """Unblock a MACHINE and clear its failures."""
    _allow(machine, provider, settings, forgive_only=False)


@machines.command(examples=("gpuwatch providers machines block 48211 --for 7d --why 'slow disk'",))
@click.argument("machine")
@duration_option("--for", "for_s", "Duration, such as 7d. Default: until `gpuwatch providers machines allow`.")
@click.option("--why", default="", help="Reason shown in the list.")
@provider_option()
@settings_option
def block(machine: str, for_s: float | None, why: str, provider: str | None, settings: Settings) -> None:
    """Never rent this MACHINE. Instances already running on it continue."""
    from gpuwatch.app.market.avoided_machines import block_machine as shut_out

    note = shut_out(settings, provider, machine, for_s, why, actor=command_actor())
    until = "" if note.until is None else f" until {local(note.until, settings.timezone)}"
    click.echo(f"machine {machine} at {note.provider} is blocked{until}")


def _allow(machine: str, provider: str | None, settings: Settings, forgive_only: bool) -> None:
    from gpuwatch.app.market.avoided_machines import allow_machine

    former_block = allow_machine(settings, provider, machine, forgive_only, actor=command_actor())
    effect = "was not blocked" if former_block is None else f"may be rented again (was blocked: {former_block.why})"
    click.echo(f"machine {machine} {effect}")
