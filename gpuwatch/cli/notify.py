"""`gpuwatch notify`: does an alert really arrive?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command
from gpuwatch.cli.options import config_option, json_option
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.app.notify import ChannelTestResult


@click.command(cls=Command, examples=("gpuwatch notify",))
@json_option
@config_option
def notify(as_json: bool, config: str | None) -> int:
    """Send a test message through each configured channel. Exit 0: all arrived, 1: not all, 2: none is configured."""
    from gpuwatch import bootstrap
    from gpuwatch.app.notify import send_to_all
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.cli.output import json_out
    from gpuwatch.engine.alerts import test_alert

    loaded = load_settings(config)
    with bootstrap.http_client(loaded) as http:
        channels = bootstrap.build_channels(loaded, http)
        if not channels:
            raise UsageError("no channel is configured: add [notify.telegram], [notify.email] or [notify.apprise]")
        alert = test_alert(alert_id=bootstrap.new_id(), now=bootstrap.real_now())
        outcomes = []
        for outcome in send_to_all(channels.values(), alert):
            outcomes.append(outcome)
            if not as_json:
                _print(outcome)
    if as_json:
        json_out({"alert_id": alert.alert_id, "channels": [msgspec.structs.asdict(outcome) for outcome in outcomes]})
    return Exit.DONE if all(outcome.arrived for outcome in outcomes) else Exit.FAILED


def _print(outcome: ChannelTestResult) -> None:
    if outcome.arrived:
        click.echo(f"{outcome.channel}: arrived")
    else:
        click.echo(f"{outcome.channel}: did NOT arrive. {outcome.error}")
    if outcome.chat_id:
        click.echo(f'  the chat has moved: set [notify.telegram] chat_id = "{outcome.chat_id}"')
