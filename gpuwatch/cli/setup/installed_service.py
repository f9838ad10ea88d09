"""`gpuwatch service`: gpuwatch as a systemd service of this user or of the system."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
from gpuwatch.cli.options import config_option, json_option
from gpuwatch.cli.output import echo, json_out, note
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.money import usd
from gpuwatch.domain.market.offer import hardware_text
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.app.setup.maintenance.systemd_service import GuardedLaunches, ServiceStatus
    from gpuwatch.app.setup.maintenance.systemd_unit import Scope


def _scope_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--user` and `--system`; arrive as `scope`: "user", "system" or None."""
    command = click.option("--system", "scope", flag_value="system", help="The system's, for root.")(command)
    return click.option(
        "--user", "scope", flag_value="user", default=None, help="This user's service; the default, but for root."
    )(command)


@click.command(cls=Command, examples=("gpuwatch service install", "gpuwatch service install --print"))
@_scope_options
@click.option("--print", "shows_only", is_flag=True, help="Print the daemon's unit, and change nothing.")
@config_option
def install(scope: str | None, shows_only: bool, config: str | None) -> None:
    """Write a systemd unit for `gpuwatch run`, start it, and let it start by itself from now on.

    Beside it a timer runs `gpuwatch keep` each minute, which ends what is overdue if the daemon does not.

    A user's service runs in the current folder with the settings that are found here. The system's runs as a user of
    its own, hardened, with /etc/gpuwatch/gpuwatch.toml. Repeat it after a move of either, or an upgrade.
    """
    from gpuwatch.app.setup.maintenance.systemd_service import install_service, service_text

    if shows_only:
        click.echo(service_text(_scope(scope), config), nl=False)
        return
    installed = install_service(_scope(scope), config)
    echo(f"{installed.unit}: started, and starts by itself from now on; see: gpuwatch service status{_again(scope)}")
    if installed.shell_only:
        where = "a credential (docs/deploy.md)" if _scope(scope).value == "system" else ".env in this folder"
        note(f"not set for the service: {', '.join(installed.shell_only)}; move them to {where}, then repeat this")
    if installed.linger is False:
        note(_linger_hint())


@click.command(cls=Command, examples=("gpuwatch service status", "gpuwatch service status --system"))
@_scope_options
@json_option
@config_option
def status(scope: str | None, as_json: bool, config: str | None) -> int:
    """Show on one screen whether the service is installed, enabled and active, its version and its last error.

    Exit codes: 0 it is active, 1 it is not, or there is no systemd.
    """
    from gpuwatch.app.setup.maintenance.systemd_service import service_status

    found = service_status(_scope(scope), config)
    if as_json:
        json_out(found)
    else:
        for label, value in _lines(found, _again(scope)):
            echo(f"{label:<10} {value}".rstrip())
    return Exit.DONE if found.active.startswith("active") else Exit.FAILED


@click.command(cls=Command, examples=("gpuwatch service uninstall",))
@_scope_options
@click.option("--yes", is_flag=True, help="Also if something is rented; do not ask.")
@config_option
def uninstall(scope: str | None, yes: bool, config: str | None) -> int:
    """Stop the service and its timer, and remove their units. Settings, database and keys stay.

    Nothing ends what is rented any more. If something is, it asks first; without a terminal it needs --yes.

    Exit codes: 0 removed, 1 you did not confirm, or systemd failed, 2 usage.
    """
    from gpuwatch.app.setup.maintenance.systemd_service import guarded_launches, uninstall_service

    guarded = guarded_launches(_scope(scope), config)
    for line in _unguarded(guarded):
        note(line)
    if (guarded.launches or guarded.unknown) and not yes:
        if not sys.stdin.isatty():
            stop = "gpuwatch-as-service" if _scope(scope).value == "system" else "gpuwatch"
            raise UsageError(f"end them first ({stop} launches stop --all), or repeat it with --yes")
        if not click.confirm("Remove the service?", err=True):
            return Exit.FAILED
    echo(f"{uninstall_service(_scope(scope))}: stopped and removed; settings, database and keys stay")
    return Exit.DONE


def _scope(named: str | None) -> Scope:
    from gpuwatch.app.setup.maintenance.systemd_service import default_scope
    from gpuwatch.app.setup.maintenance.systemd_unit import Scope

    return default_scope() if named is None else Scope(named)


def _again(scope: str | None) -> str:
    return "" if scope is None else f" --{scope}"


def _linger_hint() -> str:
    from gpuwatch.app.setup.maintenance.systemd_service import user_name

    return (
        "it stops when you log out, and then nothing ends what is rented; to keep it running, also from boot on: "
        f"loginctl enable-linger {user_name()}"
    )


def _unguarded(guarded: GuardedLaunches) -> Iterator[str]:
    if guarded.unknown is not None:
        yield f"cannot tell what is rented: {guarded.unknown}"
    if not guarded.launches:
        return
    count = count_text(len(guarded.launches), "launch", "launches")
    yield f"{count} would no longer be followed, nor ended by its max_runtime, price or budget:"
    for one in guarded.launches:
        instance = "instance unknown" if one.instance_id is None else f"instance {one.instance_id}"
        price = f"${usd(one.price_microusd_hour):.2f}/h"
        what = hardware_text(one.gpu, one.gpu_count)
        yield f"  {one.launch_id}  {what} at {one.provider}, {instance}, {price}, {one.state.value}"


def _lines(found: ServiceStatus, again: str) -> Iterator[tuple[str, str]]:
    install = f"gpuwatch service install{again}"
    if not found.is_installed:
        yield "unit", f"{found.unit} is not installed; to install it: {install}"
    else:
        differs = "" if found.is_current else f"; this version writes another one here: {install}"
        yield "unit", f"{found.unit}{differs}"
    yield "enabled", found.enabled
    if found.linger is False:
        yield "", _linger_hint()
    yield "active", f"{found.active}{f' since {found.since}' if found.since else ''}"
    if found.doing:
        yield "doing", found.doing
    if found.version is not None:
        other = "" if found.version == found.program_version else f"; this command is {found.program_version}"
        yield "version", f"{found.version}{other}"
    else:
        yield "version", f"of the service unknown; this command is {found.program_version}"
    reaper = "" if found.reaper.startswith("active") else f"; it ends what is overdue if this does not: {install}"
    yield "reaper", f"{found.reaper}{reaper}"
    yield "last error", found.last_error or "none in the journal"
