"""Prepares a machine and starts the job: address, host key, runner, inputs, checkpoint, command. All repeatable."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
from datetime import timedelta

import msgspec

from gpuwatch.domain.jobs.checkpoints import StoredCheckpoint, to_resume
from gpuwatch.domain.jobs.job import Job, JobRun, JobState
from gpuwatch.domain.jobs.job_values import JobFiles
from gpuwatch.domain.jobs.run_plan import (
    assignments,
    command_script,
    is_pulled,
    job_folder,
    pull_script,
    remove_others,
    run_folder,
    runner,
    work_folder,
)
from gpuwatch.domain.jobs.run_status import is_safe_path
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.setup.store_addresses import is_remote
from gpuwatch.engine.jobs.job_copies import JobCopies
from gpuwatch.engine.jobs.job_parts import JobParts, local_path
from gpuwatch.errors import GpuwatchError
from gpuwatch.ports.remote import CannotSend, ObjectMissing, RemoteRefused, RemoteShell, RemoteUnreachable

log = logging.getLogger(__name__)


class InputMissing(GpuwatchError):
    """An input of a job is missing for good; the text names it."""


class RunPreparer:
    """The steps from a running instance to a running command.

    Args:
        program: the source of the runner.
    """

    def __init__(self, parts: JobParts, program: bytes, copies: JobCopies) -> None:
        self._parts = parts
        self._copies = copies
        self._program = program

    def advance(self, job: Job, run: JobRun, launch: Launch) -> Job:
        """Do the remaining steps, and return the updated job.

        Raises:
            RemoteUnreachable, RemoteRefused, StoreUnreachable: try again later.
            InputMissing: trying again does not help.
        """
        _check_paths(job)
        if run.host_key is None:
            run = self._pinned(run, launch)
        shell = self._parts.shell(run)
        if run.step == "new":
            self._install(shell, job, run)
            run = self._parts.save(run, step="installed")
        if run.step == "installed":
            self._bring_inputs(shell, job)
            run = self._parts.save(run, step="inputs")
        if run.step == "inputs":
            run = self._start(shell, job, run, launch)
        return self._parts.record(job, JobState.RUNNING, run=run)

    def _pinned(self, run: JobRun, launch: Launch) -> JobRun:
        address = self._parts.address(launch)
        if address is None:
            raise RemoteUnreachable("the instance list shows no SSH address yet")
        key = self._parts.shells.host_key(address)
        return self._parts.save(run, ssh_host=address.host, ssh_port=address.port, ssh_user=address.user, host_key=key)

    def _install(self, shell: RemoteShell, job: Job, run: JobRun) -> None:
        folder = shlex.quote(run_folder(job.job_id, run.run_number))
        target = f"{job_folder(job.job_id)}/runner.sh"
        work = shlex.quote(work_folder(job.job_id))
        # the previous job's results are fetched; the disk now belongs to this job
        emptied = f"{remove_others(job.job_id)} && " if run.held_from is not None else ""
        self._sh(
            shell,
            f"umask 077; {emptied}mkdir -p {folder} {work} && cat > {target}.new && mv {target}.new {target}",
            self._program,
        )

    def _bring_inputs(self, shell: RemoteShell, job: Job) -> None:
        if (prepared := self._parts.files.prepared_folder(job)) is not None:
            self._send(shell, job, JobFiles(source=str(prepared), target="."))
        variables = assignments(self._parts.variables(job))
        for number, one in enumerate(job.definition.inputs):
            if is_remote(one.source):
                self._send_from_store(shell, job, number, one)
            elif is_pulled(one.source):
                script = f"{variables}cd {shlex.quote(work_folder(job.job_id))} && {pull_script(one)}\n"
                result = shell.run("sh -s", timeout_s=self._parts.bounds.send_s, stdin=script.encode())
                if result.exit_code != 0:
                    raise InputMissing(f"cannot copy input {one.source}: {result.stderr or result.exit_code}")
            else:
                self._send(shell, job, one)

    def _send_from_store(self, shell: RemoteShell, job: Job, number: int, one: JobFiles) -> None:
        """Copy it to this host, then to the machine: no credentials of a store leave this host."""
        folder = self._parts.files.input_folder(job.job_id, number)
        try:
            self._parts.stores.get(one.source, folder, timeout_s=self._parts.bounds.store_s)
        except ObjectMissing as error:
            raise InputMissing(f"cannot copy input {one.source}: {error}") from error
        name = one.source.rstrip("/").rpartition("/")[2].rpartition(":")[2]
        is_file = [found.name for found in folder.iterdir()] == [name] and (folder / name).is_file()
        self._send(shell, job, msgspec.structs.replace(one, source=str(folder / name if is_file else folder)))
        shutil.rmtree(folder, ignore_errors=True)

    def _send(self, shell: RemoteShell, job: Job, one: JobFiles) -> None:
        try:
            self._send_local(shell, job, one)
        except CannotSend as error:
            raise InputMissing(f"input {one.source} cannot be sent: {error}") from error

    def _send_local(self, shell: RemoteShell, job: Job, one: JobFiles) -> None:
        try:
            local = local_path(job.definition, one.source)
        except OSError as error:
            raise InputMissing(f"input {one.source}: {error.strerror}") from error
        if not os.access(local, os.R_OK):
            raise InputMissing(f"input {local} does not exist, or gpuwatch may not read it")
        work, bound = work_folder(job.job_id), self._parts.bounds.send_s
        if local.is_dir():
            shell.send(local, _there(work, one.target), timeout_s=bound)
            return
        is_folder = one.target in {"", "."} or one.target.endswith(("/", "/."))
        target = f"{one.target.rstrip('/') or '.'}/{local.name}" if is_folder else one.target
        folder, _, name = _there(work, target).rpartition("/")
        if name == local.name:
            shell.send(local, folder, timeout_s=bound)
        else:
            shell.send(local, f"{folder}/.sent-{name}", timeout_s=bound)
            sent = shlex.quote(f"{folder}/.sent-{name}/{local.name}")
            self._sh(shell, f"cp -f {sent} {shlex.quote(f'{folder}/{name}')}")

    def _start(self, shell: RemoteShell, job: Job, run: JobRun, launch: Launch) -> JobRun:
        """Store the lease, then send the start order: from then on the command may be running."""
        chosen = self._checkpoint(job)
        if chosen is not None:
            files = self._parts.files.checkpoint_folder(job.job_id, chosen.sequence)
            shell.send(files, work_folder(job.job_id), timeout_s=self._parts.bounds.send_s)
        script = command_script(job, run.run_number, None if chosen is None else chosen.name)
        folder = run_folder(job.job_id, run.run_number)
        command = f"{shlex.quote(folder)}/command"  # moved into place: a shell may still read the old file
        self._sh(shell, f"umask 077; cat > {command}.new && mv {command}.new {command}", script.encode())
        begins_with = None if chosen is None else chosen.name
        run = self._parts.save(run, lease_until=self._parts.lease_end(), checkpoint=begins_with)
        words = (self._parts.bounds.lease_s, _seconds_left(self._parts, launch), 0, self._notices(job, launch))
        result = shell.run(
            runner(job.job_id, "start", folder, work_folder(job.job_id), *words),
            timeout_s=self._parts.bounds.call_s,
            stdin=assignments(self._parts.variables(job)).encode(),
        )
        if result.exit_code != 0:
            raise RemoteRefused(f"cannot start the command: {result.stderr}")
        return msgspec.structs.replace(run, step="started", started_at=self._parts.clock())

    def _notices(self, job: Job, launch: Launch) -> str:
        """Return what the runner does about the provider's notices: reads them, and lets a command save that can."""
        if not launch.spot or launch.provider not in self._parts.has_imds:
            return "none"
        return "imds" if job.definition.checkpoint is None else "imds-save"

    def _checkpoint(self, job: Job) -> StoredCheckpoint | None:
        """Return the newest local checkpoint that is intact and that no run failed with, else one from the store."""
        if job.definition.checkpoint is None:
            return None
        stored = to_resume(self._parts.files.checkpoints(job.job_id))
        intact = next((one for one in stored if self._parts.files.is_intact(job.job_id, one)), None)
        return intact or self._copies.restore(job)

    def _sh(self, shell: RemoteShell, command: str, stdin: bytes = b"") -> None:
        result = shell.run(command, timeout_s=self._parts.bounds.call_s, stdin=stdin)
        if result.exit_code != 0:
            raise RemoteUnreachable(f"the machine is not ready: {result.stderr or result.exit_code}")


def _there(work: str, target: str) -> str:
    """Return a path on the machine: in the work folder, unless it is absolute."""
    return target if target.startswith("/") else f"{work}/{target}"


def _check_paths(job: Job) -> None:
    """Check that results and checkpoints lie in the work folder. Raises InputMissing."""
    checkpoint = job.definition.checkpoint
    paths = [result.source for result in job.definition.results] + ([checkpoint.path] if checkpoint else [])
    for path in paths:
        if not is_safe_path(path.rstrip("/")):
            raise InputMissing(f"{path!r}: results and checkpoints must be in the job's working folder")


def _seconds_left(parts: JobParts, launch: Launch) -> int:
    """Return when the runner ends the command even without gpuwatch, at the launch's deadline. 0: no limit."""
    if launch.deadline is None:
        return 0
    return max(int((launch.deadline - parts.clock()) / timedelta(seconds=1)), 1)
