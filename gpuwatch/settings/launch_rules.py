"""Rules between the keys of a launch, and the limits without which gpuwatch rents nothing."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.domain.watches.launch_schema import BudgetTable, LaunchTable
from gpuwatch.domain.watches.launch_text import check_self_destruct
from gpuwatch.domain.watches.schema import WatchTable
from gpuwatch.settings.options import KeyPath


def launch_errors(watch: WatchTable) -> Iterator[tuple[KeyPath, str]]:
    """Keys of one launch that contradict each other or their watch; each with its path within the watch."""
    if watch.launch is None:
        return
    for key, text in (*_beside_the_watch(watch, watch.launch), *_beside_each_other(watch.launch)):
        yield ("launch", key), text


def missing_limits(watch: WatchTable, budget: BudgetTable) -> Iterator[tuple[KeyPath, str]]:
    """Renting for real needs a limit in dollars and one in time; `max_active` is 1 by default."""
    if watch.action == "alert":
        return
    there = watch.launch.model_fields_set if watch.launch else set()
    missing = [] if budget.max_usd_hour is not None else ["max_usd_hour = 20.0 under [budget]"]
    below = [] if "max_runtime" in there else ['max_runtime = "24h"']
    if (missing or below) and "max_active" not in there:
        below.append("max_active = 1")
    if below:
        missing.append(f"{' and '.join(below)} under this watch's [watch.launch]")
    if missing:
        text = f'action = "{watch.action}" with dry_run = false needs limits; add: {"; ".join(missing)}'
        yield ("action",), text


def _beside_the_watch(watch: WatchTable, launch: LaunchTable) -> Iterator[tuple[str, str]]:
    if watch.spot == "no":
        if launch.bid is not None:
            yield "bid", 'expected spot = "only" or "any" in this watch: only interruptible offers take bids'
        if launch.relaunch:
            yield "relaunch", 'expected spot = "only" or "any" in this watch: only those are preempted'
    if launch.stop_outside and not watch.active:
        yield "stop_outside", 'expected `active` in this watch, such as active = ["22:00-08:00"]'


def _beside_each_other(launch: LaunchTable) -> Iterator[tuple[str, str]]:
    written = launch.model_fields_set
    if {"onstart", "onstart_file"} <= written:
        yield "onstart_file", "expected either onstart or onstart_file, not both"
    if launch.self_destruct:
        yield from _self_destruct(launch)
    if launch.runtype == "args" and launch.verify == "ssh":
        yield "verify", 'expected another runtype than "args", which has no SSH port'
    if "wasteful_for" in written and launch.wasteful_below is None:
        yield "wasteful_for", "expected wasteful_below beside it"


def _self_destruct(launch: LaunchTable) -> Iterator[tuple[str, str]]:
    """It adds lines before the start script, so there must be a start script."""
    if launch.max_runtime is None:
        yield "self_destruct", 'expected max_runtime beside it, such as max_runtime = "24h"'
    if launch.runtype == "args":
        yield "self_destruct", 'expected another runtype than "args", whose onstart is the entrypoint and not a script'
    if launch.template is not None and launch.onstart is None:
        yield "self_destruct", "expected onstart beside it: it replaces the template's"
    try:
        check_self_destruct(launch.onstart or "")
    except ValueError as error:
        yield "onstart", str(error)
