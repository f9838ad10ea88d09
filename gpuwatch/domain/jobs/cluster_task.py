"""A job on several machines as a dstack run: its limits, its reservation, its task. Pure.

Source: dstack 0.22.5, `TaskConfiguration` and `ProfileParams`: `max_price` is "the maximum instance price per hour",
so it applies to one machine. `max_duration` counts from the start of a run's command, and dstack's server enforces it.
"""

from __future__ import annotations

import math
from datetime import datetime
from decimal import ROUND_DOWN
from typing import Any, Final

import msgspec

from gpuwatch.domain.jobs.job import Job
from gpuwatch.domain.jobs.job_definition import JobDefinition
from gpuwatch.domain.jobs.job_watch import latest_spot_wait, max_runtime_s, price_cap, waiting_job_watch
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.market.gpu_cards import gpu_specs
from gpuwatch.domain.market.money import MICRO, OfferPrice
from gpuwatch.domain.market.offer import Offer, OfferTerms
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import LaunchSpec, VerificationMode
from gpuwatch.domain.watches.orchestrator_task import (
    LEAST_MEMORY,
    STEP_USD,
    is_supported,
    model_name,
    names_at,
    providers_of_clusters,
)
from gpuwatch.domain.watches.watch import SpotPolicy, Watch

TOOL: Final = "dstack"  # the provider name of its launches
_SPOT: Final = {SpotPolicy.NO: "on-demand", SpotPolicy.ONLY: "spot", SpotPolicy.ANY: "auto"}


def is_cluster(job: Job) -> bool:
    """Return whether the job runs on several machines, which dstack rents."""
    return job.definition.nodes > 1


def cluster_watch(job: Job, now: datetime) -> Watch:
    """The watch of a job while its machines are requested, with each machine's share of the job's limits."""
    one = _one_machine(job)
    cap = price_cap(one)
    watch = waiting_job_watch(one, cap, now)
    launch = watch.launch or LaunchSpec()
    launch = msgspec.structs.replace(launch, max_runtime_s=max_runtime_s(one, cap, now), verify=VerificationMode.NONE)
    budget = msgspec.structs.replace(watch.budget, max_usd_hour=job.definition.limit.max_usd_hour)
    return msgspec.structs.replace(watch, auto=None, launch=launch, budget=budget)


def cluster_match(job: Job, watch: Watch, now: datetime) -> Match:
    """The amount to reserve: all machines at the highest price that dstack may pay for each."""
    nodes, gpus = job.definition.nodes, watch.gpu_count_min
    usd_hour = (watch.max_price_usd_gpu_hour * gpus).quantize(STEP_USD, ROUND_DOWN) * nodes
    name = watch.gpu_names[0] if watch.gpu_names else "any"
    offer = Offer(
        provider=TOOL,
        offer_id=f"{job.job_id}-{job.run_number + 1}",
        machine_id=None,
        gpu=name,
        gpu_family=name,
        gpu_wire=name,
        gpu_known=False,
        gpu_count=gpus * nodes,
        gpu_memory_gib=None,
        spot=False,  # it does not bid
        quoted_usd_hour=float(usd_hour),
        quoted_disk_gb=watch.disk_gb or 0.0,
        disk_usd_gb_month=None,
        observed_at=now,
        terms=OfferTerms(machines=nodes),
    )
    microusd_hour = int(usd_hour * MICRO)
    price = OfferPrice(listed_microusd_hour=microusd_hour, price_microusd_hour=microusd_hour, commission_rate=0.0)
    return Match(offer=offer, price=price)


def dstack_task(job: Job, launch: Launch) -> dict[str, Any]:
    """The task as a dstack configuration: always the same for the same launch."""
    spec, nodes = job.definition, job.definition.nodes
    watch = spec.resources
    gpu: dict[str, Any] = {"count": watch.gpu_count_min}
    if watch.gpu_names:
        gpu["name"] = sorted({model_name(name) for name in watch.gpu_names})
    if (memory := _least_memory_gib(watch)) is not None:
        gpu["memory"] = f"{memory}GB.."
    resources: dict[str, Any] = {"gpu": gpu}
    if watch.disk_gb:
        resources["disk"] = f"{math.ceil(watch.disk_gb)}GB.."
    env = [f"{name}={text}" for name, text in {"GPUWATCH_JOB": spec.name, **spec.env}.items()]
    task = {
        "type": "task",
        "name": launch.label,
        "nodes": nodes,
        "image": watch.launch.image if watch.launch else None,
        "env": [*env, *spec.secret_env],
        "commands": dstack_commands(spec),
        "resources": resources,
        "spot_policy": _spot_policy(job, launch),
        "max_price": launch.most_microusd_hour / nodes / MICRO,
        "max_duration": f"{int(launch.max_runtime_s or 0)}s",
        "idle_duration": "0s",  # machines end with their run
        "retry": False,  # gpuwatch decides about further runs
    }
    if watch.providers is not None:
        task["backends"] = sorted(names_at(name)["dstack"] for name in watch.providers)
    return task


def dstack_commands(spec: JobDefinition) -> list[str]:
    """The set-up and the command, each in braces.

    dstack joins its commands by ` && ` into one shell line (`_join_shell_commands`): without braces, a comment or a
    here-document at the end of the set-up would swallow the command, and the run would be done without it.
    """
    command = spec.script if spec.script is not None else spec.command
    return [f"{{\n{part}\n}}" for part in (spec.setup, command)] if spec.setup else [command]


def _spot_policy(job: Job, launch: Launch) -> str:
    """Spot machines alone while the job can wait for them; the launch's own time keeps its task the same."""
    spot = job.definition.resources.spot
    if spot is not SpotPolicy.FIRST:
        return _SPOT[spot]
    until = latest_spot_wait(job)
    return "spot" if until is not None and launch.intended_at < until else "auto"


def unfit_for_cluster(spec: JobDefinition) -> str | None:
    """Why dstack cannot run this job, in one line; None: it can."""
    left_out = [key for key in ("inputs", "results", "checkpoint", "pilot") if getattr(spec, key)]
    if left_out:
        return f"{', '.join(left_out)}: not supported on clusters; use setup and command"
    if spec.resources.action.value == "ask":
        return 'action = "ask": dstack chooses the machines of a cluster, so there is no offer to approve'
    if spec.resources.spot is SpotPolicy.FIRST and spec.deadline_s is None and spec.deadline_at is None:
        return 'resources.spot = "first": needs a deadline on clusters; only dstack sees the offers that start spot_for'
    if spec.resources.min_reputation is not None:
        return "resources.min_reputation: dstack chooses the machines of a cluster and does not support it"
    unfit = [name for name in spec.resources.providers or () if not is_supported(TOOL, name, spec.nodes)]
    if unfit:
        fit = ", ".join(providers_of_clusters(TOOL))
        return f"resources.providers: dstack runs no cluster at {', '.join(unfit)}; it does at {fit}"
    return None


def _one_machine(job: Job) -> Job:
    """The job with one machine's share of the limits and of the money spent."""
    nodes = job.definition.nodes
    share = job.definition.limit.share(nodes)
    watch = msgspec.structs.replace(job.definition.resources, gpu_count_max=job.definition.resources.gpu_count_min)
    definition = msgspec.structs.replace(job.definition, limit=share, resources=watch, nodes=1)
    return msgspec.structs.replace(job, definition=definition, spent_microusd=-(-job.spent_microusd // nodes))


def _least_memory_gib(watch: Watch) -> int | None:
    """The least memory of a GPU to request, in GiB: it excludes smaller cards that share the name."""
    known = [specs.memory_gib for name in watch.gpu_names if (specs := gpu_specs().get(name)) is not None]
    of_card = min(known) * LEAST_MEMORY if known and len(known) == len(watch.gpu_names) else 0.0
    least = max(watch.min_vram_gib or 0.0, of_card)
    return math.floor(least) or None
