"""`gpuwatch launches` and `gpuwatch stop`: what was rented, its state and cost; end it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command, Group
from gpuwatch.cli.launch_show import show
from gpuwatch.cli.options import completes, config_option, json_option
from gpuwatch.cli.tables import left, right, text
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from datetime import datetime

    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.settings import Settings

_COLUMNS = (
    left("launch"),
    left("watch", drop=2),
    left("state"),
    left("GPU"),
    right("$/h"),
    right("cost $", drop=1),
    left("instance", drop=1),
    left("since", drop=3),
    text("end", drop=4),
)


@click.group(
    invoke_without_command=True,
    cls=Group,
    examples=(
        "gpuwatch launches",
        "gpuwatch launches show k3f7q2mzt5ab",
    ),
)
@click.option("--all", "everything", is_flag=True, help="Also those that ended more than a week ago.")
@json_option
@config_option
@click.pass_context
def launches(ctx: click.Context, everything: bool, as_json: bool, config: str | None) -> int:
    """What was rented, its state and cost. Without a subcommand: the list."""
    ctx.obj = config
    if ctx.invoked_subcommand is not None:
        return Exit.DONE
    from gpuwatch.app.launches import all_launches
    from gpuwatch.bootstrap import real_now
    from gpuwatch.bootstrap.settings_loading import load_settings

    now = real_now()
    loaded = load_settings(config, for_stopping=True)
    found = all_launches(loaded)
    _note_pauses(loaded)
    if as_json:
        from gpuwatch.cli.output import json_out
        from gpuwatch.domain.launches.launch_json import launch_json

        json_out([launch_json(launch, now) for launch in found])
        return Exit.DONE
    shown = [launch for launch in found if everything or _is_recent(launch, now)]
    _print(shown, now, loaded.timezone)
    if len(shown) < len(found):
        click.echo(f"{len(found) - len(shown)} older ones: --all", err=True)
    return Exit.DONE


launches.add_command(show)


@launches.command(
    examples=(
        "gpuwatch launches resolve k3f7q2mzt5ab --absent",
        "gpuwatch launches resolve k3f7q2mzt5ab --adopt 48000027",
    )
)
@click.argument("launch_id", shell_complete=completes("launches"))
@click.option("--absent", is_flag=True, help="You looked: nothing was made.")
@click.option("--adopt", metavar="INSTANCE", default=None, help="You looked: this instance is it.")
@config_option
def resolve(launch_id: str, absent: bool, adopt: str | None, config: str | None) -> int:
    """Settle a launch that is held, after you looked at the provider."""
    from gpuwatch.app.launches import ProviderStateUnknown, resolve_absent, resolve_adopted
    from gpuwatch.bootstrap.settings_loading import load_settings

    if absent == (adopt is not None):
        raise UsageError("say either --absent or --adopt INSTANCE")
    loaded = load_settings(config, for_stopping=True)
    try:
        launch = resolve_absent(loaded, launch_id) if adopt is None else resolve_adopted(loaded, launch_id, adopt)
    except ProviderStateUnknown as error:
        click.echo(f"gpuwatch: {error}", err=True)
        return Exit.CANNOT_TELL
    click.echo(f"launch {launch.launch_id} is {launch.state.value}")
    return Exit.DONE


@click.command(
    cls=Command,
    examples=(
        "gpuwatch stop k3f7q2mzt5ab",
        "gpuwatch stop --all",
    ),
)
@click.argument("launch_id", required=False, shell_complete=completes("launches"))
@click.option("--all", "everything", is_flag=True, help="Every launch that is alive; asks first on a terminal.")
@click.option("--yes", is_flag=True, help="With --all: do not ask.")
@config_option
def stop(launch_id: str | None, everything: bool, yes: bool, config: str | None) -> int:
    """End a launch, and see that it is gone. Exit 3: its end could not be confirmed; the daemon goes on trying."""
    from gpuwatch.app.launches import ProviderStateUnknown
    from gpuwatch.app.stop import stop as end
    from gpuwatch.bootstrap.settings_loading import load_settings

    loaded = load_settings(config, for_stopping=True)
    if everything == (launch_id is not None):
        raise UsageError("say which launch to stop, or --all; see: gpuwatch launches")
    ids = _all_of_ours(loaded) if everything else [str(launch_id)]
    if not ids:
        click.echo("nothing is alive")
        return Exit.DONE
    if everything and not yes and not _is_wanted(len(ids)):
        click.echo("nothing was ended", err=True)
        return Exit.FAILED
    try:
        if end(loaded, ids, click.echo):
            return Exit.DONE
        click.echo("not confirmed yet: look at the provider; gpuwatch run goes on trying", err=True)
    except ProviderStateUnknown as error:
        click.echo(f"gpuwatch: {error}", err=True)
    return Exit.CANNOT_TELL


def _all_of_ours(loaded: Settings) -> list[str]:
    """The launches that are alive, shown with price and cost; what is labelled and no launch of ours is named."""
    from gpuwatch.app.stop import plan_stop_all
    from gpuwatch.bootstrap import real_now
    from gpuwatch.cli.output import note

    found = plan_stop_all(loaded)
    if found.launches:
        _print(list(found.launches), real_now(), loaded.timezone)
    for provider, instance in found.unknown:
        at = f"instance {instance.instance_id} at {provider}, label {_plain(instance.label)}"
        note(f"not touched: {at}: in no launch that is alive; see: gpuwatch adopt --help")
    for provider in found.unlisted:
        note(f"{provider} does not list its instances now: what is there besides is not known")
    if found.launches and (not loaded.dry_run or loaded.left_out) and not _is_paused(loaded):
        note("a daemon that runs may rent again; to prevent that: gpuwatch pause")
    return [launch.launch_id for launch in found.launches]


def _is_wanted(count: int) -> bool:
    """Asked on a terminal alone: a script that says --all means it, and what runs costs money meanwhile."""
    import sys

    if not sys.stdin.isatty():
        return True
    return click.confirm(f"End {'this launch' if count == 1 else f'these {count} launches'}?", err=True)


def _is_paused(loaded: Settings) -> bool:
    from gpuwatch.app.pauses import pauses
    from gpuwatch.bootstrap import real_now

    return any(pause.watch is None for pause in pauses(loaded).holding(real_now()))


def _note_pauses(loaded: Settings) -> None:
    """On standard error, so that the list stays a list."""
    from gpuwatch.app.pauses import pause_lines, pauses
    from gpuwatch.bootstrap import real_now
    from gpuwatch.cli.output import note

    for line in pause_lines(pauses(loaded), real_now(), loaded.timezone):
        note(line)


def _plain(text: str | None) -> str:
    return "".join(letter for letter in text or "" if letter.isprintable())


def _print(found: list[Launch], now: datetime, timezone: str) -> None:
    from gpuwatch.cli.output import local
    from gpuwatch.cli.tables import table
    from gpuwatch.domain.launches.launch import cost_microusd
    from gpuwatch.domain.market.pricing import MICRO

    if not found:
        click.echo("nothing was rented yet")
        return
    table(
        _COLUMNS,
        [
            (
                launch.launch_id,
                launch.watch,
                _state(launch),
                f"{launch.gpu_count}× {launch.gpu}",
                f"{launch.price_microusd_hour / MICRO:.3f}",
                f"{cost_microusd(launch, now) / MICRO:.2f}",
                launch.instance_id or "–",
                local(launch.running_at or launch.intended_at, timezone),
                launch.end_reason or "–",
            )
            for launch in found
        ],
    )


def _state(launch: Launch) -> str:
    """The state, and what stands beside it: "running (outbid)"."""
    beside = "dry run" if launch.dry_run else None if launch.condition is None else launch.condition.value
    return launch.state.value + (f" ({beside})" if beside else "")


def _is_recent(launch: Launch, now: datetime) -> bool:
    return launch.ended_at is None or (now - launch.ended_at).days < 7
