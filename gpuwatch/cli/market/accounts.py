"""`gpuwatch accounts`: the provider accounts of the configured keys, and the active launches under each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli.base import Command
from gpuwatch.cli.options import json_option, provider_option, settings_option
from gpuwatch.cli.output import json_out, local
from gpuwatch.cli.terminal_tables import left, table, text
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.app.launches.accounts import AccountStatus
    from gpuwatch.settings import Settings

_COLUMNS = (left("provider"), left("account"), left("key"), left("first used", drop=1), text("active launches"))
_KEY = {True: "this one", False: "another", None: "not known"}


@click.command(cls=Command, examples=("gpuwatch accounts", "gpuwatch accounts --same --provider vastai"))
@click.option("--same", is_flag=True, help="Confirm that the new key belongs to the account of the active launches.")
@provider_option()
@json_option
@settings_option
def accounts(same: bool, provider: str | None, as_json: bool, settings: Settings) -> None:
    """List the accounts at providers, with the active launches under each.

    A launch can be listed and ended only with a key of its own account. If a provider does not report which account a
    key belongs to, gpuwatch treats a new key as a new account. Use --same to confirm that it is the same account.

    Exit codes: 0 done, 1 failed, 2 usage, 3 the account or the store is unavailable.
    """
    from gpuwatch.app.launches.accounts import account_json, link_accounts
    from gpuwatch.app.launches.accounts import accounts as list_accounts

    if same and as_json:
        raise UsageError("use either --same or --json")
    if same:
        joined = link_accounts(settings, provider)
        names = ", ".join(launch.launch_id for launch in joined)
        click.echo(f"this key now controls launch {names}" if joined else "no launch is active under another key")
        return
    statuses = [status for status in list_accounts(settings) if provider in {None, status.provider}]
    if as_json:
        json_out([account_json(status) for status in statuses])
    elif statuses:
        table(_COLUMNS, [_row(status, settings.timezone) for status in statuses])
    else:
        click.echo("no account is known yet: the daemon records it when it first lists the instances")


def _row(status: AccountStatus, timezone: str) -> tuple[str, str, str, str, str]:
    first = "–" if status.known is None else local(status.known.first_seen, timezone)
    alive = ", ".join(launch.launch_id for launch in status.launches) or "–"
    return status.provider, status.account or "not known", _KEY[status.is_current], first, alive
