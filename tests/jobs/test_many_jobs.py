"""Hundreds of running jobs: each is served in its turn, and no lease lapses however often the daemon ticks."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO

import pytest

from gpuwatch.domain.jobs.job import Job, JobRun, JobState
from gpuwatch.domain.jobs.job_definition import JobDefinition
from gpuwatch.domain.jobs.job_values import JobLimit
from gpuwatch.domain.launches.instance import SshAddress
from gpuwatch.engine.jobs.job_parts import JobParts
from gpuwatch.engine.jobs.job_runner import JobRunner
from gpuwatch.engine.jobs.job_threads import JobThreads, Lane
from gpuwatch.ports.remote import RemoteAnswer
from gpuwatch.remote.job_folder import JobFolder
from gpuwatch.remote.rclone import Rclone
from tests.jobs.job_world import BEGIN, WATCH, MemoryJobStore, MemoryLaunches, launch_of

WORKERS = 16
ID_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class ManyMachines:
    """Machines whose runners answer at once, on a clock that moves as if calls of `call_s` ran in sixteen threads.

    In the test there is one thread, so that the clock does not run while another thread is held up.
    """

    def __init__(self, call_s: float) -> None:
        self.call_s = call_s
        self.lock = threading.Lock()
        self.passed_s = 0.0
        self.leases: dict[str, float] = {}
        self.lapsed: set[str] = set()
        self.served: dict[str, int] = {}

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.passed_s)

    def public_key(self, launch_id: str) -> str:
        return "ssh-ed25519 AAAA"

    def host_key(self, address: SshAddress) -> str:
        return "ssh-ed25519 AAAA"

    def delete_keys(self, launch_id: str) -> None:
        pass

    def open(self, launch_id: str, address: SshAddress, host_key: str) -> ManyMachines:
        return self

    def run(self, command: str, *, timeout_s: float, stdin: bytes = b"", max_bytes: int = 0) -> RemoteAnswer:
        _, program, what, _, _, until, *_ = [*shlex.split(command), "", "", ""]
        job_id = program.split("/")[1]
        with self.lock:
            self.passed_s += self.call_s / WORKERS
            up_s = self.passed_s
            if up_s > self.leases[job_id]:
                self.lapsed.add(job_id)
            if what == "observe":
                self.leases[job_id] = max(self.leases[job_id], float(until))
                self.served[job_id] = self.served.get(job_id, 0) + 1
            lease = self.leases[job_id]
        said = f"gpuwatch-runner=1\nstarted=1\nphase=running\nup={up_s:.0f}\nlease={lease:.0f}\nlog_size=0\n\n"
        return RemoteAnswer(exit_code=0, stdout=said.encode(), stderr="")

    def read(self, command: str, output: BinaryIO, *, timeout_s: float, max_bytes: int) -> int:
        raise AssertionError

    def send(self, local: Path, remote: str, *, timeout_s: float) -> None:
        raise AssertionError


class CountedThreads(JobThreads):
    """Knows whether any round waits or runs."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.unfinished = 0
        self.counting = threading.Lock()

    def start(self, job_id: str, step: Callable[[], None], lane: Lane = Lane.OBSERVE) -> bool:
        def counted() -> None:
            try:
                step()
            finally:
                self._count(-1)

        self._count(1)
        is_accepted = super().start(job_id, counted, lane)
        if not is_accepted:
            self._count(-1)
        return is_accepted

    def _count(self, change: int) -> None:
        with self.counting:
            self.unfinished += change


def _world(tmp_path: Path, jobs: int, call_s: float) -> tuple[JobRunner, ManyMachines, CountedThreads]:
    store, launches, machines = MemoryJobStore(), MemoryLaunches(), ManyMachines(call_s)
    for number in range(jobs):
        job_id = "job" + ID_LETTERS[number // 26] + ID_LETTERS[number % 26]
        spec = JobDefinition(name=job_id, command="x", resources=WATCH, limit=JobLimit())
        store.jobs[job_id] = Job(
            job_id=job_id, name=job_id, definition=spec, state=JobState.RUNNING, priority=0, run_number=1,
            submitted_at=BEGIN + timedelta(seconds=number), launch_id=job_id, retries_left=2,
        )  # fmt: skip
        launches.rows[job_id] = launch_of(job_id, BEGIN)
        store.job_runs[job_id, 1] = JobRun(
            job_id=job_id, run_number=1, launch_id=job_id, step="started", ssh_host="h", ssh_port=22, host_key="k",
            started_at=BEGIN, lease_until=BEGIN + timedelta(seconds=700),
        )  # fmt: skip
        machines.leases[job_id] = 600.0
    parts = JobParts(
        jobs=store, launches=launches, shells=machines, files=JobFolder(tmp_path), stores=Rclone(),  # type: ignore[arg-type]
        address=lambda launch: None, variables=lambda job: {}, clock=machines.now,
    )  # fmt: skip
    threads = CountedThreads(1)
    return JobRunner(parts, b"", threads), machines, threads


@pytest.mark.parametrize("jobs", [40, 500])
@pytest.mark.parametrize("tick_s", [1.0, 60.0])
def test_no_lease_lapses_and_every_job_is_served_in_its_turn(tmp_path: Path, jobs: int, tick_s: float) -> None:
    """A round takes five seconds; the daemon ticks more often than that, or less."""
    runner, machines, threads = _world(tmp_path, jobs, call_s=5.0)
    ticked_s, pause = -tick_s, threading.Event()
    while machines.passed_s < 1_500:
        if machines.passed_s - ticked_s >= tick_s:
            ticked_s = machines.passed_s
            runner.tick(machines.now())
        elif not threads.unfinished:  # nobody is served at the moment: time passes all the same
            with machines.lock:
                machines.passed_s += 0.5
        else:
            pause.wait(0.001)
    runner.close()
    assert machines.lapsed == set()
    counts = machines.served.values()
    assert len(counts) == jobs
    assert min(counts) >= 2


def test_a_job_that_waited_longest_is_next(tmp_path: Path) -> None:
    """One thread, and a tick at every moment: still nobody is served twice before everybody was served once."""
    threads, order, done = JobThreads(1), list[str](), threading.Semaphore(0)

    def step(name: str) -> Callable[[], None]:
        def run() -> None:
            order.append(name)
            for other in "abcde":
                threads.start(other, step(other))
            done.release()

        return run

    threads.start("a", step("a"))
    for _ in range(20):
        assert done.acquire(timeout=60)
    threads.close()
    assert all(order[at + 5] == order[at] for at in range(1, 12)), order


def test_transfers_of_hours_delay_no_observation() -> None:
    threads, hold, seen = JobThreads(2), threading.Event(), threading.Event()
    for number in range(5):
        threads.start(f"sending {number}", lambda: hold.wait(60) and None, Lane.TRANSFER)
    threads.start("running", seen.set)
    assert seen.wait(60)
    hold.set()
    threads.close()


def test_a_job_never_has_two_rounds_whatever_their_lanes() -> None:
    threads, hold = JobThreads(2), threading.Event()
    assert threads.start("a", lambda: hold.wait(60) and None, Lane.TRANSFER)
    assert not threads.start("a", lambda: None, Lane.OBSERVE)
    hold.set()
    threads.close()
