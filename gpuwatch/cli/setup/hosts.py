"""`gpuwatch hosts`: the daemons on one PostgreSQL database, and which of them leads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command, command_actor
from gpuwatch.cli.options import json_option, settings_option
from gpuwatch.cli.output import json_out
from gpuwatch.cli.terminal_tables import left, print_list, right

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

_COLUMNS = (
    left("host", "host"),
    left("role", "role", drop=1),
    left("state", "state_text"),
    left("since", "since"),
    right("epoch", "epoch", drop=4),
    left("version", "version", drop=3),
    left("last seen", "seen_at", drop=2),
    left("started", "started_at", drop=5),
)


@click.command(cls=Command, examples=("gpuwatch hosts list",))
@json_option
@settings_option
def hosts(as_json: bool, settings: Settings) -> None:
    """List the daemons on this database: which one leads since when, and which stand by.

    An account that several owners search with is a line of its own, with the host whose turn it is.
    """
    from gpuwatch.app.setup.hosts import known_hosts

    found = known_hosts(settings)
    if as_json:
        json_out([host.json() for host in found])
    else:
        one = "no host was seen within a day; a daemon on SQLite is alone, and not listed"
        print_list(found, _COLUMNS, one, as_json=False, timezone=settings.timezone)


@click.command(cls=Command, examples=("gpuwatch hosts step-down",))
@json_option
@settings_option
def step_down(as_json: bool, settings: Settings) -> int:
    """Let another host lead: the leader stops its work, then a standby takes over within seconds.

    Exit codes: 0 asked, 1 no host leads or none stands by, 3 the database cannot be used.
    """
    from gpuwatch.app.setup.hosts import step_down as ask

    asked = ask(settings, actor=command_actor())
    if as_json:
        json_out(asked)
    else:
        click.echo(asked.text)
    return Exit.FAILED if asked.host is None else Exit.DONE
