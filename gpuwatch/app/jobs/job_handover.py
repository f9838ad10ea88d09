"""A job on several machines as a task of an orchestrator, with the job's own limits. Rents and stores nothing.

Source: SkyPilot 0.14.1 and dstack 0.22.5 as in `handover`. The tools read secrets without a value, and `env` entries
that are only names, where they are started.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpuwatch.app.watches.check import check_markets
from gpuwatch.app.watches.handover import Handover, select_handover
from gpuwatch.bootstrap import real_now
from gpuwatch.domain.jobs.cluster_task import dstack_commands
from gpuwatch.domain.jobs.job import new_job
from gpuwatch.domain.jobs.job_definition import JobDefinition
from gpuwatch.domain.jobs.job_watch import max_runtime_s, price_cap, waiting_job_watch, work_hours_left
from gpuwatch.domain.watches.choice import best_first
from gpuwatch.domain.watches.orchestrator_task import orchestrator_task_of
from gpuwatch.settings.validate import read_job_file

if TYPE_CHECKING:
    from gpuwatch.settings import Settings


_IDLE_MINUTES: Final = 10
_LEFT_OUT: Final = ("prepare", "inputs", "results", "checkpoint", "pilot", "active")


class JobHandover(msgspec.Struct, frozen=True, kw_only=True):
    """A job's task, and related facts.

    Attributes:
        usd_hour: for all machines, at the price of the offer, commission included; None: nothing matched.
        usd_low: for the whole work at that price; None: the job states no hours.
        left_out: keys of the job file that the tool does not support.
    """

    handover: Handover
    nodes: int
    usd_hour: float | None
    usd_low: float | None
    usd_high: float | None
    runtime_s: int
    left_out: tuple[str, ...]


def job_handover(settings: Settings, file: Path, tool: str, provider_names: Sequence[str] = ()) -> JobHandover:
    """Poll once for a job, and convert its best offer to a task. Raises SettingsError: its file is invalid."""
    spec, now = _for_one_machine(read_job_file(file, settings.groups)), real_now()
    job = new_job(msgspec.structs.replace(spec, prepare=None, nodes=1), "handover", now)
    watch = msgspec.structs.replace(waiting_job_watch(job, price_cap(job), now), auto=None)
    checked = check_markets(settings, [watch], provider_names)
    runtime_s = int(max_runtime_s(job, price_cap(job), now))
    handover = select_handover(
        tool,
        best_first(watch, checked.matches[watch.name]),
        lambda match: _task(orchestrator_task_of(tool, watch, match, ""), tool, spec, runtime_s),
        complete=checked.is_complete,
        nodes=spec.nodes,
    )
    usd_hour = None if handover.match is None else handover.match.price.price_microusd_hour * spec.nodes / 1_000_000
    hours = spec.hours
    return JobHandover(
        handover=handover,
        nodes=spec.nodes,
        usd_hour=usd_hour,
        usd_low=None if usd_hour is None or hours is None else usd_hour * hours.low,
        usd_high=None if usd_hour is None or hours is None else usd_hour * work_hours_left(job),
        runtime_s=runtime_s,
        left_out=tuple(key for key in _LEFT_OUT if getattr(spec, key)),
    )


def _for_one_machine(spec: JobDefinition) -> JobDefinition:
    """The job with each machine's share of the limits: the caps of both tools apply to one machine."""
    return msgspec.structs.replace(spec, limit=spec.limit.share(spec.nodes))


def _task(task: Any, tool: str, spec: JobDefinition, runtime_s: int) -> dict[str, Any]:
    """The parts that come from the job: machines, image, variables, commands, an end. Pure."""
    command = spec.script if spec.script is not None else spec.command
    key = "max_hourly_cost" if tool == "skypilot" else "max_price"
    cap = dict(task["resources"] if tool == "skypilot" else task)[key]
    if spec.limit.max_usd_hour is not None:
        cap = min(cap, math.floor(float(spec.limit.max_usd_hour) * 10_000) / 10_000)
    if tool == "skypilot":
        end = {"idle_minutes": _IDLE_MINUTES, "down": True}
        image = f"docker:{spec.resources.launch.image}" if spec.resources.launch else None
        fields: dict[str, Any] = {
            "name": task["name"],
            "num_nodes": spec.nodes,
            "resources": {**task["resources"], key: cap, "image_id": image, "autostop": end},
            "envs": {"GPUWATCH_JOB": spec.name, **spec.env},
        }
        if spec.secret_env:
            fields["secrets"] = dict.fromkeys(spec.secret_env)
        if spec.setup:
            fields["setup"] = spec.setup
        return fields | {"run": f"timeout {runtime_s} bash -c {shlex.quote(command)}"}
    env = [f"{name}={text}" for name, text in {"GPUWATCH_JOB": spec.name, **spec.env}.items()]
    return {
        **task,
        key: cap,
        "nodes": spec.nodes,
        "image": spec.resources.launch.image if spec.resources.launch else None,
        "env": [*env, *spec.secret_env],
        "commands": dstack_commands(spec),
        "max_duration": f"{runtime_s}s",
    }
