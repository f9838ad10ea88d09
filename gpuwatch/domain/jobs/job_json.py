"""The JSON of jobs, shared by commands, the API and the chat. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from gpuwatch.domain.jobs.job import Job, JobDefinition, JobEvent, JobRun
from gpuwatch.domain.market.json_values import rfc3339
from gpuwatch.domain.market.money import usd_number


def job_json(job: Job) -> dict[str, Any]:
    """JSON of one job, as in `gpuwatch job list`. Money in USD, `progress` from 0 to 1."""
    return {
        "job_id": job.job_id,
        "name": job.name,
        "state": job.state.value,
        "priority": job.priority,
        "deadline": rfc3339(job.deadline),
        "launch_id": job.launch_id,
        "progress": job.progress,
        "predicted_usd": usd_number(job.predicted_microusd),
        "spent_usd": usd_number(job.spent_microusd),
        "started_at": rfc3339(job.started_at),
        "ended_at": rfc3339(job.ended_at),
        "exit_code": job.exit_code,
        "submitted_at": rfc3339(job.submitted_at),
        "reason": job.reason,
        "run_number": job.run_number,
        "retries_left": job.retries_left,
        "depends_on": list(job.definition.depends_on),
        "group": job.definition.group,
    }


def definition_json(definition: JobDefinition) -> dict[str, Any]:
    """JSON of the job file. Of the environment only names are shown: a value may be a secret."""
    limit, resources = definition.limit, definition.resources
    return {
        "image": resources.launch.image if resources.launch else None,
        "setup": definition.setup,
        "command": definition.command or None,
        "script": definition.script,
        "env": sorted({*definition.env, *definition.secret_env}),
        "inputs": msgspec.to_builtins(definition.inputs),
        "results": msgspec.to_builtins(definition.results),
        "checkpoint": msgspec.to_builtins(definition.checkpoint),
        "pilot": msgspec.to_builtins(definition.pilot),
        "gpu": list(resources.gpu),
        "gpu_count": [resources.gpu_count_min, resources.gpu_count_max],
        "spot": resources.spot.value,
        "action": resources.action.value,
        "require": list(resources.require),
        "limit": {
            "max_price": _number(limit.max_price_usd_gpu_hour),
            "max_usd": _number(limit.max_usd),
            "max_usd_hour": _number(limit.max_usd_hour),
        },
        "hours": list(definition.hours) if definition.hours else None,
        "active": list(definition.active),
        "retries": definition.retries,
    }


def run_json(run: JobRun) -> dict[str, Any]:
    """JSON of one run."""
    return {
        "run_number": run.run_number,
        "launch_id": run.launch_id,
        "step": run.step,
        "ssh_host": run.ssh_host,
        "ssh_port": run.ssh_port,
        "ssh_user": run.ssh_user,
        "started_at": rfc3339(run.started_at),
        "last_seen_at": rfc3339(run.last_seen_at),
        "exit_code": run.exit_code,
        "checkpoint": run.checkpoint,
        "results": list(run.results),
        "ended_at": rfc3339(run.ended_at),
        "end_reason": run.end_reason,
    }


def job_event_json(event: JobEvent) -> dict[str, Any]:
    """JSON of one event."""
    return {"at": rfc3339(event.at), "kind": event.kind, "run_number": event.run_number, "detail": event.detail}


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
