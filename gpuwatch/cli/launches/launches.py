"""`gpuwatch launches`: list launches with state and cost, end, extend and resolve them, and adopt an instance."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from gpuwatch.bootstrap import real_now
from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command, command_actor
from gpuwatch.cli.options import (
    completes,
    duration_option,
    json_option,
    provider_option,
    settings_option,
    stopping_settings_option,
)
from gpuwatch.cli.output import displayable, json_out, local, note
from gpuwatch.cli.terminal_tables import left, right, table, text
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.launches.life.launch_record import state_of
from gpuwatch.domain.launches.money.launch_costs import cost_microusd, current_microusd_hour
from gpuwatch.domain.market.money import MICRO, dollars, per_hour, usd
from gpuwatch.domain.market.offer import hardware_text
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from gpuwatch.domain.launches.interruption import InterruptionNotice
    from gpuwatch.settings import Settings

_RECENT_DAYS = 7
_EVENT_COLUMNS = (
    left("at", "at"),
    left("state", "to_state"),
    right("price", lambda event: _price(event.price_usd_hour)),
    right("listed", lambda event: _price(event.listed_usd_hour), drop=2),
    text("cause", "cause"),
    text("provider's words", "provider_words", drop=1),
)


@click.command(cls=Command, examples=("gpuwatch launches list", "gpuwatch launches list --all"))
@click.option("--all", "show_all", is_flag=True, help="Include launches that ended more than a week ago.")
@json_option
@stopping_settings_option
def list_(show_all: bool, as_json: bool, settings: Settings) -> None:
    """List launches with their state and cost."""
    from gpuwatch.app.launches.launches import all_launches, launch_views, relocation_findings
    from gpuwatch.app.watches.pauses import pause_lines, pauses

    now = real_now()
    for line in pause_lines(pauses(settings), now, settings.timezone):
        note(line)  # on standard error: standard output holds only the list
    if as_json:
        json_out(launch_views(settings, now))
        return
    launches = all_launches(settings)
    for launch_id, finding in relocation_findings(settings, launches).items():
        note(f"{launch_id}: {finding.headline}, as of {local(finding.created_at, settings.timezone)}; gpuwatch alerts")
    for launch in launches:
        if not launch.is_over and (notice := launch.interruption) is not None:
            note(f"{launch.launch_id}: {_announced(notice, settings.timezone)}")
    selected = [
        launch
        for launch in launches
        if show_all or launch.ended_at is None or (now - launch.ended_at).days < _RECENT_DAYS
    ]
    print_launches(selected, now, settings.timezone)
    if len(selected) < len(launches):
        note(f"{len(launches) - len(selected)} older launches hidden; show them with --all")


def _announced(notice: InterruptionNotice, timezone: str) -> str:
    if not notice.kind.is_decided:
        return "its provider sees a higher risk that it is taken back"
    when = "soon" if notice.at is None else f"at {local(notice.at, timezone)}"
    return f"its provider takes the machine back {when} ({notice.kind.value})"


@click.command(cls=Command, examples=("gpuwatch launches show k3f7q2mzt5ab",))
@click.argument("launch_id", shell_complete=completes("launches"))
@json_option
@stopping_settings_option
def show(launch_id: str, as_json: bool, settings: Settings) -> None:
    """Show each state of a launch with its time, cause, price, and the provider's message."""
    from gpuwatch.app.launches.launches import LaunchEventView, launch_events

    events = [LaunchEventView.of(event) for event in launch_events(settings, launch_id)]
    if as_json:
        json_out(events)
    else:
        table(_EVENT_COLUMNS, events, timezone=settings.timezone)


@click.command(
    cls=Command,
    examples=(
        "gpuwatch launches resolve k3f7q2mzt5ab --absent",
        "gpuwatch launches resolve k3f7q2mzt5ab --adopt 48000027",
    ),
)
@click.argument("launch_id", shell_complete=completes("launches"))
@click.option("--absent", is_flag=True, help="Confirm that no instance was created, or none is left.")
@click.option("--adopt", metavar="INSTANCE", default=None, help="Confirm that this instance belongs to the launch.")
@stopping_settings_option
def resolve(launch_id: str, absent: bool, adopt: str | None, settings: Settings) -> None:
    """Resolve a launch that is held, or that a rent command created, after you checked at the provider."""
    from gpuwatch.app.launches.launches import resolve_absent, resolve_adopted

    if absent == (adopt is not None):
        raise UsageError("use either --absent or --adopt INSTANCE")
    launch = (
        resolve_absent(settings, launch_id, actor=command_actor())
        if adopt is None
        else resolve_adopted(settings, launch_id, adopt, actor=command_actor())
    )
    click.echo(f"launch {launch.launch_id} is {launch.state.value}")


@click.command(cls=Command, examples=("gpuwatch launches stop k3f7q2mzt5ab", "gpuwatch launches stop --all"))
@click.argument("launch_id", required=False, shell_complete=completes("launches"))
@click.option("--all", "stop_all", is_flag=True, help="End every active launch; asks for confirmation on a terminal.")
@click.option("--yes", is_flag=True, help="With --all: do not ask for confirmation.")
@click.option("--keep-disk", is_flag=True, help="Stop it and keep its disk, which is billed until it is destroyed.")
@duration_option("--for", "keep_s", "With --keep-disk: how long the disk is kept. Default: keep_disk_for of its watch.")
@stopping_settings_option
def stop(
    launch_id: str | None, stop_all: bool, yes: bool, keep_disk: bool, keep_s: float | None, settings: Settings
) -> int:
    """End a launch and confirm that its instance is gone; or stop it with its disk kept.

    Exit codes: 0 done, 1 you did not confirm, 2 usage, 3 it could not be confirmed; the daemon keeps trying.
    """
    import logging

    from gpuwatch.app.launches.stop import stop as end
    from gpuwatch.daemon.log_records import RepeatedLines

    if stop_all == (launch_id is not None):
        raise UsageError("expected a launch ID, or --all; list launches with: gpuwatch launches")
    if keep_disk or keep_s is not None:
        if launch_id is None or not keep_disk:
            raise UsageError("expected one launch ID with --keep-disk, and --for only with it")
        return _stop_keeping(settings, launch_id, keep_s)
    ids = _active_launch_ids(settings) if stop_all else [str(launch_id)]
    if not ids:
        click.echo("no launch is active")
        return Exit.DONE
    if stop_all and not yes and not _confirm_all(len(ids)):
        note("nothing was stopped")
        return Exit.FAILED
    if logging.lastResort is not None:
        logging.lastResort.addFilter(RepeatedLines())  # polls every second and may log the same line each time
    if end(settings, ids, click.echo, actor=command_actor()):
        return Exit.DONE
    note("not confirmed yet: check at the provider; `gpuwatch run` keeps trying")
    return Exit.CANNOT_TELL


def _stop_keeping(settings: Settings, launch_id: str, keep_s: float | None) -> int:
    from gpuwatch.app.launches.keep_disk import keep_disk

    if keep_disk(settings, launch_id, keep_s, click.echo, actor=command_actor()):
        click.echo(f"start it again with: gpuwatch launches start {launch_id} --for 4h")
        return Exit.DONE
    note("not confirmed yet: check at the provider; `gpuwatch run` keeps trying")
    return Exit.CANNOT_TELL


@click.command(
    cls=Command, examples=("gpuwatch launches start k3f7q2mzt5ab", "gpuwatch launches start k3f7q2mzt5ab --for 4h")
)
@click.argument("launch_id", shell_complete=completes("launches"))
@duration_option("--for", "runtime_s", "How long it may run. Default: max_runtime of its watch.")
@settings_option
def start(launch_id: str, runtime_s: float | None, settings: Settings) -> int:
    """Start a launch again that was stopped with its disk kept, if limits and budgets allow it.

    Exit codes: 0 it runs, 2 usage or a limit, 3 it does not run yet: its GPUs may be rented to another.
    """
    from gpuwatch.app.launches.keep_disk import start as start_launch

    if start_launch(settings, launch_id, runtime_s, click.echo, actor=command_actor()):
        return Exit.DONE
    note("it does not run yet: its GPUs may be rented to another; `gpuwatch run` keeps trying, see: gpuwatch launches")
    return Exit.CANNOT_TELL


def _active_launch_ids(settings: Settings) -> list[str]:
    """The active launches, printed with price and cost, and the labelled instances that belong to no launch."""
    from gpuwatch.app.launches.stop import plan_stop_all
    from gpuwatch.app.watches.pauses import pauses

    now = real_now()
    stop_plan = plan_stop_all(settings)
    if stop_plan.launches:
        print_launches(stop_plan.launches, now, settings.timezone)
    for provider, instance in stop_plan.unknown:
        label = displayable(instance.label or "")
        at = f"instance {instance.instance_id} at {provider}, label {label}"
        note(f"not touched: {at} belongs to no active launch; see: gpuwatch launches adopt --help")
    for provider in stop_plan.unlisted:
        note(f"{provider} does not list its instances now: other instances may exist there")
    is_paused = any(pause.watch is None for pause in pauses(settings).in_force(now))
    if stop_plan.launches and (not settings.dry_run or settings.left_out) and not is_paused:
        note("a running daemon may rent again; to prevent that, run: gpuwatch watches pause")
    return [launch.launch_id for launch in stop_plan.launches]


def _confirm_all(count: int) -> bool:
    """Ask on a terminal only: a script that passes --all means it, and instances cost money in the meantime."""
    subject = "this launch" if count == 1 else f"these {count} launches"
    return not sys.stdin.isatty() or click.confirm(f"End {subject}?", err=True)


def print_launches(launches: Sequence[Launch], now: datetime, timezone: str) -> None:
    """Print a line for each launch."""
    if not launches:
        click.echo("no launches yet")
        return
    columns = (
        left("launch", "launch_id"),
        left("watch", "watch", drop=2),
        left("state", state_of),
        left("GPU", lambda launch: hardware_text(launch.gpu, launch.gpu_count)),
        right("price", lambda launch: _price(current_microusd_hour(launch) / MICRO)),
        right("cost", lambda launch: dollars(usd(cost_microusd(launch, now))), drop=1),
        left("instance", "instance_id", drop=1),
        left("since", lambda launch: launch.running_at or launch.intended_at, drop=3),
        text("end", "end_reason", drop=4),
    )
    table(columns, launches, timezone=timezone)


def _price(usd_hour: float | None) -> str | None:
    return None if usd_hour is None else per_hour(usd_hour, least=3, most=3)


@click.command(cls=Command, examples=("gpuwatch launches extend k3f7q2mzt5ab --by 2h",))
@click.argument("launch_id", shell_complete=completes("launches"))
@duration_option("--by", "by_s", "Additional time, such as 2h.")
@json_option
@settings_option
def extend(launch_id: str, by_s: float | None, as_json: bool, settings: Settings) -> None:
    """Let a running launch run past its max_runtime, if the budgets allow it."""
    from decimal import ROUND_CEILING

    from gpuwatch.app.launches.extend import extend as extend_launch
    from gpuwatch.domain.launches.life.launch_record import launch_view
    from gpuwatch.domain.market.money import amount_text

    if not by_s:
        raise UsageError("expected the additional time, such as --by 2h")
    extension = extend_launch(settings, launch_id, by_s, actor=command_actor())
    if not extension.is_contract_known:
        note(f"{extension.launch.provider} does not list the instance now: its contract may end earlier")
    if as_json:
        json_out(launch_view(extension.launch, real_now()))
        return
    at, max_cost = (
        local(extension.ends_at, settings.timezone),
        amount_text(usd(extension.more_microusd), rounding=ROUND_CEILING),
    )
    click.echo(f"launch {launch_id} ends at {at}; additional cost at most ${max_cost}")


@click.command(
    cls=Command,
    examples=("gpuwatch launches adopt 48000027 --watch h100-night", "gpuwatch launches adopt 48000027 --not-mine"),
)
@click.argument("instance")
@click.option(
    "--watch",
    metavar="NAME",
    default=None,
    help="Watch whose limits apply. Default: the only watch that rents.",
    shell_complete=completes("watches"),
)
@click.option(
    "--not-mine",
    is_flag=True,
    help="Mark it as another installation's: never report or touch that installation's instances.",
)
@provider_option()
@settings_option
def adopt(instance: str, watch: str | None, not_mine: bool, provider: str | None, settings: Settings) -> None:
    """Take over an INSTANCE that has gpuwatch's label and belongs to no launch.

    Exit codes: 0 done, 1 failed, 2 usage, 3 the provider did not list its instances.
    """
    from gpuwatch.app.launches.launches import adopt as adopt_instance
    from gpuwatch.app.launches.launches import mark_foreign

    if not_mine and watch is not None:
        raise UsageError("use either --not-mine or --watch NAME")
    if not_mine:
        mark_foreign(settings, instance, provider, actor=command_actor())
        click.echo(f"instance {instance} is marked as another installation's; gpuwatch leaves it alone")
        return
    launch = adopt_instance(settings, instance, provider, watch, actor=command_actor())
    click.echo(f"instance {instance} is launch {launch.launch_id} of watch {launch.watch}, {launch.state.value}")
    if launch.max_runtime_s is None:
        note("its watch has no max_runtime: the instance runs until you end it")
