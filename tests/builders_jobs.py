"""Jobs with plain defaults: a test names only what matters to it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from gpuwatch.domain.jobs.job import Job, JobState
from gpuwatch.domain.jobs.job_definition import JobDefinition
from gpuwatch.domain.jobs.job_values import JobLimit
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action
from tests.builders import NOON, a_watch


def a_definition(**changes: Any) -> JobDefinition:
    """`python train.py` on one H100 at or under 3.60 $ per GPU-hour."""
    name = changes.get("name", "train")
    plain: dict[str, Any] = {
        "name": name,
        "command": "python train.py",
        "resources": a_watch(name=f"job:{name}", action=Action.LAUNCH, launch=LaunchSpec(max_total=0)),
        "limit": JobLimit(max_price_usd_gpu_hour=Decimal("3.60")),
    }
    return JobDefinition(**(plain | changes))


def a_job(**changes: Any) -> Job:
    """One queued job, submitted at noon."""
    definition = changes.pop("definition", None) or a_definition(name=changes.get("name", "train"))
    plain: dict[str, Any] = {
        "job_id": "jobaaaa2",
        "name": definition.name,
        "definition": definition,
        "state": JobState.QUEUED,
        "priority": definition.priority,
        "submitted_at": NOON,
        "retries_left": definition.retries,
    }
    return Job(**(plain | changes))
