"""The files of a job before it is queued: inputs that can be sent, and patterns of results that look like a slip."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpuwatch.domain.jobs.job import Job
from gpuwatch.domain.jobs.job_definition import JobDefinition, steps_of
from gpuwatch.domain.jobs.job_series import JobSeries
from gpuwatch.domain.jobs.run_plan import is_local
from gpuwatch.domain.market.offer import clean
from gpuwatch.engine.jobs.job_parts import local_path
from gpuwatch.errors import UsageError
from gpuwatch.ports.remote import CannotSend
from gpuwatch.remote.sent_tree import sent_entries

_WRITTEN = re.compile(r"(?:\bmkdir(?: -p)?|>>?|\btee(?: -a)?|--?o\w*[ =])\s*[\"']?([\w./-]+)")
_PATH = re.compile(r"(?<![\w./:-])((?:\./)?[A-Za-z][\w.-]*)/[\w.*{$-]")
_LIKENESS = 0.6  # of two names, so that one may be a slip of the other (assumed)


def _local_inputs(definition: JobDefinition) -> Iterator[tuple[str, Path]]:
    for one in definition.inputs:
        if is_local(one.source):
            try:
                yield one.source, local_path(definition, one.source)
            except OSError:  # no home folder
                yield one.source, Path(one.source)


def check_inputs(definition: JobDefinition) -> None:
    """Check that what exists here of the inputs can be sent. Raises UsageError."""
    for source, path in _local_inputs(definition):
        if not os.access(path, os.R_OK):  # it may come later
            continue
        try:
            for _ in sent_entries(path):
                pass
        except CannotSend as error:
            raise UsageError(
                f"job {definition.name!r}: input {source} cannot be sent: {error}; fix or remove it, then submit again"
            ) from None


def _steps(jobs: Sequence[Job | JobSeries]) -> Iterator[tuple[Job | JobSeries, JobDefinition]]:
    return ((job, step) for job in jobs for step in steps_of(job.definition))


def missing_inputs(jobs: Sequence[Job | JobSeries]) -> Iterator[tuple[str, Path]]:
    """(job, path) for each local input that cannot be read; without it, the instance would be rented in vain."""
    for job, step in _steps(jobs):
        for _, path in _local_inputs(step):
            if not os.access(path, os.R_OK):
                yield job.name, path


def left_out_inputs(jobs: Sequence[Job | JobSeries]) -> Iterator[tuple[str, str]]:
    """(job, name) for each part of a local input that is not sent: pipes, sockets and devices have no content."""
    for job, step in _steps(jobs):
        for source, path in _local_inputs(step):
            if path.is_dir():
                yield from ((job.name, clean(f"{source}/{one.name}")) for one in sent_entries(path) if one.is_left_out)


def doubtful_results(jobs: Sequence[Job | JobSeries]) -> Iterator[tuple[str, str, str]]:
    """(job, pattern, name) where the command names no such folder, but one that is nearly called so."""
    for job, spec in _steps(jobs):
        text = "\n".join(filter(None, (spec.setup, spec.command, spec.script)))
        written = {found.removeprefix("./").split("/")[0] for found in _WRITTEN.findall(text) + _PATH.findall(text)}
        for result in spec.results:
            first = result.source.removeprefix("./").split("/")[0]
            if set(first) & set("*?[{") or re.search(rf"\b{re.escape(first)}\b", text):
                continue
            near = difflib.get_close_matches(first, sorted(written), 1, _LIKENESS)
            if near:
                yield job.name, result.source, near[0]
