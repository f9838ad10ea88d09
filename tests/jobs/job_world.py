"""Machines, a queue and a provider for the runs of jobs: all that `JobRunner` needs, on a clock of the test."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from gpuwatch.domain.jobs.job import Job, JobEvent, JobRun, JobState, JobTransition, apply_transition
from gpuwatch.domain.jobs.job_definition import JobDefinition
from gpuwatch.domain.jobs.job_values import CheckpointSpec, JobFiles, JobLimit
from gpuwatch.domain.launches.instance import SshAddress
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.emulator.instances.machine_sshd import MachineSshd
from gpuwatch.engine.jobs.job_parts import JobParts, RunBounds
from gpuwatch.engine.jobs.job_runner import JobRunner
from gpuwatch.errors import JobConflict
from gpuwatch.ports import OutboxAlert
from gpuwatch.ports.remote import RemoteAnswer, RemoteShell, RemoteShells, RemoteUnreachable
from gpuwatch.remote import runner_script
from gpuwatch.remote.job_folder import JobFolder
from gpuwatch.remote.rclone import Rclone
from gpuwatch.remote.ssh import OpenSshShells

BEGIN = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
WATCH = Watch(name="job", gpu=("H100",), gpu_names=("H100",), max_price_usd_gpu_hour=Decimal("2.00"))


class MemoryJobStore:
    """Implements `ports.jobs.JobStore`; its data survives any death."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.job_runs: dict[tuple[str, int], JobRun] = {}
        self.happened: list[JobEvent] = []

    def open_jobs(self) -> list[Job]:
        return [job for job in self.jobs.values() if not job.is_over]

    def ended_jobs(self, names: Collection[str]) -> list[Job]:
        return [job for job in self.jobs.values() if job.is_over and job.name in names]

    def job(self, job_id: str) -> Job | None:
        return self.jobs.get(job_id)

    def runs(self, job_id: str) -> list[JobRun]:
        return [run for key, run in sorted(self.job_runs.items()) if key[0] == job_id]

    def events(self, job_id: str) -> list[JobEvent]:
        return [event for event in self.happened if event.job_id == job_id]

    def save_run(self, run: JobRun, event: JobEvent | None = None) -> None:
        self.job_runs[run.job_id, run.run_number] = run
        if event is not None:
            self.happened.append(event)

    def record(self, job: Job, transition: JobTransition, run: JobRun | None = None) -> Job:
        if self.jobs[job.job_id].version != job.version:
            raise JobConflict("changed meanwhile")
        after, event = apply_transition(job, transition)
        self.jobs[job.job_id] = after
        self.save_run(run, event) if run is not None else self.happened.append(event)
        return after

    def take_over(self, job: Job, transition: JobTransition, run: JobRun, donor_run: JobRun) -> Job:
        after = self.record(job, transition, run)
        self.save_run(donor_run)
        return after


class MemoryLaunches:
    """The part of `SqlLaunchRepository` that runs of jobs need."""

    def __init__(self) -> None:
        self.rows: dict[str, Launch] = {}
        self.alerts: dict[str, OutboxAlert] = {}

    def get(self, launch_id: str) -> Launch | None:
        return self.rows.get(launch_id)

    def transition(
        self,
        launch: Launch,
        to_state: LaunchState,
        cause: str,
        now: datetime,
        outbox_alert: OutboxAlert | None = None,
        *,
        message: str | None = None,
        hook: str | None = None,
        audit: None = None,
        **changes: Any,
    ) -> Launch:
        after = msgspec.structs.replace(launch, state=to_state, version=launch.version + 1, **changes)
        self.rows[launch.launch_id] = after
        return after

    def extend(self, launch: Launch, by_s: float, budget: Budget, of_watch: Budget, now: datetime) -> Launch:
        after = msgspec.structs.replace(launch, max_runtime_s=(launch.max_runtime_s or 0) + by_s)
        self.rows[launch.launch_id] = after
        return after

    def enqueue(self, outbox_alert: OutboxAlert) -> bool:
        is_new = outbox_alert.once_key not in self.alerts
        self.alerts.setdefault(outbox_alert.once_key or "", outbox_alert)
        return is_new


class LocalMachine:
    """A machine without an SSH server, for tests with hundreds of runs: a folder, and processes in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home, self.port, self.user = folder, folder / "home", 22, "root"
        self.reachable = True

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)

    def authorize(self, public_key: str) -> None:
        pass

    def disconnect(self) -> None:
        self.reachable = False

    def destroy(self) -> None:
        self.reachable = False
        MachineSshd.destroy(self)  # type: ignore[arg-type]

    def processes(self) -> list[int]:
        return MachineSshd.processes(self)  # type: ignore[arg-type]

    def preempt(self, notice_s: float) -> None:
        MachineSshd.preempt(self, notice_s)  # type: ignore[arg-type]


class LocalShell:
    """A shell on a `LocalMachine`."""

    def __init__(self, machine: LocalMachine) -> None:
        self._machine = machine

    def run(self, command: str, *, timeout_s: float, stdin: bytes = b"", max_bytes: int = 65_536) -> RemoteAnswer:
        if not self._machine.reachable:
            raise RemoteUnreachable("no route")
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._machine.home),
            "GPUWATCH_MACHINE": str(self._machine.folder),
        }
        env |= {"GPUWATCH_RUNNER_EVERY_S": "0.3", "GPUWATCH_RUNNER_GRACE_S": "20"}
        done = subprocess.run(
            ["/bin/sh", "-c", command], cwd=self._machine.home, env=env, input=stdin, capture_output=True,
            check=False, timeout=240,
        )  # fmt: skip
        return RemoteAnswer(
            exit_code=done.returncode, stdout=done.stdout[:max_bytes], stderr=done.stderr.decode(errors="replace")
        )

    def read(self, command: str, into: BinaryIO, *, timeout_s: float, max_bytes: int) -> int:
        return into.write(self.run(command, timeout_s=timeout_s, max_bytes=max_bytes).stdout)

    def send(self, local: Path, remote: str, *, timeout_s: float) -> None:
        self.run(f"mkdir -p '{remote}' && cp -r '{local}'{'/.' if local.is_dir() else ''} '{remote}/'", timeout_s=60)


class LocalShells:
    """Opens shells on the local machines of a world."""

    def __init__(self, world: JobWorld) -> None:
        self._world = world

    def public_key(self, launch_id: str) -> str:
        return "ssh-ed25519 AAAA"

    def host_key(self, address: SshAddress) -> str:
        return "ssh-ed25519 AAAA"

    def open(self, launch_id: str, address: SshAddress, host_key: str) -> RemoteShell:
        machine = self._world.machines[launch_id]
        assert isinstance(machine, LocalMachine)
        return LocalShell(machine)

    def delete_keys(self, launch_id: str) -> None:
        pass


class JobWorld:
    """The environment of `JobRunner`.

    Args:
        real: whether each machine has a real SSH server.
        bounds: time limits of the runs.
    """

    def __init__(self, folder: Path, *, real: bool = True, bounds: Mapping[str, Any] | None = None) -> None:
        self.folder = folder
        self.real = real
        self.now = BEGIN
        self.jobs = MemoryJobStore()
        self.launches = MemoryLaunches()
        self.machines: dict[str, MachineSshd | LocalMachine] = {}
        self.files = JobFolder(folder / "data")
        self.bounds = RunBounds(**dict(bounds or {}))
        self.shells: RemoteShells = OpenSshShells(folder / "ssh") if real else LocalShells(self)
        self.stores = Rclone()
        self.ticked: set[str] = set()
        self.variables: Mapping[str, str] = {}
        self._numbers = count(1)
        self.gpu = "H100"
        self.rents: Callable[[Job], bool] = lambda job: True
        self.stays: set[str] = set()  # launches whose end the provider does not carry out yet
        self.wrap: Callable[[JobParts], JobParts] = lambda parts: parts
        self.runner = self.restarted()

    def restarted(self) -> JobRunner:
        """Restart gpuwatch, with empty memory."""
        parts = JobParts(
            jobs=self.jobs,
            launches=self.launches,  # type: ignore[arg-type]
            shells=self.shells,
            files=self.files,
            stores=self.stores,
            address=self._address,
            variables=lambda job: self.variables,
            clock=lambda: self.now,
            bounds=self.bounds,
            ticked=lambda job: self.ticked,
        )
        self.runner = JobRunner(self.wrap(parts), runner_script())
        return self.runner

    def submit(self, command: str, name: str = "train", **wanted: Any) -> Job:
        plain = {"resources": WATCH, "limit": JobLimit(), "folder": str(self.folder / "project")}
        spec = JobDefinition(name=name, command=command, **(plain | wanted))  # fmt: skip
        (self.folder / "project").mkdir(exist_ok=True)
        job = Job(
            job_id="abcdefgh" if name == "train" else f"{name:x<8.8}", name=name, definition=spec,
            state=JobState.QUEUED, priority=0, submitted_at=self.now, retries_left=spec.retries,
        )  # fmt: skip
        self.jobs.jobs[job.job_id] = job
        return job

    # --- the queue and the provider -----------------------------------------------------------------------------------

    def rent(self) -> None:
        """Act as the queue: start a launch for every waiting job."""
        for job in self.jobs.open_jobs():
            if job.state is JobState.QUEUED and self.rents(job):
                launch_id = "l" + "abcdefghijklmnop"[next(self._numbers) - 1]
                machine = (MachineSshd if self.real else LocalMachine)(self.folder / launch_id)
                machine.start()
                _quick(machine)
                machine.authorize(self.shells.public_key(launch_id))
                self.machines[launch_id] = machine
                self.launches.rows[launch_id] = launch_of(launch_id, self.now, self.gpu, job.job_id)
                step = JobTransition(to_state=JobState.RENTING, at=self.now, changes={"launch_id": launch_id})
                self.jobs.record(job, step)

    def provide(self) -> None:
        """Act as the provider: destroy what must end, and prove its absence."""
        for launch in list(self.launches.rows.values()):
            if launch.state is LaunchState.STOPPING and launch.launch_id not in self.stays:
                self.machines[launch.launch_id].destroy()
                self.launches.transition(launch, LaunchState.ENDED, "gone", self.now, ended_at=self.now)

    def lose(self, launch_id: str) -> None:
        """The host disappears, and the provider's list shows that."""
        self.machines[launch_id].destroy()
        launch = self.launches.rows[launch_id]
        self.launches.transition(launch, LaunchState.ENDED, "gone", self.now, ended_at=self.now, end_reason="gone")

    def round(self) -> Job:
        """Run one round of everything."""
        self.rent()
        self.runner.tick(self.now)
        self.provide()
        return self.job

    def until(self, wanted: Callable[[Job], Any], rounds: int = 400, step_s: float = 5.0) -> Job:
        """Run rounds until the job is in the wanted state."""
        for _ in range(rounds):
            if wanted(job := self.round()):
                return job
            self.now += timedelta(seconds=step_s)
            time.sleep(0.2 if self.real else 0.05)  # a round over SSH costs a tenth of a second of a core
        raise AssertionError((self.job, self.jobs.runs(self.job.job_id), self.texts()))

    def over(self) -> Job:
        return self.until(lambda job: job.is_over)

    @property
    def job(self) -> Job:
        return next(iter(self.jobs.jobs.values()))

    @property
    def machine(self) -> MachineSshd | LocalMachine:
        """Return the newest run."""
        return list(self.machines.values())[-1]

    @property
    def run(self) -> JobRun:
        return self.jobs.runs(self.job.job_id)[-1]

    def work(self) -> Path:
        return self.machine.home / "gpuwatch" / self.job.job_id / "work"

    def texts(self) -> list[str]:
        return [alert.alert.headline for alert in self.launches.alerts.values()]

    def alive(self) -> list[str]:
        return [row.launch_id for row in self.launches.rows.values() if not row.is_over]

    def close(self) -> None:
        for machine in self.machines.values():
            machine.destroy()

    def _address(self, launch: Launch) -> SshAddress | None:
        machine = self.machines[launch.launch_id]
        return SshAddress(host="127.0.0.1", port=machine.port, user=machine.user)


def _quick(machine: MachineSshd | LocalMachine) -> None:
    """Its runner checks three times a second."""
    if isinstance(machine, MachineSshd):
        quick = "export GPUWATCH_RUNNER_EVERY_S=0.3\n"
        (machine.folder / "etc/environment").write_text(quick)


def launch_of(launch_id: str, now: datetime, gpu: str = "H100", watch_id: str | None = None) -> Launch:
    return Launch(
        launch_id=launch_id, watch="job:train", slot=0, provider="vastai", offer_id="1", machine_id="m", gpu=gpu,
        gpu_count=1, spot=True, state=LaunchState.RUNNING, dry_run=False, label=f"gpuwatch-{launch_id}",
        listed_microusd_hour=1_000_000, price_microusd_hour=1_000_000, intended_at=now, running_at=now,
        instance_id=f"i-{launch_id}", watch_id=watch_id,
    )  # fmt: skip


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


RESULTS = (JobFiles(source="out/*.txt", target="results"),)
CHECKPOINTS = CheckpointSpec(path="ckpt", every_s=1.0, keep=2)
