"""`gpuwatch machines`: list the machines that gpuwatch does not rent, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli.command import Group
from gpuwatch.cli.options import config_option, duration_option, json_option, provider_option, settings_option
from gpuwatch.cli.output import json_out, local, note
from gpuwatch.cli.tables import left, right, table, text
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

_SCOPE_COLUMNS = (
    left("provider"),
    left("scope", drop=3),
    left("skipped"),
    text("why"),
    left("launch", drop=2),
    left("until", drop=1),
)
_RECORD_COLUMNS = (left("provider"), left("machine"), right("went well"), right("failed"), right("reputation"))
_COLUMNS = (left("provider"), left("machine"), text("why"), left("launch", drop=2), left("until", drop=1))


@click.group(
    invoke_without_command=True,
    cls=Group,
    examples=(
        "gpuwatch machines",
        "gpuwatch machines --scopes",
        "gpuwatch machines --reputation",
        "gpuwatch machines block 48211 --for 7d --why 'slow disk'",
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
    if reputation:
        _list_records(as_json, config)
        return
    if scopes:
        _list_scopes(as_json, config)
        return
    from gpuwatch.app.machines import avoided_machine_json, machines_avoided
    from gpuwatch.bootstrap.settings_loading import load_settings

    settings = load_settings(config)
    found = machines_avoided(settings)
    if as_json:
        json_out([avoided_machine_json(one) for one in found])
    elif found:
        shown = [
            (one.provider, one.machine_id, one.why, one.launch_id or "–", local(one.until, settings.timezone))
            for one in found
        ]
        table(_COLUMNS, shown)
    else:
        click.echo("no machine is blocked")


def _list_records(as_json: bool, config: str | None) -> None:
    from gpuwatch.app.machines import machine_record_json, machine_records
    from gpuwatch.bootstrap.settings_loading import load_settings

    shown = [machine_record_json(machine, record) for machine, record in machine_records(load_settings(config)).items()]
    shown.sort(key=lambda one: (one["reputation"], one["provider"], one["machine_id"]))
    if as_json:
        json_out(shown)
    elif shown:
        keys = ("provider", "machine_id", "good", "failed")
        table(_RECORD_COLUMNS, [(*(str(one[key]) for key in keys), f"{one['reputation']:.3f}") for one in shown])
        note("reputation assumes a reliability of 0.9; min_reputation uses the reliability of the current poll")
    else:
        click.echo("no launches of the last 90 days to rate a machine by")


def _list_scopes(as_json: bool, config: str | None) -> None:
    from gpuwatch.app.machines import scopes_skipped, skipped_scope_json
    from gpuwatch.bootstrap.settings_loading import load_settings

    settings = load_settings(config)
    found = scopes_skipped(settings)
    if as_json:
        json_out([skipped_scope_json(one) for one in found])
    elif found:
        shown = [
            (
                one.provider,
                one.scope.value,
                one.name,
                one.why,
                one.launch_id or "–",
                local(one.until, settings.timezone),
            )
            for one in found
        ]
        table(_SCOPE_COLUMNS, shown)
    else:
        click.echo("nothing is skipped")


@machines.command(examples=("gpuwatch machines forgive 48211",))
@click.argument("machine")
@provider_option()
@settings_option
def forgive(machine: str, provider: str | None, settings: Settings) -> None:
    """Clear the failures of a MACHINE, so that it may be rented again."""
    _allow(machine, provider, settings, forgive_only=True)


@machines.command(examples=("gpuwatch machines allow 48211",))
@click.argument("machine")
@provider_option()
@settings_option
def allow(machine: str, provider: str | None, settings: Settings) -> None:
    """Unblock a MACHINE and clear its failures."""
    _allow(machine, provider, settings, forgive_only=False)


@machines.command(examples=("gpuwatch machines block 48211 --for 7d --why 'slow disk'",))
@click.argument("machine")
@duration_option("--for", "for_s", "Duration, such as 7d. Default: until `gpuwatch machines allow`.")
@click.option("--why", default="", help="Reason shown in the list.")
@provider_option()
@settings_option
def block(machine: str, for_s: float | None, why: str, provider: str | None, settings: Settings) -> None:
    """Never rent this MACHINE. Instances already running on it continue."""
    from gpuwatch.app.machines import block_machine as shut_out

    note = shut_out(settings, provider, machine, for_s, why)
    until = "" if note.until is None else f" until {local(note.until, settings.timezone)}"
    click.echo(f"machine {machine} at {note.provider} is blocked{until}")


def _allow(machine: str, provider: str | None, settings: Settings, forgive_only: bool) -> None:
    from gpuwatch.app.machines import allow_machine as let_in

    stood = let_in(settings, provider, machine, forgive_only)
    said = "was not blocked" if stood is None else f"may be rented again (was blocked: {stood.why})"
    click.echo(f"machine {machine} {said}")
