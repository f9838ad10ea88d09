"""Cards at a price that somebody thinks of: "4x A100 @ 1.20 for 72h", compared by what a job costs on them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

import msgspec

from gpuwatch.market.gpu_specs import gpu_specs
from gpuwatch.market.pricing import MICRO, microusd
from gpuwatch.planning.figures import Config, Range, config, exactly
from gpuwatch.planning.job import JobCost, Stage, Traffic, cost_on
from gpuwatch.planning.job_spec import JobSpec

_FORM = re.compile(
    r"(?P<gpus>[^@]+?)\s*@\s*\$?(?P<usd>[0-9]{1,6}(?:\.[0-9]{1,9})?)"
    r"(?:\s+(?:for\s+)?(?P<low>[0-9.]{1,12})(?:h?-(?P<high>[0-9.]{1,12}))?\s*h(?:ours)?)?",
    re.IGNORECASE,
)
EXPECTED = 'expected cards at a price per GPU-hour, such as "4x A100 @ 1.20" or "4x A100 @ 1.20 for 72h"'


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """Some cards at a price per GPU-hour. `hours` None: they follow from the job."""

    text: str
    on: Config
    usd_gpu_hour: Decimal
    hours: Range | None = None

    @property
    def count(self) -> int:
        """One, where none is said."""
        return self.on.count or 1


class Extras(msgspec.Struct, frozen=True, kw_only=True):
    """What an offer would say of itself, the same for all candidates."""

    commission: Decimal = Decimal(0)
    spot: bool = False
    disk_usd_hour: Decimal = Decimal(0)
    download_usd_gb: float | None = None
    upload_usd_gb: float | None = None
    min_billing_s: float = 0.0


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with what the job costs there. `break_even`: as fast as this against the first, it costs as much."""

    candidate: Candidate
    stage: Stage
    cost: JobCost
    break_even: float
    speed: Range  # how many times as fast as the first it is reckoned to be


def candidate(text: str) -> Candidate:
    """From text. Raises ValueError: what was expected."""
    found = _FORM.fullmatch(text.strip())
    if found is None or not Decimal(found["usd"]):
        raise ValueError(f"{text.strip()!r}: {EXPECTED}")
    hours = None
    if found["low"]:
        hours = _hours(found["low"], found["high"] or found["low"])
    return Candidate(text=text.strip(), on=config(found["gpus"]), usd_gpu_hour=Decimal(found["usd"]), hours=hours)


def compared(job: JobSpec, candidates: Sequence[Candidate], traffic: Traffic, extras: Extras) -> list[Compared]:
    """In the given order; the first is what the others are held against. Raises ValueError: one cannot be reckoned."""
    found: list[Compared] = []
    for one in candidates:
        stage = stage_of(one, job, extras)
        cost = cost_on(_with_hours(job, one), stage, traffic)
        if isinstance(cost, str):
            raise ValueError(f"{one.text!r}: {cost}")  # noqa: TRY004 the reason is a text
        first = found[0] if found else None
        speed = exactly(1.0) if first is None else _speed(first.cost, cost)
        even = 1.0 if first is None else stage.microusd_hour / first.stage.microusd_hour
        found.append(Compared(candidate=one, stage=stage, cost=cost, break_even=even, speed=speed))
    return found


def stage_of(one: Candidate, job: JobSpec, extras: Extras) -> Stage:
    """A candidate as an offer would be."""
    name, factor = one.on.gpus[0], 1 + extras.commission
    specs = gpu_specs().get(name)
    return Stage(
        gpu=name,
        count=one.count,
        memory_gib=None if specs is None else specs.memory_gib,
        microusd_hour=microusd((one.usd_gpu_hour * one.count + extras.disk_usd_hour) * factor),
        disk_microusd_hour=float(extras.disk_usd_hour * factor * MICRO),
        can_be_interrupted=extras.spot,
        download_mbps=job.download_mbps,
        download_usd_gb=extras.download_usd_gb,
        upload_usd_gb=extras.upload_usd_gb,
        min_billing_s=extras.min_billing_s,
    )


def _with_hours(job: JobSpec, one: Candidate) -> JobSpec:
    if one.hours is None:
        return job
    return msgspec.structs.replace(job, hours=one.hours, on=None, tokens=None)


def _speed(first: JobCost, other: JobCost) -> Range:
    low, high = first.low.work_h / other.low.work_h, first.high.work_h / other.high.work_h
    return Range(min(low, high), max(low, high))


def _hours(low: str, high: str) -> Range:
    try:
        found = Range(float(low), float(high))
    except ValueError:
        raise ValueError(EXPECTED) from None
    if not 0 < found.low <= found.high:
        raise ValueError("expected hours above 0, the lower figure first")
    return found
