"""What a job printed and what it brought back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.jobs import job_details, known_job
from gpuwatch.bootstrap import open_store_read_only, pace
from gpuwatch.bootstrap.jobs import jobs_folder
from gpuwatch.domain.jobs.job import Job, JobState
from gpuwatch.errors import UsageError
from gpuwatch.remote.job_folder import JobFolder
from gpuwatch.storage.job_repository import SqlJobRepository

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

_POLL_S = 1.0
_READ_MAX = 8 << 20


class JobLog(msgspec.Struct, frozen=True, kw_only=True):
    """The log of one run, as far as it was fetched; lines as the command wrote them, not cleaned."""

    job: Job
    run_number: int
    lines: tuple[str, ...]


def job_log(settings: Settings, name_or_id: str, run_number: int | None, tail: int | None) -> JobLog:
    """The log of a run, or its last lines.

    Args:
        run_number: None: the newest.

    Raises:
        UsageError: no such job or run.
        StoreError: the store cannot be read.
    """
    job = job_details(settings, name_or_id).job
    number = _run_of(job, run_number)
    path = _path(settings, job, number)
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _READ_MAX))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        lines = []
    return JobLog(
        job=job, run_number=number, lines=tuple(lines if tail is None else lines[max(0, len(lines) - tail) :])
    )


def follow_log(settings: Settings, name_or_id: str, tail: int | None) -> Iterator[str]:
    """The lines of the newest run as they come, then those of runs after it, until the job is over or paused."""
    with open_store_read_only(settings) as store:
        repository = SqlJobRepository(store)
        job = known_job(repository, name_or_id)
        number, position, begun = job.run_number, 0, ""
        if tail is not None:
            lines = job_log(settings, job.job_id, number, None).lines
            yield from lines[max(0, len(lines) - tail) :]
            position = _size(_path(settings, job, number))
        while True:
            job = repository.job(job.job_id) or job  # before the file: what is written until then is read below
            path = _path(settings, job, number)
            if (size := _size(path)) > position:
                with path.open("rb") as file:
                    file.seek(position)
                    text = begun + file.read(size - position).decode("utf-8", "replace")
                position = size
                *whole, begun = text.split("\n")
                yield from whole
                continue
            if job.run_number > number:
                number, position, begun = job.run_number, 0, ""
            elif job.is_over or job.state is JobState.PAUSED:
                break
            else:
                time.sleep(_POLL_S / pace())
    if begun:
        yield begun


def _run_of(job: Job, run_number: int | None) -> int:
    if run_number is not None and not 1 <= run_number <= job.run_number:
        raise UsageError(f"job {job.name!r} has no run {run_number}; it had {job.run_number}")
    return job.run_number if run_number is None else run_number


def _path(settings: Settings, job: Job, run_number: int) -> Path:
    return JobFolder(jobs_folder(settings)).log_path(job.job_id, run_number)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def job_results(settings: Settings, name_or_id: str) -> tuple[Job, list[dict[str, Any]]]:
    """What was fetched and verified, of every run; each with its `run_number`. Raises UsageError, StoreError."""
    found = job_details(settings, name_or_id)
    return found.job, [{"run_number": run.run_number, **one} for run in found.runs for one in run.results]
