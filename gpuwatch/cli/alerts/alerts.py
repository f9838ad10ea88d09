"""`gpuwatch alerts list`, `silence` and `test`: list recorded events, mute watches, and test the channels."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from textwrap import wrap
from typing import TYPE_CHECKING

import click
import msgspec

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command, command_actor
from gpuwatch.cli.options import completes, duration_option, group_option, json_option, settings_option
from gpuwatch.cli.output import displayable, json_out, local, note
from gpuwatch.cli.terminal_tables import left, print_list, terminal_width
from gpuwatch.errors import UsageError
from gpuwatch.ports import AlertKind, Severity

if TYPE_CHECKING:
    from gpuwatch.app.alerts.alerts import ChannelTestResult
    from gpuwatch.settings import Settings
    from gpuwatch.storage.alerts.alert_rows import StoredEvent

_STATES = {"pending": "waits", "expired": "too late", "refused": "refused"}


@click.command(
    cls=Command,
    examples=(
        "gpuwatch alerts list --since 7d --kind held --kind orphan",
        "gpuwatch alerts list --follow --severity warning",
    ),
)
@duration_option("--since", "since_s", "How far back.", default="1d")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice([kind.value for kind in AlertKind]), help="Only this kind."
)
@click.option(
    "--severity",
    type=click.Choice([severity.value for severity in Severity]),
    default=Severity.INFO.value,
    show_default=True,
    help="Only this severity and higher.",
)
@click.option("--follow", is_flag=True, help="Keep running and print new events.")
@json_option
@settings_option
def alerts(
    since_s: float, kinds: tuple[str, ...], severity: str, follow: bool, as_json: bool, settings: Settings
) -> None:
    """List recorded events (offers, launches, faults), newest last. Reads the store only.

    With --follow --json, each event is one JSON object per line.
    """
    from gpuwatch.app.alerts.alerts import event_filter, event_view, follow_events, stored_events

    filter_ = event_filter(since_s, kinds, severity)
    if not follow:
        events = stored_events(settings, filter_)
        if as_json:
            json_out([event_view(event) for event in events])
            return
        if not events:
            note("no events in that time")
        _print_events(events, settings.timezone)
    elif as_json:
        for event in follow_events(settings, filter_):
            _write(msgspec.json.encode(event_view(event)).decode())
    else:
        _print_events(follow_events(settings, filter_), settings.timezone)


def _print_events(events: Iterable[StoredEvent], timezone: str) -> None:
    for event in events:
        for line in _lines(event, timezone, terminal_width()):
            _write(line)


def _lines(event: StoredEvent, timezone: str, width: int | None) -> Iterator[str]:
    """Time, severity, kind and headline, with the delivery status of each channel below."""
    alert = event.alert
    at = local(alert.created_at, timezone)[:19]
    begin = f"{at}  {alert.severity.value:<8}  {alert.kind.value:<9}  "
    width_left = None if width is None else max(width - len(begin), 20)
    actor = dict(alert.facts).get("By") if alert.kind is AlertKind.AUDIT else None
    headline = displayable(alert.headline + (f", by {actor}" if actor else ""))
    first, *more = [headline] if width_left is None else wrap(headline, width_left) or [""]
    yield begin + first
    yield from (" " * len(begin) + line for line in more)
    if event.outcomes:
        yield " " * len(begin) + ", ".join(
            f"{outcome.channel} {_STATES.get(outcome.state) or local(outcome.at, timezone)[11:16]}"
            for outcome in event.outcomes
        )


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@click.command(
    cls=Command,
    examples=(
        "gpuwatch alerts silence h100-night --for 6h",
        "gpuwatch alerts silence --group night --for 8h",
        "gpuwatch alerts silence --end h100-night",
    ),
)
@click.argument("watch", required=False, shell_complete=completes("watches"))
@group_option("Mute each watch of this group; with --end: send their alerts again.")
@duration_option("--for", "for_s", "Duration, such as 6h.")
@click.option("--list", "as_list", is_flag=True, help="List the silenced watches.")
@click.option(
    "--end",
    metavar="[WATCH]",
    is_flag=False,
    flag_value="",
    shell_complete=completes("watches"),
    help="End the silence of this watch, or of the group.",
)
@json_option
@settings_option
def silence(
    watch: str | None,
    group: str | None,
    for_s: float | None,
    as_list: bool,
    end: str | None,
    as_json: bool,
    settings: Settings,
) -> None:
    """Mute the offer alerts of one WATCH, or of a group, for a while. Launch alerts are still sent.

    gpuwatch still stores and logs the muted alerts.
    """
    from gpuwatch.app.alerts import alerts as app

    actor = command_actor()
    given = [watch is not None, group is not None, bool(end)].count(True)  # all name what to silence or to end
    if given != (not as_list) or [for_s is not None, end is not None, as_list].count(True) != 1:
        raise UsageError(
            "gpuwatch alerts silence: expected WATCH or --group NAME with --for DURATION or --end, or --list"
        )
    if for_s is not None:
        app.silence(settings, watch, for_s, actor=actor, group=group)
    elif end is not None:
        watch = watch or end or None
        if not app.end_silence(settings, watch, actor=actor, group=group) and not as_json:
            click.echo(f"{f'group {group!r}' if watch is None else f'watch {watch!r}'} was not silenced")
    silences = [app.silence_view(silence) for silence in app.silences(settings)]
    columns = (left("silenced", "watch"), left("until", "until"))
    print_list(silences, columns, "no watch is silenced", as_json=as_json, timezone=settings.timezone)


def _names_by_kind() -> dict[str, tuple[str, ...]]:
    from gpuwatch import notifiers

    return {"Channels": notifiers.names()}


@click.command(cls=Command, examples=("gpuwatch alerts test",), lists=_names_by_kind)
@json_option
@settings_option
def notify(as_json: bool, settings: Settings) -> int:
    """Send a test message through each configured channel.

    Exit codes: 0 all delivered, 1 not all delivered, 2 no channel is configured.
    """
    from gpuwatch.app.alerts.alerts import channel_test_json, send_test_message

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
