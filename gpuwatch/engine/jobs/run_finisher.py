"""Finishes a run: fetches and verifies results, destroys the instance, confirms that, then completes the job."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.domain.alerts import job_texts as texts
from gpuwatch.domain.jobs.job import Job, JobRun, JobState, JobTransition
from gpuwatch.domain.jobs.job_definition import JobStage, after_preparation
from gpuwatch.domain.jobs.job_values import JobFiles
from gpuwatch.domain.jobs.run_plan import result_patterns, work_folder
from gpuwatch.domain.jobs.run_status import LeftOut, MachineFile
from gpuwatch.domain.launches.launch import EndReason, Launch
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.setup.store_addresses import is_store
from gpuwatch.engine.jobs.job_copies import JobCopies
from gpuwatch.engine.jobs.job_parts import JobParts, local_path, record_step, spent_microusd
from gpuwatch.engine.jobs.job_sharing import InstanceSharing
from gpuwatch.engine.jobs.run_monitor import RunMonitor
from gpuwatch.engine.setup.failpoint import failpoint
from gpuwatch.ports.remote import RemoteRefused, RemoteUnreachable

_NOTHING_PREPARED = "none of its outputs can be fetched: expected files, not links to them"
_LOST = "results were not fetched"
_SHOWN = 10


class _Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """What one round brought.

    Attributes:
        files: all that are verified.
        missing: why not everything is here; None: it is.
        is_final: waiting alone does not change that.
        left_out: what has no content of its own.
    """

    files: Sequence[MachineFile] = ()
    missing: str | None = None
    is_final: bool = False
    left_out: tuple[LeftOut, ...] = ()


class RunFinisher:
    """The steps from the end of a command to the end of its job."""

    def __init__(self, parts: JobParts, running: RunMonitor, copies: JobCopies) -> None:
        self._parts = parts
        self._sharing = InstanceSharing(parts)
        self._copies = copies
        self._running = running

    def advance(self, job: Job, run: JobRun, launch: Launch | None) -> Job:
        """Run one round for a job in `fetching`. Raises the errors of the ports; the next round tries again."""
        is_alive = launch is not None and not launch.is_over
        if run.step == "ended":
            if run.exit_code != 0:
                run = self._failed(job, run)
            elif is_alive:
                run = self._succeeded(job, run, launch)
            else:  # what it computed is lost, and is not computed again unless the owner says so
                reason = (launch.end_reason if launch is not None else None) or "its instance is gone"
                run = self._give_up(job, run, f"its instance ended before: {reason}", ())
        if launch is not None and is_alive:
            self._running.forecasts.check_spent(job, run, launch)
        if run.step == "ended":
            return job
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

    def _succeeded(self, job: Job, run: JobRun, launch: Launch | None) -> JobRun:
        try:
            self._running.drain_log(run)
            run, is_stored = self._last_checkpoint(job, run)
            found = self._fetch(job, run) if is_stored else _Fetched(missing="its last checkpoint is incomplete")
        except (RemoteUnreachable, RemoteRefused, OSError) as error:
            found = _Fetched(missing=str(error))
        if found.missing is not None:
            return self._not_fetched(job, run, launch, found)
        if found.left_out:
            lines = [("Not fetched", one.text) for one in found.left_out[:_SHOWN]]
            self._parts.report(job, texts.LEFT_OUT, count=len(found.left_out), more_facts=lines)
        if not found.files and job.definition.stage is JobStage.PREPARE and job.definition.results:
            return self._parts.save(run, step="failed", end_reason=_NOTHING_PREPARED)  # no GPU is rented for nothing
        return self._parts.save(run, step="fetched", results=_rows(found.files))

    def _last_checkpoint(self, job: Job, run: JobRun) -> tuple[JobRun, bool]:
        """Fetch it if it is all that the command leaves; return the run, and whether nothing of it is missing."""
        if job.definition.checkpoint is None or job.definition.results:
            return run, True
        within_s = self._parts.bounds.results_round_s
        return self._running.fetch_newest(self._parts.shell(run), job, run, running=False, within_s=within_s)

    def _fetch(self, job: Job, run: JobRun) -> _Fetched:
        """Fetch what matches, verify and publish it; also what does not match is no reason to leave the rest there."""
        wanted, bounds = job.definition.results, self._parts.bounds
        if not wanted:
            return _Fetched()
        shell = self._parts.shell(run)
        listing = self._parts.listed(shell, run, result_patterns(wanted))
        listed = listing.files
        folder = self._parts.files.results_folder(job.job_id, run.run_number)
        verified = self._parts.files.fetch(shell, work_folder(job.job_id), listed, folder, bounds.results_round_s)
        missing = []
        if len(verified) < len(listed):
            names = [file.path for file in listed if file not in verified][:_SHOWN]
            missing.append(
                f"{len(verified)} of {count_text(len(listed), 'file')} are complete so far, not {', '.join(names)}"
            )
        else:
            self._parts.files.publish(job.job_id, run.run_number, places_of(job, listed))
        matched = [file.path for file in listed] + [one.path for one in listing.left_out]
        unmatched = [one.source for one in wanted if not any(matches_pattern(one, path) for path in matched)]
        lost = [*(f"no file matches {source}" for source in unmatched if not listing.incomplete), listing.incomplete]
        reasons = [*missing, *filter(None, lost)]
        return _Fetched(
            files=verified,
            missing="; ".join(reasons) if reasons else None,
            is_final=not missing,
            left_out=listing.left_out,
        )

    def _not_fetched(self, job: Job, run: JobRun, launch: Launch | None, found: _Fetched) -> JobRun:
        """Keep the instance for the time limit, and report that at once if waiting does not help."""
        bounds, ended, why = self._parts.bounds, run.ended_at or self._parts.clock(), found.missing or ""
        waited, until = self._parts.clock() - ended, ended + timedelta(seconds=bounds.results_s)
        if waited >= timedelta(seconds=bounds.results_s):
            return self._give_up(job, run, why, found.files)
        ends_at = self._parts.keep_until(job, launch, until)
        if found.is_final or waited >= timedelta(seconds=bounds.late_results_s):
            self._parts.report(job, texts.NOT_FETCHED, error=why, until=self._parts.local(ends_at))
        return run

    def _give_up(self, job: Job, run: JobRun, why: str, fetched: Sequence[MachineFile]) -> JobRun:
        """Report what is lost before the instance goes."""
        folder = self._parts.files.results_folder(job.job_id, run.run_number)
        with suppress(OSError):
            self._parts.files.publish(job.job_id, run.run_number, places_of(job, fetched))
        shown = f"{count_text(len(fetched), 'file')}, in {folder}" if fetched else ""
        self._parts.report(job, texts.RESULTS_LOST, error=why, fetched=shown)
        return self._parts.save(run, step="given up", end_reason=f"{_LOST}: {why}", results=_rows(fetched))

    # --- another exit code --------------------------------------------------------------------------------------------

    def _failed(self, job: Job, run: JobRun) -> JobRun:
        with suppress(RemoteUnreachable, RemoteRefused, OSError):  # the alert contains what is known
            self._running.drain_log(run)
        keep_s = job.definition.keep_on_failure_s
        how = run.end_reason or texts.WAS_ENDED if run.exit_code is None else texts.EXIT_CODE.format(code=run.exit_code)
        until = (run.ended_at or self._parts.clock()) + timedelta(seconds=keep_s)
        kept = texts.KEPT.format(until=self._parts.local(until)) if keep_s else texts.DESTROYING
        unfetched = texts.UNFETCHED if job.definition.results else None
        tail = self._parts.files.log_tail(job.job_id, run.run_number, 20)
        self._parts.report(job, texts.COMMAND_FAILED, how=how, kept=kept, unfetched=unfetched, log=tail)
        if self._parts.clock() < until:
            return run
        return self._parts.save(run, step="failed", end_reason=how)

    # --- over ---------------------------------------------------------------------------------------------------------

    def _over(self, job: Job, run: JobRun) -> Job:
        """Complete the job, once the end of the instance is confirmed or another job has it."""
        is_done = run.step == "fetched"
        if is_done and (places := _in_stores(job, run)):
            fetched = self._parts.files.results_folder(job.job_id, run.run_number)
            if not self._copies.put_results(job, fetched, places):  # the instance is gone: waiting costs nothing
                return (
                    job
                    if job.reason == texts.NOT_STORED_REASON
                    else self._parts.record(job, JobState.FETCHING, texts.NOT_STORED_REASON)
                )
            self._parts.event(run, "stored", files=sum(len(names) for _, _, names in places))
        run = msgspec.structs.replace(run, step="over")
        is_given = run.held_until is not None
        if not is_given:
            self._parts.shells.delete_keys(run.launch_id)
        if is_done and job.definition.stage is JobStage.PREPARE:
            return self._prepared(job, run)
        if is_done:
            names = ", ".join(str(result["path"]) for result in run.results[:5]) or "none"
            end = texts.INSTANCE_GIVEN if is_given else texts.INSTANCE_ENDED
            self._parts.report(job, texts.FINISHED, results=f"{len(run.results)}: {names}", instance=end)
            return self._parts.record(job, JobState.DONE, None, run, exit_code=0, progress=1.0)
        return self._parts.record(job, JobState.FAILED, run.end_reason, run, exit_code=run.exit_code)

    def _prepared(self, job: Job, run: JobRun) -> Job:
        """Queue the job itself. Its data is here, and the machine that prepared it is gone: both in one transaction."""
        parts, now = self._parts, self._parts.clock()
        step = JobTransition(
            to_state=JobState.QUEUED,
            at=now,
            changes={
                "definition": after_preparation(job.definition, run.run_number),
                "spent_microusd": spent_microusd(parts.jobs, parts.launches, job, now),
                "retries_left": job.definition.retries,
                "progress": None,
                "predicted_microusd": None,
                "exit_code": None,
            },
            detail={"prepared": len(run.results)},
        )
        parts.report(job, texts.PREPARED, results=count_text(len(run.results), "file"))
        failpoint("prepare.before_record")
        queued = record_step(parts.jobs, job, step, run)
        failpoint("prepare.after_record")
        return queued


def places_of(job: Job, listed: Sequence[MachineFile]) -> list[tuple[str, Path]]:
    """Return where results belong on this machine: in the target, by their names after the fixed part of the pattern.

    What a job prepares for itself belongs nowhere else: it stays in the folder of the run.

    Where two of them would be one file, each keeps its whole path.
    """
    if job.definition.stage is JobStage.PREPARE:
        return []
    local = [spec for spec in job.definition.results if not is_store(spec.target)]
    places = [
        (file.path, spec, _place(job, spec, file))
        for spec in local
        for file in listed
        if matches_pattern(spec, file.path)
    ]
    sources: dict[Path, set[str]] = {}
    for path, _, place in places:
        sources.setdefault(place, set()).add(path)
    return [(path, place if len(sources[place]) == 1 else _target(job, spec) / path) for path, spec, place in places]


def _target(job: Job, spec: JobFiles) -> Path:
    return local_path(job.definition, spec.target)


def _place(job: Job, spec: JobFiles, one: MachineFile) -> Path:
    return _target(job, spec).joinpath(*one.path.split("/")[_fixed(spec) :])


def _rows(files: Sequence[MachineFile]) -> tuple[dict[str, Any], ...]:
    return tuple({"path": one.path, "bytes": one.size, "sha256": one.sha256} for one in files)


def _in_stores(job: Job, run: JobRun) -> list[tuple[str, str, list[str]]]:
    """Return the results that belong in stores, as (their common folder, the store, their names)."""
    found = []
    for spec in job.definition.results:
        if is_store(spec.target):
            fixed = spec.source.removeprefix("./").split("/")[: _fixed(spec)]
            paths = [str(result["path"]) for result in run.results if matches_pattern(spec, str(result["path"]))]
            found.append(("/".join(fixed), spec.target, ["/".join(path.split("/")[len(fixed) :]) for path in paths]))
    return found


def _fixed(spec: JobFiles) -> int:
    """Return how many parts of the pattern are common to every file, without the name of a single file."""
    parts = spec.source.removeprefix("./").split("/")
    return next((number for number, part in enumerate(parts) if set(part) & set("*?[")), len(parts) - 1)


def matches_pattern(spec: JobFiles, path: str) -> bool:
    """Whether a path is one that the pattern means, as it is or below it."""
    pattern = spec.source.removeprefix("./").rstrip("/")
    is_literal = path == pattern or path.startswith(f"{pattern}/")  # a name may hold characters of a pattern
    return is_literal or fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}/*")
