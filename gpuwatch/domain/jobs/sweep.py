"""Arrays: one job file expanded to one job per value of `--sweep lr=1e-4,2e-4`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product

import msgspec

from gpuwatch.domain.jobs.job import JobDefinition
from gpuwatch.domain.jobs.stores import below
from gpuwatch.domain.watches.watch import Purpose

MOST_JOBS = 1000
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


def parse_sweeps(texts: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Parse `lr=1e-4,2e-4` into key → values, in the given order. Raises ValueError."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        key, given, values = text.partition("=")
        parts = tuple(dict.fromkeys(one.strip() for one in values.split(",")))
        if not given or not _KEY.fullmatch(key) or not all(parts):
            raise ValueError(f"--sweep {text!r}: expected KEY=VALUE,VALUE, such as lr=1e-4,2e-4")
        if key in found:
            raise ValueError(f"--sweep {key}: expected only once")
        found[key] = parts
    return found


def expand(definition: JobDefinition, sweeps: Mapping[str, Sequence[str]]) -> list[JobDefinition]:
    """One definition for each combination: `NAME-1`, `NAME-2`, …

    `{lr}` in the command, the resume command and the sources of results is replaced by the value, which the environment
    variable `lr` also holds. Raises ValueError: too many combinations.
    """
    if not sweeps:
        return [definition]
    combinations = list(product(*sweeps.values()))
    if len(combinations) > MOST_JOBS:
        raise ValueError(f"--sweep: {len(combinations):,} jobs; expected at most {MOST_JOBS:,}")
    return [
        _one(definition, number, dict(zip(sweeps, values, strict=True)))
        for number, values in enumerate(combinations, 1)
    ]


def _one(definition: JobDefinition, number: int, values: Mapping[str, str]) -> JobDefinition:
    def filled(text: str) -> str:
        for key, value in values.items():
            text = text.replace("{" + key + "}", value)
        return text

    name = f"{definition.name}-{number}"
    checkpoint = definition.checkpoint
    if checkpoint is not None and checkpoint.resume is not None:
        checkpoint = msgspec.structs.replace(checkpoint, resume=filled(checkpoint.resume))
    results = tuple(
        msgspec.structs.replace(result, source=filled(result.source), target=below(result.target, name))
        for result in definition.results
    )
    return msgspec.structs.replace(
        definition,
        name=name,
        group=definition.name,
        command=filled(definition.command),
        env={**definition.env, **values},
        checkpoint=checkpoint,
        results=results,
        resources=msgspec.structs.replace(definition.resources, name=Purpose.of_job(name).watch),
    )
