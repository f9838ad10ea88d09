"""Rules of a watch: what it may inherit, its limit, its launch, and the limits without which nothing is rented."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from copy import copy
from functools import cache
from typing import Any

from pydantic import BaseModel, create_model
from pydantic.fields import FieldInfo

from gpuwatch.domain.plan.job_hours import JobSpec, hours_on
from gpuwatch.domain.setup.fields import Table, keys_of, models_in, table_of
from gpuwatch.domain.setup.layered_tables import KeyOf
from gpuwatch.domain.watches.launch_spec import Budget, EndPolicy, LaunchSpec, VerificationMode
from gpuwatch.domain.watches.launch_text import check_self_destruct
from gpuwatch.domain.watches.orchestrator_task import uses_task_file, word_faults
from gpuwatch.domain.watches.watch import Action, Prefer, SpotPolicy, Watch
from gpuwatch.settings.plugin_options import KeyPath

WITHOUT_LIMIT = (
    "new_low",
    "drop_by",
    "percentile",
    "restock",
    *("usd_per_tflop_hour", "usd_per_gib_hour"),
)  # conditions that are news or a limit by themselves: an alert needs no price

# --- what `[defaults.watch]` and `[group.NAME]` may hold --------------------------------------------------------------

OWN_KEYS = ("name", "renamed_from", "group")  # of each watch alone
# though they are written as tables
_ONE_VALUE = frozenset({"CommissionTable", "GpuCount", "HookSpec", "OwnMachine", "WebToken"})


class HeritableTable(Table):
    """Keys that watches inherit: none is required here, because a watch may add what is missing."""


def table_model(field: FieldInfo) -> type[BaseModel] | None:
    """The table of a field, if the field can be nothing else."""
    models = models_in(field.annotation)
    return models[0] if models and models[0].__name__ not in _ONE_VALUE else None


@cache
def heritable_table() -> type[HeritableTable]:
    """The table of `[defaults.watch]` and of each group."""
    return _optional(table_of(Watch), "WatchDefaults", OWN_KEYS)


def _optional(table: type[BaseModel], name: str, left_out: Collection[str] = ()) -> type[HeritableTable]:
    keys: dict[str, Any] = {}
    for key, field in keys_of(table).items():
        inner, optional = table_model(field), copy(field)
        optional.default, optional.default_factory = None, None
        if inner is not None:
            optional.annotation = _optional(inner, f"{inner.__name__}Defaults")
        if key not in left_out:
            keys[key] = (optional.annotation, optional)
    return create_model(name, __base__=HeritableTable, **keys)


@cache
def watch_tables() -> frozenset[KeyOf]:
    """The keys of a watch that hold keys of their own."""
    return frozenset({*_inner_tables(table_of(Watch), ()), ("launch", "env")})


def _inner_tables(table: type[BaseModel], path: KeyOf) -> Iterator[KeyOf]:
    for key, field in keys_of(table).items():
        if (inner := table_model(field)) is not None:
            yield (*path, key)
            yield from _inner_tables(inner, (*path, key))


# --- machines without GPUs --------------------------------------------------------------------------------------------

_OF_GPUS = (
    *("gpu_count", "min_vram_gib", "min_cuda", "min_driver", "min_dlperf", "nvlink"),
    *("usd_per_tflop_hour", "usd_per_gib_hour", "max_job_cost", "handover"),
)
_OF_HISTORY = ("new_low", "drop_by", "percentile")  # the history has no aggregates of machines without GPUs


def no_gpu_errors(watch: Watch, written: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """Keys of a watch with `gpu = "none"` that only apply to GPUs, or to the history of their prices."""
    if not watch.wants_no_gpu:
        return
    for key in _OF_GPUS:
        if written.get(key) not in (None, False):
            yield (key,), 'expected only with GPUs, and gpu = "none" wants none'
    for key in _OF_HISTORY:
        if written.get(key) is not None:
            yield (key,), 'cannot be combined with gpu = "none": only prices of GPUs are compared with the past'
    if watch.auto is not None:
        yield ("max_price",), '"auto" cannot be combined with gpu = "none": expected USD per hour of the machine'
    if watch.prefer is Prefer.FASTEST_PER_DOLLAR:
        yield ("prefer",), 'cannot be combined with gpu = "none", which has no TFLOP/s'
    if watch.launch is not None and watch.launch.idle_below is not None:
        yield ("launch", "idle_below"), 'cannot be combined with gpu = "none": it is the utilisation of GPUs'


# --- the limit: a price, the history, or the cost of the job; exactly one, with its required keys ---------------------


def price_errors(watch: Watch, written: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """Keys that exclude or require each other, with their path within the watch.

    Args:
        written: its table, as the owner wrote it.
    """
    if watch.unlimited and not _needs_no_limit(watch, written):
        alternatives = ("max_job_cost", *(WITHOUT_LIMIT if watch.action is Action.ALERT else ()))
        yield ("max_price",), f"required key is missing; expected: USD per GPU-hour, or {' or '.join(alternatives)}"
    if "max_price" in written and "max_job_cost" in written:
        yield ("max_job_cost",), "expected either max_price or max_job_cost, not both"
    for key, example in (("max_price_cap", "max_price_cap = 3.50"), ("deadline", 'deadline = "2d"')):
        if (written.get("max_price") == "auto") != (key in written):
            is_missing = key not in written
            yield (key,), f'required with max_price = "auto", such as {example}' if is_missing else _ONLY_AUTO
    yield from _clause_errors(watch, written)
    yield from _job_errors(watch, written)


def _needs_no_limit(watch: Watch, written: Mapping[str, Any]) -> bool:
    """Alerts whose condition is a limit by itself need no price; watches that rent must limit the cost."""
    return watch.action is Action.ALERT and any(written.get(key) not in (None, False) for key in WITHOUT_LIMIT)


def _clause_errors(watch: Watch, written: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    if watch.drop_by is None and "drop_over" in written:
        yield ("drop_over",), "expected only with drop_by"
    if watch.percentile is None and "percentile_over" in written:
        yield ("percentile_over",), "expected only with percentile"
    if watch.new_low_s is not None and watch.hold_for_s:
        yield ("hold_for",), "cannot be combined with new_low: a price is a new low only once"
    if "any" in written and not watch.any_of:
        yield ("any",), "expected at least one condition"
    if "spot_for" in written and watch.spot is not SpotPolicy.FIRST:
        yield ("spot_for",), 'expected only with spot = "first"'
    if watch.restock and watch.spot is SpotPolicy.FIRST:
        yield ("spot",), '"first" cannot be combined with restock, which fires when the offer first appears'
    if watch.restock and watch.hold_for_s:
        yield ("hold_for",), "cannot be combined with restock, which fires when the offer first appears"


def _job_errors(watch: Watch, written: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    if watch.max_job_cost_usd is not None and watch.job is None:
        yield ("job",), "required with max_job_cost: add [watch.job], or max_runtime under [watch.launch]"
    if watch.job is not None and watch.max_job_cost_usd is None:
        yield ("job",), "expected only with max_job_cost"
    if watch.job is not None and watch.max_job_cost_usd is not None:
        missing = [(("job", key), text) for key, text in _missing_job_keys(watch, written.get("job"))]
        yield from missing or _unknown_job_length(watch, watch.job)


def _missing_job_keys(watch: Watch, job: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """Missing keys for the length and cost of a job; None: the launch, whose length is known."""
    if job is None:
        return
    if "hours" not in job and "tokens" not in job:
        yield "hours", "required key is missing; expected: hours of work, or tokens"
    if "hours" in job and "tokens" in job:
        yield "tokens", "expected either hours or tokens, not both"
    if "tokens" in job and "tokens_per_s" not in job and not {"model", "utilisation"} <= set(job):
        yield "tokens_per_s", "required with tokens, or set model and utilisation"
    has_several = len(watch.gpu) > 1 or watch.gpu_count_min != watch.gpu_count_max
    if "hours" in job and "on" not in job and has_several:
        yield "on", 'required if the watch accepts different GPUs, such as on = "4x A100"'
    if "speedup" in job and not {"hours", "on"} <= set(job):
        yield "speedup", "expected only with hours and on"
    if watch.spot is not SpotPolicy.NO and "interruptions_per_day" not in job:
        yield "interruptions_per_day", f'required with spot = "{watch.spot}", such as 2'


def _unknown_job_length(watch: Watch, job: JobSpec) -> Iterator[tuple[KeyPath, str]]:
    """Report that the length of the job cannot be computed for any GPU of the watch."""
    counts = range(watch.gpu_count_min, watch.gpu_count_max + 1)
    estimates = [hours_on(job, gpu, count) for gpu in watch.gpu_names for count in counts]
    reasons = [estimate for estimate in estimates if isinstance(estimate, str)]
    if len(reasons) == len(estimates):
        yield ("job",), f"cannot compute its length for any GPU of the watch: {reasons[0]}"


_ONLY_AUTO = 'expected only with max_price = "auto"'
_COMMAND_LAUNCH_KEYS = frozenset({"max_active", "max_total", "max_runtime", "on_running", "on_ended", "hook_timeout"})

# --- the launch -------------------------------------------------------------------------------------------------------


def launch_errors(watch: Watch, written: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """Keys of one launch that conflict with each other or with their watch, with their path within the watch.

    Args:
        written: the table of the watch, as the owner wrote it.
    """
    keys = set(written.get("launch") or ())
    if watch.relocate is not None and not watch.rents_itself:
        yield ("relocate",), 'expected only with action = "launch" or "ask"'
    if watch.on_end is EndPolicy.STOP and not watch.rents_itself:
        yield ("on_end",), 'expected only with action = "launch" or "ask"'
    yield from _command_errors(watch, written, keys)
    if watch.launch is None:
        return
    for key, text in (*_watch_conflicts(watch, watch.launch), *_launch_conflicts(watch.launch, keys)):
        yield ("launch", key), text


def _command_errors(
    watch: Watch, written: Mapping[str, Any], launch_keys: Collection[str]
) -> Iterator[tuple[KeyPath, str]]:
    """The rules of a command, and limits that gpuwatch cannot enforce on what the command rents."""
    if watch.action is not Action.COMMAND:
        for key in ("command", "command_timeout", "handover"):
            if key in written:
                yield (key,), 'expected only with action = "command"'
        return
    if not watch.command:
        yield (
            ("command",),
            'required key is missing; expected program and arguments, such as command = ["sky", "launch", …]',
        )
        return
    yield from ((("command",), text) for text in word_faults(watch.command))
    if watch.max_job_cost_usd is not None:
        yield ("max_job_cost",), 'use max_price with action = "command": the command gets an hourly limit'
    if uses_task_file(watch.command) != (watch.handover is not None):
        yield (
            ("handover",),
            'expected with {task_file} in command, such as { to = "skypilot", run = "./train" }',
        )
    for key in sorted(set(launch_keys) - _COMMAND_LAUNCH_KEYS):
        yield (
            ("launch", key),
            'expected only with action = "launch" or "ask": gpuwatch does not see what a command rents',
        )


def missing_limits(watch: Watch, written: Mapping[str, Any], budget: Budget) -> Iterator[tuple[KeyPath, str]]:
    """Renting for real requires a limit in dollars and one in time; `max_active` is 1 by default."""
    if watch.action is Action.ALERT:
        return
    present = written.get("launch") or ()
    missing = [] if budget.max_usd_hour is not None else ["max_usd_hour = 20.0 under [budget]"]
    launch_limits = [] if "max_runtime" in present else ['max_runtime = "24h"']
    if (missing or launch_limits) and "max_active" not in present:
        launch_limits.append("max_active = 1")
    if launch_limits:
        missing.append(f"{' and '.join(launch_limits)} under this watch's [watch.launch]")
    if missing:
        text = f'action = "{watch.action}" with dry_run = false needs limits; add: {"; ".join(missing)}'
        yield ("action",), text


def _watch_conflicts(watch: Watch, launch: LaunchSpec) -> Iterator[tuple[str, str]]:
    if watch.spot is SpotPolicy.NO:
        if launch.bid is not None:
            yield "bid", 'requires spot = "only", "any" or "first" here: only interruptible offers accept bids'
        if launch.relaunch:
            yield (
                "relaunch",
                'requires spot = "only", "any" or "first" here: only such instances are preempted',
            )
    if watch.on_end is EndPolicy.STOP and launch.self_destruct is True:
        yield "self_destruct", 'cannot be combined with on_end = "stop": the instance would destroy its own disk'
    if launch.stop_outside and not watch.active:
        yield "stop_outside", 'requires `active` in this watch, such as active = ["22:00-08:00"]'


def _launch_conflicts(launch: LaunchSpec, present: set[str]) -> Iterator[tuple[str, str]]:
    if {"onstart", "onstart_file"} <= present:
        yield "onstart_file", "expected either onstart or onstart_file, not both"
    if launch.self_destruct is True:
        yield from _self_destruct(launch)
    if launch.runtype == "args" and launch.verify is VerificationMode.SSH:
        yield "verify", 'not possible with runtype "args", which has no SSH port'
    if "wasteful_for" in present and launch.wasteful_below is None:
        yield "wasteful_for", "expected only with wasteful_below"


def _self_destruct(launch: LaunchSpec) -> Iterator[tuple[str, str]]:
    """The requirements of `self_destruct`, which adds lines before the start script, so it needs one."""
    if launch.max_runtime_s is None:
        yield "self_destruct", 'requires max_runtime, such as max_runtime = "24h"'
    if launch.runtype == "args":
        yield "self_destruct", 'not possible with runtype "args", where onstart is the entrypoint and not a script'
    if launch.template is not None and launch.onstart is None:
        yield "self_destruct", "requires onstart, which replaces the template's"
    try:
        check_self_destruct(launch.onstart or "")
    except ValueError as error:
        yield "onstart", str(error)
