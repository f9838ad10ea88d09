"""Monitors a run: renews its lease, stores its log, fetches checkpoints, forecasts its end, judges its pilot."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Any

import msgspec

from gpuwatch.domain.alerts.job_texts import UNMEASURED
from gpuwatch.domain.jobs.checkpoints import (
    MachineCheckpoint,
    StoredCheckpoint,
    machine_checkpoints,
    newest_complete,
    superseded,
    to_resume,
)
from gpuwatch.domain.jobs.job import Job, JobRun
from gpuwatch.domain.jobs.pilot_checks import (
    PILOT_EVENT,
    failed_text,
    findings_detail,
    is_measured_enough,
    pilot_is_over,
    pilot_row,
)
from gpuwatch.domain.jobs.run_plan import checkpoint_pattern, run_folder, runner, work_folder
from gpuwatch.domain.jobs.run_progress import RunForecast, RunProgress, bottleneck, parse_progress
from gpuwatch.domain.jobs.run_sample import RunSample, run_sample
from gpuwatch.domain.jobs.run_status import RunnerStatus, RunPhase, parse_status
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.market.money import MICRO, dollars
from gpuwatch.domain.setup.durations import is_recent
from gpuwatch.engine.jobs.job_parts import JobParts
from gpuwatch.engine.jobs.run_forecasts import OVER_LIMIT, UNFIT, RunForecasts, measured, untested_items
from gpuwatch.ports.remote import RemoteShell, RemoteUnreachable

log = logging.getLogger(__name__)

LOG_PART = 256 << 10
_MAX_OUTPUT = LOG_PART + (64 << 10)
_MONITORED_LINES = 200


class RunObservation(msgspec.Struct, frozen=True, kw_only=True):
    """One observation of a run, and its consequence.

    Attributes:
        needs_decision: why the run must stop until its owner decides: its pilot's forecast exceeds a limit, or
            requirements are not met; None: it continues.
        sample: what was measured; None: it is stopping or over.
    """

    job: Job
    run: JobRun
    status: RunnerStatus
    needs_decision: str | None = None
    sample: RunSample | None = None


class RunMonitor:
    """Observes runs. Its memory between two rounds may be lost at any moment.

    Args:
        long_rounds: how many rounds may fetch checkpoints at once.
    """

    def __init__(self, parts: JobParts, long_rounds: threading.BoundedSemaphore | None = None) -> None:
        self._parts = parts
        self._long_rounds = long_rounds or threading.BoundedSemaphore(1)
        self.forecasts = RunForecasts(parts)
        self._jiffies: dict[str, tuple[int, int, int]] = {}
        self._written: dict[str, datetime] = {}  # job → time of its newest sample

    def forget_except(self, job_ids: Collection[str]) -> None:
        """Forget all other jobs."""
        self._jiffies = {job_id: one for job_id, one in list(self._jiffies.items()) if job_id in job_ids}
        self.forecasts.forget_except(job_ids)
        self._written = {job_id: one for job_id, one in list(self._written.items()) if job_id in job_ids}

    def observe(self, job: Job, run: JobRun, launch: Launch) -> RunObservation:
        """Run one round. Raises RemoteUnreachable, RemoteRefused."""
        shell = self._parts.shell(run)
        status = self._status(shell, run)
        run = msgspec.structs.replace(run, last_seen_at=self._parts.clock())
        if status.notice is not None:
            self._parts.noticed(launch, status.notice)
        if status.phase is RunPhase.ENDED:
            return RunObservation(job=job, run=run, status=status)
        if self._is_renewal_due(status):
            run = self._renew(shell, run, status)
        if job.definition.checkpoint is not None and self._is_checkpoint_due(job, status):
            run = self._fetch_due_checkpoint(shell, job, run, status)
        job, breaks, sample = self._note(job, run, launch, status)
        if breaks is not None:
            return RunObservation(job=job, run=run, status=status, needs_decision=OVER_LIMIT + breaks)
        if status.phase is RunPhase.STOPPING:
            return RunObservation(job=job, run=run, status=status)
        run, passed, unfit = self._judge_pilot(shell, job, run, sample, status)
        if passed is not None:
            self._keep_speed(job, run, launch, sample)  # before the event, which ends the pilot
            run = self._piloted(job, run, passed)
        decision = None if unfit is None else UNFIT + unfit
        return RunObservation(job=job, run=run, status=status, needs_decision=decision, sample=sample)

    def _judge_pilot(
        self, shell: RemoteShell, job: Job, run: JobRun, sample: RunSample, status: RunnerStatus
    ) -> tuple[JobRun, dict[str, Any] | None, str | None]:
        """Return the run, the measurements of its pilot once that is over, and which requirements it failed."""
        if job.definition.pilot is None or run.step != "started":
            return run, None, None
        if items := untested_items(self._parts, job):
            return self._judge_items(shell, job, run, sample, status, items)
        if self._is_pilot_over(job, run):
            return run, {}, None
        if self._is_pilot_over(job, run, is_measured=False):
            self._parts.report(job, UNMEASURED)
        return run, None, None

    def _judge_items(
        self, shell: RemoteShell, job: Job, run: JobRun, sample: RunSample, status: RunnerStatus, items: list[str]
    ) -> tuple[JobRun, dict[str, Any] | None, str | None]:
        assert job.definition.pilot is not None
        is_enough = is_measured_enough(job, run, sample.progress, sample.at)
        if not is_enough and not pilot_is_over(job.definition.pilot, run, sample.progress, sample.at):
            return run, None, None
        if job.definition.checkpoint is not None and run.checkpoint is None:
            run = self.fetch_checkpoint(shell, job, run)
        findings = measured(self._parts, job, run, items, sample, status)
        failed = failed_text(findings)
        if not failed:
            return run, findings_detail(findings), None
        has_failed = is_enough or any(finding.passed is False for finding in findings)
        return run, None, failed if has_failed else None  # None: not measured yet

    def _keep_speed(self, job: Job, run: JobRun, launch: Launch, sample: RunSample) -> None:
        """Keep the speed that a pilot measured as a row of the planner; without its file, the job goes on."""
        row = pilot_row(job.definition, run, launch, sample.tokens_per_s or 0.0, sample.at)
        if row is not None:
            try:
                self._parts.add_own_row(row)
            except OSError as error:
                log.warning("job %s: cannot keep its measured speed: %s", run.job_id, error)

    def _piloted(self, job: Job, run: JobRun, detail: dict[str, Any]) -> JobRun:
        run = msgspec.structs.replace(run, step="piloted")
        known = {"progress": job.progress, "predicted_microusd": job.predicted_microusd}
        self._parts.event(run, PILOT_EVENT, **known, **detail)
        return run

    def stop(self, run: JobRun, reason: str) -> None:
        """Have the runner end the command, or prevent its start. Raises RemoteUnreachable, RemoteRefused."""
        command = runner(run.job_id, "stop", run_folder(run.job_id, run.run_number), reason)
        self._parts.shell(run).run(command, timeout_s=self._parts.bounds.call_s)

    # --- status and lease ---------------------------------------------------------------------------------------------

    def _status(self, shell: RemoteShell, run: JobRun, until_s: int = 0) -> RunnerStatus:
        known = self._parts.files.log_size(run.job_id, run.run_number)
        folder, work = run_folder(run.job_id, run.run_number), work_folder(run.job_id)
        command = runner(run.job_id, "observe", folder, work, until_s, known, LOG_PART)
        said = shell.run(command, timeout_s=self._parts.bounds.call_s, max_bytes=_MAX_OUTPUT)
        status = parse_status(said.stdout)
        if status is None:
            raise RemoteUnreachable(f"the runner does not answer: {said.stderr or said.exit_code}")
        try:
            self._parts.files.append_log(run.job_id, run.run_number, known, status.log)
        except OSError as error:  # its lease must be renewed, and its end noticed, all the same
            log.warning("job %s: cannot store its log: %s", run.job_id, error)
        return status

    def final_status(self, run: JobRun) -> RunnerStatus:
        """Return the status without renewing anything. Raises RemoteUnreachable, RemoteRefused."""
        return self._status(self._parts.shell(run), run)

    def drain_log(self, run: JobRun) -> None:
        """Fetch the log of an ended run, as far as it is stored here. Raises RemoteUnreachable, RemoteRefused."""
        shell, files, before = self._parts.shell(run), self._parts.files, -1
        while (size := files.log_size(run.job_id, run.run_number)) > before:
            before = size
            self._status(shell, run)

    def _is_renewal_due(self, status: RunnerStatus) -> bool:
        """Whether a quarter of the lease is over: of hundreds of jobs, each waits minutes for its next round."""
        left_s = 0 if status.lease_until_s is None or status.up_s is None else status.lease_until_s - status.up_s
        return left_s <= self._parts.bounds.lease_s * 0.75

    def _renew(self, shell: RemoteShell, run: JobRun, status: RunnerStatus) -> JobRun:
        """Renew the lease. It is stored first, so that the row always has the latest end of the command."""
        if status.up_s is None:
            return run
        run = self._parts.save(run, lease_until=self._parts.lease_end())
        self._status(shell, run, status.up_s + self._parts.bounds.lease_s)
        return run

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def _is_checkpoint_due(self, job: Job, status: RunnerStatus) -> bool:
        assert job.definition.checkpoint is not None
        if status.phase is RunPhase.STOPPING:  # its stop was announced: this checkpoint may be the last
            return True
        mine = [
            checkpoint
            for checkpoint in self._parts.files.checkpoints(job.job_id)
            if checkpoint.run_number == job.run_number
        ]
        newest = max((checkpoint.fetched_at for checkpoint in mine), default=job.started_at or self._parts.clock())
        return self._parts.clock() - newest >= timedelta(seconds=job.definition.checkpoint.every_s)

    def _fetch_due_checkpoint(self, shell: RemoteShell, job: Job, run: JobRun, status: RunnerStatus) -> JobRun:
        """Fetch it now, or in a later round if so many others do that their leases would have to wait."""
        if status.phase is RunPhase.STOPPING:  # there may be no later round
            return self.fetch_checkpoint(shell, job, run)
        if not self._long_rounds.acquire(blocking=False):
            return run
        try:
            return self.fetch_checkpoint(shell, job, run)
        finally:
            self._long_rounds.release()

    def written_at(self, job_id: str) -> datetime | None:
        """Return when the newest checkpoint stored here was written; None: there is none."""
        newest = next(iter(to_resume(self._parts.files.checkpoints(job_id))), None)
        return None if newest is None else newest.written_at

    def fetch_one_more(self, job: Job, run: JobRun, status: RunnerStatus) -> JobRun:
        """Fetch the newest checkpoint before its time. Raises RemoteUnreachable, RemoteRefused."""
        return self._fetch_due_checkpoint(self._parts.shell(run), job, run, status)

    def _checkpoints(
        self, shell: RemoteShell, run: JobRun, pattern: str, names: list[str], *, running: bool
    ) -> tuple[JobRun, list[MachineCheckpoint]]:
        """Return those on the machine. Hashing them takes minutes: the lease of a running command is renewed before."""
        if running:
            run = self._renew(shell, run, self._status(shell, run))
        return run, machine_checkpoints(pattern, self._parts.listed(shell, run, names, is_leased=running).files)

    def fetch_checkpoint(self, shell: RemoteShell, job: Job, run: JobRun) -> JobRun:
        """Fetch the newest complete checkpoint of a running command. Raises RemoteUnreachable, RemoteRefused."""
        return self.fetch_newest(shell, job, run, running=True, within_s=self._parts.bounds.fetch_s)[0]

    def fetch_newest(
        self, shell: RemoteShell, job: Job, run: JobRun, *, running: bool, within_s: float
    ) -> tuple[JobRun, bool]:
        """Fetch the newest complete checkpoint; also return whether it is here.

        Raises RemoteUnreachable, RemoteRefused.

        Args:
            running: whether the command may still write.
        """
        spec, files = job.definition.checkpoint, self._parts.files
        assert spec is not None
        pattern = checkpoint_pattern(spec.path)
        run, listed = self._checkpoints(shell, run, pattern, [pattern], running=running)
        newest = newest_complete(listed, running=running)
        stored = files.checkpoints(job.job_id)
        if newest is None or any(_hashes(one.files) == _hashes(newest.files) for one in stored):
            return run, True
        sequence = max((one.sequence for one in stored), default=0) + 1
        target = files.checkpoint_folder(job.job_id, sequence)
        whole = files.fetch(shell, work_folder(job.job_id), newest.files, target, within_s)
        if len(whole) < len(newest.files):
            return run, False  # the next round fetches the rest
        again = [newest]
        if running:
            run, again = self._checkpoints(shell, run, pattern, [newest.name], running=True)
        if not any(_hashes(one.files) == _hashes(newest.files) for one in again):
            files.delete_checkpoint(job.job_id, sequence)  # it changed while it was fetched
            return run, False
        made = StoredCheckpoint(
            sequence=sequence,
            run_number=run.run_number,
            name=newest.name,
            files=newest.files,
            fetched_at=self._parts.clock(),
        )
        files.save_checkpoint(job.job_id, made)
        for one in superseded([*stored, made], spec.keep):
            files.delete_checkpoint(job.job_id, one.sequence)
        run = msgspec.structs.replace(run, checkpoint=newest.name)
        self._parts.event(run, "checkpoint", name=newest.name, bytes=sum(file.size for file in newest.files))
        return run, True

    # --- progress -----------------------------------------------------------------------------------------------------

    def _note(self, job: Job, run: JobRun, launch: Launch, status: RunnerStatus) -> tuple[Job, str | None, RunSample]:
        """Record new progress; also return why the pilot's forecast exceeds a limit, once known, and the sample."""
        now = self._parts.clock()
        lines = self._parts.files.log_tail(job.job_id, run.run_number, _MONITORED_LINES)
        progress = parse_progress("\n".join(lines), status.metrics)
        waits_for = self._bottleneck(run, status)
        had_forecast = self.forecasts.has_forecast(run)
        ahead = self.forecasts.forecast(job, run, launch, progress, now)
        self.forecasts.check_spent(job, run, launch)
        breaks = None
        if ahead is not None and self._is_pilot_over(job, run, progress.fraction):
            breaks = over_limit(job, ahead, self._parts.local)
        begun = RunSample(at=now, run_number=run.run_number, usd_hour=launch.price_microusd_hour / MICRO)
        sample = run_sample(begun, progress, status, ahead, waits_for)
        at = self._written.get(job.job_id)
        is_old = at is None or not is_recent(at, now, timedelta(seconds=self._parts.bounds.observed_every_s))
        is_old |= ahead is not None and not had_forecast
        if breaks is None and not is_old:
            return job, None, sample
        self._written[job.job_id] = now
        changes: dict[str, Any] = {"progress": progress.fraction} if progress.fraction is not None else {}
        if ahead is not None:
            changes["predicted_microusd"] = round((ahead.usd.low + ahead.usd.high) / 2 * MICRO)
        if not sample.has_measurements:
            self._parts.save(run)  # only the time of the observation
            return job, breaks, sample
        line = state_line(progress, status, ahead, waits_for, self._parts.local)
        return self._parts.record_sample(job, run, sample, line, **changes), breaks, sample

    def _is_pilot_over(self, job: Job, run: JobRun, fraction: float | None = None, *, is_measured: bool = True) -> bool:
        """Whether the pilot is over. With `is_measured` it needs a forecast of this run, however long that takes."""
        if is_measured and not self.forecasts.has_forecast(run):
            return False
        pilot = job.definition.pilot
        known = job.progress if fraction is None else fraction
        return pilot is not None and run.step == "started" and pilot_is_over(pilot, run, known, self._parts.clock())

    def _bottleneck(self, run: JobRun, status: RunnerStatus) -> str | None:
        before, now = self._jiffies.get(run.job_id), status.cpu_jiffies
        if now is None:
            return bottleneck(status.gpu_percent, memory_share=status.gpu_memory_share)
        self._jiffies[run.job_id] = now
        busy = waiting = None
        if before is not None and (total := sum(now) - sum(before)) > 0:
            busy, waiting = (now[0] - before[0]) / total, (now[2] - before[2]) / total
        return bottleneck(
            status.gpu_percent,
            memory_share=status.gpu_memory_share,
            cpu_busy=busy,
            io_wait=waiting,
            cpus=status.cpus,
        )


def over_limit(job: Job, ahead: RunForecast, local: Callable[[datetime], str]) -> str | None:
    """Return why a forecast exceeds the job's limits even at its lower end, or None.

    Args:
        local: formats a moment in the configured zone.
    """
    most = job.definition.limit.max_usd
    if most is not None and ahead.usd.low > float(most):
        return f"it would cost {dollars(ahead.usd.low)} to {dollars(ahead.usd.high)}, and max_usd is ${most}"
    if job.deadline is not None and ahead.ends_at[0] > job.deadline:
        return f"it would end at {local(ahead.ends_at[0])} at the earliest, after its deadline"
    return None


def state_line(
    progress: RunProgress,
    status: RunnerStatus,
    ahead: RunForecast | None,
    waits_for: str | None,
    local: Callable[[datetime], str],
) -> str | None:
    """Describe in one line what a run does; None: nothing is known."""
    parts = []
    if progress.fraction is not None:
        parts.append(f"{progress.fraction:.0%} done")
    if progress.tokens_per_s is not None:
        parts.append(f"{progress.tokens_per_s:,.0f} tokens/s")
    if ahead is not None:
        parts.append(f"ends {local(ahead.ends_at[0])} to {local(ahead.ends_at[1])}")
        parts.append(f"{dollars(ahead.usd.low)} to {dollars(ahead.usd.high)}")
    if status.gpu_percent is not None:
        parts.append(f"GPU {status.gpu_percent:.0f} %")
    if waits_for is not None:
        parts.append(waits_for)
    return ", ".join(parts) or None


def _hashes(files: tuple[Any, ...]) -> list[tuple[str, str]]:
    return sorted((file.path, file.sha256) for file in files)
