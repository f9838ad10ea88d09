"""Finishes a run: fetches and verifies results, destroys the instance, confirms that, then completes the job."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from gpuwatch.domain.jobs.job import Job, JobFiles, JobRun, JobState
from gpuwatch.domain.jobs.run_plan import result_patterns, work_folder
from gpuwatch.domain.jobs.run_status import MachineFile
from gpuwatch.domain.jobs.stores import is_store
from gpuwatch.domain.launches.launch import EndReason, Launch
from gpuwatch.domain.watches.durations import format_moment
from gpuwatch.engine.job_alerts import NOT_FETCHED, NOT_STORED, job_alert
from gpuwatch.engine.job_copies import JobCopies
from gpuwatch.engine.job_parts import JobParts
from gpuwatch.engine.job_sharing import InstanceSharing
from gpuwatch.engine.local_paths import local_path
from gpuwatch.engine.run_monitor import RunMonitor
from gpuwatch.ports import AlertKind, Severity
from gpuwatch.ports.remote import RemoteRefused, RemoteUnreachable

_LOST = "results were not fetched"
_DESTROYED = "Results were fetched and verified. The instance was destroyed, and its end is confirmed."
_GIVEN = "Results were fetched and verified. Another job continues on the instance."


class RunFinisher:
    """The steps from the end of a command to the end of its job."""

    def __init__(self, parts: JobParts, running: RunMonitor, copies: JobCopies) -> None:
        self._parts = parts
        self._sharing = InstanceSharing(parts)
        self._copies = copies
        self._running = running

    def advance(self, job: Job, run: JobRun, launch: Launch | None) -> Job:
        """Run one round for a job in `fetching`. Raises the errors of the ports; the next round tries again."""
        if run.step == "ended":
            run = self._succeeded(job, run) if run.exit_code == 0 else self._failed(job, run)
        if run.step == "ended":
            return job
        is_alive = launch is not None and not launch.is_over
        if launch is not None and is_alive and run.step == "fetched" and run.held_until is None:
            run = self._sharing.give_to_next(job, run, launch)
        if launch is not None and is_alive and run.held_until is None:
            # the launch has the name of the job that rented it; another job's failure is not the launch's
            is_own = launch.watch_id in {None, job.job_id}
            end = EndReason.FINISHED if run.step == "fetched" or not is_own else EndReason.CRASHED
            words = [] if is_own and run.end_reason else [f"job {job.name}"]
            self._parts.end_launch(launch, end, ": ".join([*words, *filter(None, [run.end_reason])]))
            return job
        return self._over(job, run)

    # --- exit code 0 --------------------------------------------------------------------------------------------------

    def _succeeded(self, job: Job, run: JobRun) -> JobRun:
        try:
            self._running.drain_log(run)
            fetched, why = self._fetch(job, run)
        except (RemoteUnreachable, RemoteRefused, OSError) as error:
            fetched, why = (), str(error)
        if why is None:
            rows = tuple({"path": one.path, "bytes": one.size, "sha256": one.sha256} for one in fetched)
            return self._parts.save(run, step="fetched", results=rows)
        return self._not_fetched(job, run, why)

    def _fetch(self, job: Job, run: JobRun) -> tuple[Sequence[MachineFile], str | None]:
        """Return the verified files, and why they are incomplete; None: they are complete."""
        wanted = job.definition.results
        if not wanted:
            return (), None
        shell = self._parts.shell(run)
        listed, incomplete = self._parts.listed(shell, run, result_patterns(wanted))
        for one in wanted:
            if not _of_pattern(one, listed):
                return (), incomplete or f"no file matches {one.source}"
        waiting = self._parts.files.results_folder(job.job_id, run.run_number)
        bound = self._parts.bounds.fetch_s
        verified = self._parts.files.fetch(shell, work_folder(job.job_id), listed, waiting, bound)
        if len(verified) < len(listed):
            return (), f"{len(verified)} of {len(listed)} files are complete so far"
        places = [
            (file.path, place_of(job, spec, file))
            for spec in wanted
            if not is_store(spec.target)
            for file in _of_pattern(spec, listed)
        ]
        self._parts.files.publish(job.job_id, run.run_number, places)
        return verified, incomplete

    def _not_fetched(self, job: Job, run: JobRun, why: str) -> JobRun:
        """Alert after a while; after the time limit give up the instance and, with it, the results."""
        bounds, ended = self._parts.bounds, run.ended_at or self._parts.clock()
        waited = self._parts.clock() - ended
        if waited >= timedelta(seconds=bounds.late_results_s):
            until = ended + timedelta(seconds=bounds.results_s)
            self._parts.report(
                job_alert(
                    job,
                    self._parts.clock(),
                    NOT_FETCHED,
                    severity=Severity.CRITICAL,
                    facts=[("Error", why), ("Instance is kept until", format_moment(until))],
                    why="The command succeeded. Results not fetched by then are lost with the instance.",
                    did="gpuwatch keeps trying; the instance is billed in the meantime.",
                    can_do=("Log in and copy the results", "gpuwatch job show, for the machine's address"),
                )
            )
        if waited < timedelta(seconds=bounds.results_s):
            return run
        return self._parts.save(run, step="given up", end_reason=f"{_LOST}: {why}")

    # --- another exit code --------------------------------------------------------------------------------------------

    def _failed(self, job: Job, run: JobRun) -> JobRun:
        with suppress(RemoteUnreachable, RemoteRefused, OSError):  # the alert contains what is known
            self._running.drain_log(run)
        keep_s = job.definition.keep_on_failure_s
        how = f"exit code {run.exit_code}" if run.exit_code is not None else run.end_reason or "it was ended"
        until = (run.ended_at or self._parts.clock()) + timedelta(seconds=keep_s)
        kept = f"The instance is kept until {format_moment(until)}, then destroyed." if keep_s else ""
        self._parts.report(
            job_alert(
                job,
                self._parts.clock(),
                f"its command failed, {how}",
                severity=Severity.WARNING,
                log=self._parts.files.log_tail(job.job_id, run.run_number, 20),
                did=kept or "The instance is being destroyed.",
                can_do=(f"gpuwatch job logs {job.name}", f"gpuwatch job retry {job.name}"),
            )
        )
        if self._parts.clock() < until:
            return run
        return self._parts.save(run, step="failed", end_reason=how)

    # --- over ---------------------------------------------------------------------------------------------------------

    def _over(self, job: Job, run: JobRun) -> Job:
        """Complete the job, once the end of the instance is confirmed or another job has it."""
        now = self._parts.clock()
        is_done = run.step == "fetched"
        if is_done and (places := _in_stores(job, run)):
            fetched = self._parts.files.results_folder(job.job_id, run.run_number)
            if not self._copies.put_results(job, fetched, places):  # the instance is gone: waiting costs nothing
                return job if job.reason == NOT_STORED else self._parts.record(job, JobState.FETCHING, NOT_STORED)
            self._parts.event(run, "stored", files=sum(len(names) for _, _, names in places))
        run = msgspec.structs.replace(run, step="over")
        is_given = run.held_until is not None
        if not is_given:
            self._parts.shells.delete_keys(run.launch_id)
        if is_done:
            names = ", ".join(str(result["path"]) for result in run.results[:5]) or "none"
            outbox_alert = job_alert(
                job,
                now,
                "finished",
                kind=AlertKind.END,
                facts=[("Results", f"{len(run.results)}: {names}")],
                did=_GIVEN if is_given else _DESTROYED,
            )
            self._parts.report(outbox_alert)
            return self._parts.record(job, JobState.DONE, None, run, exit_code=0, progress=1.0)
        return self._parts.record(job, JobState.FAILED, run.end_reason, run, exit_code=run.exit_code)


def place_of(job: Job, spec: JobFiles, one: MachineFile) -> Path:
    """Return the local path of a result: in the target, by its name after the fixed part of the pattern."""
    return local_path(job, spec.target).joinpath(*one.path.split("/")[_fixed(spec) :])


def _in_stores(job: Job, run: JobRun) -> list[tuple[str, str, list[str]]]:
    """Return the results that belong in stores, as (their common folder, the store, their names)."""
    found = []
    for spec in job.definition.results:
        if is_store(spec.target):
            fixed = spec.source.removeprefix("./").split("/")[: _fixed(spec)]
            paths = [str(result["path"]) for result in run.results if _fits(spec, str(result["path"]))]
            found.append(("/".join(fixed), spec.target, ["/".join(path.split("/")[len(fixed) :]) for path in paths]))
    return found


def _fixed(spec: JobFiles) -> int:
    """Return how many parts of the pattern are common to every file, without the name of a single file."""
    parts = spec.source.removeprefix("./").split("/")
    return next((number for number, part in enumerate(parts) if set(part) & set("*?[")), len(parts) - 1)


def _of_pattern(spec: JobFiles, listed: Sequence[MachineFile]) -> list[MachineFile]:
    return [file for file in listed if _fits(spec, file.path)]


def _fits(spec: JobFiles, path: str) -> bool:
    pattern = spec.source.removeprefix("./").rstrip("/")
    return fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}/*")
