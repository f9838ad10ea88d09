"""The output of a job: its log and its results."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.jobs.jobs import JobDetails, job_details, open_jobs_read_only
from gpuwatch.app.watches.watch_selection import known_job, known_run
from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.bootstrap.job_building import jobs_folder
from gpuwatch.domain.jobs.job import Job, JobState
from gpuwatch.domain.jobs.run_status import is_safe_path
from gpuwatch.domain.market.offer import clean
from gpuwatch.engine.setup.failpoint import pace
from gpuwatch.errors import ResourceNotFound, UsageError
from gpuwatch.remote.job_folder import JobFolder
from gpuwatch.storage.jobs.job_repository import SqlJobRepository

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

_POLL_S = 1.0
_READ_MAX = 8 << 20
LOG_PART_MAX = 64 << 10


class JobLog(msgspec.Struct, frozen=True, kw_only=True):
    """The fetched log of one run; lines as the command wrote them, not cleaned."""

    job: Job
    run_number: int
    lines: tuple[str, ...]
    is_at: str | None = None  # the command that shows the log, if it is not fetched


def job_log(settings: Settings, name_or_id: str, run_number: int | None, tail: int | None) -> JobLog:
    """The log of a run, or its last lines.

    Args:
        name_or_id: a recurring job's name stands for its newest run with a machine.
        run_number: None: the newest.

    Raises:
        UsageError: no such job or run.
        StoreError: the store cannot be read.
    """
    details = _details(settings, name_or_id)
    job = details.job
    number = _run_of(job, run_number)
    path = _path(settings, job, number)
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _READ_MAX))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        lines = []
    return JobLog(
        job=job,
        run_number=number,
        lines=tuple(lines if tail is None else lines[max(0, len(lines) - tail) :]),
        is_at=details.log_is_at,
    )


def follow_log(settings: Settings, name_or_id: str, tail: int | None) -> Iterator[str]:
    """The lines of the newest run as they arrive, then those of later runs, until the job is over or paused."""
    with open_store_read_only(settings) as store:
        repository = SqlJobRepository(store)
        job = known_run(store, name_or_id, begun=True)
        number, position, started = job.run_number, 0, ""
        if tail is not None:
            lines = job_log(settings, job.job_id, number, None).lines
            yield from lines[max(0, len(lines) - tail) :]
            position = _size(_path(settings, job, number))
        while True:
            job = repository.job(job.job_id) or job  # before the file, so that nothing written until then is missed
            path = _path(settings, job, number)
            if (size := _size(path)) > position:
                with path.open("rb") as file:
                    file.seek(position)
                    text = started + file.read(size - position).decode("utf-8", "replace")
                position = size
                *complete_lines, started = text.split("\n")
                yield from complete_lines
                continue
            if job.run_number > number:
                number, position, started = job.run_number, 0, ""
            elif job.is_over or job.state is JobState.PAUSED:
                break
            else:
                time.sleep(_POLL_S / pace())
    if started:
        yield started


class LogPart(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the log of one run.

    Attributes:
        lines: whole lines, cleaned for display; the last one may lack its end if the run is over.
        end: offset of the next part, in bytes.
    """

    job: Job
    run_number: int
    lines: tuple[str, ...]
    end: int


def log_part(settings: Settings, name_or_id: str, run_number: int | None = None, begin: int | None = None) -> LogPart:
    """A part of a run's log, at most `LOG_PART_MAX` bytes.

    Args:
        run_number: None: the newest.
        begin: offset in bytes; None: the end of the log.

    Raises:
        UsageError: no such job or run.
        StoreError: the store cannot be read.
    """
    with open_jobs_read_only(settings) as repository:
        job = known_job(repository, name_or_id)
    number = _run_of(job, run_number)
    path = _path(settings, job, number)
    size = _size(path)
    start = max(0, size - LOG_PART_MAX) if begin is None else min(begin, size)
    if start >= size:
        return LogPart(job=job, run_number=number, lines=(), end=start)
    with path.open("rb") as file:
        file.seek(start)
        read = file.read(LOG_PART_MAX)
    if begin is None and start:  # start at the first whole line
        first_line_end = read.find(b"\n") + 1
        start, read = start + first_line_end, read[first_line_end:]
    is_last = start + len(read) >= size and (job.is_over or job.run_number > number)
    complete = read if is_last else read[: max(read.rfind(b"\n"), read.rfind(b"\r")) + 1]
    if not complete and len(read) == LOG_PART_MAX:  # one very long line
        complete = read
    lines = complete.decode("utf-8", "replace").splitlines()
    return LogPart(job=job, run_number=number, lines=tuple(map(clean, lines)), end=start + len(complete))


def whole_log(settings: Settings, name_or_id: str, run_number: int) -> tuple[Job, Path]:
    """The file with a run's log, as fetched. Raises UsageError: no such job or run, or it has no log here."""
    job = job_details(settings, name_or_id).job
    path = _path(settings, job, _run_of(job, run_number))
    if not path.is_file():
        raise ResourceNotFound(f"there is no log of run {run_number} of job {job.name!r} on this machine")
    return job, path


def result_file(settings: Settings, name_or_id: str, run_number: int, name: str) -> tuple[Path, str]:
    """A result that was fetched and verified, and its name.

    Args:
        name: the path as in `job_results`; other paths are rejected.

    Raises:
        UsageError: no such job or result, or its file is no longer on this machine.
    """
    job, results = job_results(settings, name_or_id)
    listed = [result for result in results if result["run_number"] == run_number and result["path"] == name]
    if not listed or not is_safe_path(name):
        raise ResourceNotFound(f"there is no such result of job {job.name!r}; see: gpuwatch jobs results {job.name}")
    folder = JobFolder(jobs_folder(settings)).results_folder(job.job_id, run_number).resolve()
    path = folder / name
    # a link instead of a file or folder could lead anywhere
    if path.resolve() != path or not path.is_file() or path.stat().st_size != listed[0]["bytes"]:
        raise ResourceNotFound(f"there is no {path.name!r} of job {job.name!r} on this machine any more")
    return path, path.name


def _details(settings: Settings, name_or_id: str) -> JobDetails:
    """The job whose output is meant: of a recurring job, that of its newest run with a machine."""
    with open_store_read_only(settings) as store:
        job = known_run(store, name_or_id, begun=True)
    return job_details(settings, job.job_id)


def _run_of(job: Job, run_number: int | None) -> int:
    if run_number is not None and not 1 <= run_number <= job.run_number:
        raise UsageError(f"job {job.name!r} has no run {run_number}; its newest is {job.run_number}")
    return job.run_number if run_number is None else run_number


def _path(settings: Settings, job: Job, run_number: int) -> Path:
    return JobFolder(jobs_folder(settings)).log_path(job.job_id, run_number)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def job_results(settings: Settings, name_or_id: str) -> tuple[Job, list[dict[str, Any]]]:
    """The fetched and verified results of all runs, each with its `run_number`. Raises UsageError, StoreError."""
    details = _details(settings, name_or_id)
    return details.job, [{"run_number": run.run_number, **result} for run in details.runs for result in run.results]
