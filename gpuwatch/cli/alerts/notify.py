"""`gpuwatch notify`: send a test message through each channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
from gpuwatch.cli.options import json_option, settings_option
from gpuwatch.cli.output import json_out

if TYPE_CHECKING:
    from gpuwatch.app.alerts.notify import ChannelTestResult
    from gpuwatch.settings import Settings


def _names_by_kind() -> dict[str, tuple[str, ...]]:
    from gpuwatch import notifiers

    return {"Channels": notifiers.names()}


@click.command(cls=Command, examples=("gpuwatch notify",), lists=_names_by_kind)
@json_option
@settings_option
def notify(as_json: bool, settings: Settings) -> int:
    """Send a test message through each configured channel.

    Exit codes: 0 all delivered, 1 not all delivered, 2 no channel is configured.
    """
    from gpuwatch.app.alerts.notify import channel_test_json, send_test_message

    test = send_test_message(settings)
    results = []
    for result in test.results:
        results.append(result)
        if not as_json:
            _print_test_result(result)
    if as_json:
        json_out(channel_test_json(test.alert_id, results))
    return Exit.DONE if all(result.arrived for result in results) else Exit.FAILED


def _print_test_result(outcome: ChannelTestResult) -> None:
    if outcome.arrived:
        click.echo(f"{outcome.channel}: arrived")
    else:
        click.echo(f"{outcome.channel}: {'delivered IN PART' if outcome.in_part else 'NOT delivered'}. {outcome.error}")
    if outcome.outdated:
        option, value = outcome.outdated
        click.echo(f'  the address has changed: set [notify.{outcome.channel}] {option} = "{value}"')
