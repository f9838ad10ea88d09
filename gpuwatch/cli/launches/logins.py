"""`gpuwatch launches ssh`: log in to a rented machine, or make every one known to OpenSSH."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
from gpuwatch.cli.options import completes
from gpuwatch.cli.output import displayable, note
from gpuwatch.errors import GpuwatchError, UsageError

if TYPE_CHECKING:
    from gpuwatch.settings import Settings


@click.command(
    cls=Command,
    examples=(
        "gpuwatch launches ssh k3f7q2mzt5ab",
        "gpuwatch launches ssh h100-night -- nvidia-smi",
        "gpuwatch launches ssh h100-night -L 8888",
        "gpuwatch launches ssh --config",
    ),
)
@click.argument("launch", required=False, shell_complete=completes("launches"))
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "-L",
    "forwards",
    metavar="PORT",
    multiple=True,
    help="Make a port of the machine a local one: 8888, LOCAL:REMOTE, or as ssh -L takes it.",
)
@click.option("-N", "no_shell", is_flag=True, help="Only forward ports, until Ctrl+C.")
@click.option("--config", "writes_file", is_flag=True, help="Write a file of hosts for OpenSSH, and print its Include.")
def ssh(launch: str | None, command: Sequence[str], forwards: Sequence[str], no_shell: bool, writes_file: bool) -> int:
    """Log in to a running LAUNCH, or run a COMMAND there, with this machine's OpenSSH.

    LAUNCH is an id, or the name of a watch or job of which one launch runs. The settings file stands before the
    command: gpuwatch --config FILE ssh.

    Exit codes: that of ssh (255: no connection), 1 ssh is missing, 2 usage, 3 where to log in is not known yet.
    """
    from gpuwatch.app.launches.logins import login_command
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.remote.ssh_hosts import become

    if writes_file == (launch is not None):
        raise UsageError("expected a launch ID, or --config; list launches with: gpuwatch launches")
    if no_shell and (command or not forwards):
        raise UsageError("-N needs -L PORT, and no command")
    settings = load_settings(click.get_current_context().find_root().obj, for_stopping=True)
    if launch is not None:
        become(login_command(settings, launch, command, [*_forward_options(forwards), *_mode(command, no_shell)]))
    _write_file(settings)
    return Exit.DONE


def _mode(command: Sequence[str], no_shell: bool) -> Sequence[str]:
    """Return whether the client starts a shell, and asks for a terminal: top, vim and less need one."""
    if no_shell:
        return ("-N",)
    return ("-t",) if command and sys.stdin.isatty() and sys.stdout.isatty() else ()


def _forward_options(forwards: Sequence[str]) -> Iterator[str]:
    if forwards:
        yield from ("-o", "ExitOnForwardFailure=yes")
    for forward in forwards:
        local, mark, remote = forward.partition(":")
        is_short = local.isdigit() and (remote.isdigit() or not mark)
        yield from ("-L", f"{local}:localhost:{remote or local}" if is_short else forward)


def _write_file(settings: Settings) -> None:
    from gpuwatch.app.launches.logins import write_host_file

    try:
        written = write_host_file(settings)
    except OSError as error:
        raise GpuwatchError(f"cannot write {error.filename}: {error.strerror}") from error
    for line in written.left_out:
        note(f"left out: {line}")
    count = len(written.hosts)
    click.echo(f"{displayable(str(written.path))}: {count} {'host' if count == 1 else 'hosts'}")
    for host in written.hosts:
        click.echo(f"  ssh {host.names[0]}")
    include = f'Include "{written.path}"'
    if not _has_line(include):
        click.echo("add this line once, at the top of ~/.ssh/config:")
        click.echo(displayable(include))


def _has_line(include: str) -> bool:
    """Whether the owner's own file has it already."""
    try:
        return include in Path("~/.ssh/config").expanduser().read_text(encoding="utf-8", errors="replace")
    except (OSError, RuntimeError):
        return False
