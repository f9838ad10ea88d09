"""A machine with a real SSH server, and a shell on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.domain.jobs.run_status import RunnerStatus, RunPhase, parse_status
from gpuwatch.domain.launches.instance import SshAddress
from gpuwatch.emulator.instances.machine_sshd import MachineSshd, has_sshd
from gpuwatch.ports.remote import RemoteAnswer
from gpuwatch.remote import runner_script
from gpuwatch.remote.ssh import OpenSshShell, OpenSshShells

_numbers = count(1)


def proc_file(pid: int, name: str) -> bytes:
    """Kill it; does nothing if the process has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


class RunOnMachine:
    """One run of a job on a machine, driven by the runner like in gpuwatch."""

    def __init__(self, machine: MachineSshd, shell: OpenSshShell, job: str, number: int = 1) -> None:
        self.machine, self.shell, self.job, self.number = machine, shell, job, number
        self.folder = machine.home / job / "runs" / str(number)
        self.work = machine.home / job / "work"
        self.settings = ""  # further variables of the runner
        self.grace_s = 20  # from SIGTERM to SIGKILL: a busy machine needs seconds for a trap

    def prepare(self, command: str) -> None:
        for name, text in ((f"{self.job}/runner.sh", runner_script()), (self._in("command"), command.encode())):
            self.sh(f"mkdir -p {Path(name).parent} && cat > {name}", text)

    def start(
        self, lease_s: int = 600, deadline_s: int = 0, idle_s: int = 0, env: bytes = b"", notices: str = "none"
    ) -> RemoteAnswer:
        return self.runner(f"start {self.folder} {self.work} {lease_s} {deadline_s} {idle_s} {notices}", env)

    def observe(self, until: int = 0, offset: int = 0, most: int = 10_000) -> RunnerStatus:
        said = self.runner(f"observe {self.folder} {self.work} {until} {offset} {most}")
        status = parse_status(said.stdout)
        assert status is not None, said
        return status

    def ended(self, within_s: float = 60.0) -> RunnerStatus:
        return self.until(lambda status: status.phase is RunPhase.ENDED, within_s)

    def until(self, wanted: Callable[[RunnerStatus], Any], within_s: float = 60.0) -> RunnerStatus:
        ends_at = time.monotonic() + within_s
        while not wanted(status := self.observe()):
            assert time.monotonic() < ends_at, status
            time.sleep(0.2)
        return status

    def runner(self, words: str, stdin: bytes = b"") -> RemoteAnswer:
        settings = f"GPUWATCH_RUNNER_EVERY_S=0.3 GPUWATCH_RUNNER_GRACE_S={self.grace_s} {self.settings}"
        return self.sh(f"{settings} sh {self.job}/runner.sh {words}", stdin)

    def sh(self, command: str, stdin: bytes = b"") -> RemoteAnswer:
        return self.shell.run(command, timeout_s=60, stdin=stdin)

    def pid(self, who: str) -> int:
        return int((self.folder / f"{who}.pid").read_text())

    def processes(self) -> list[int]:
        """Return the process id of the command."""
        mark = f"GPUWATCH_RUN_FOLDER={self.folder}".encode()
        return [process for process in self.machine.processes() if mark in proc_file(process, "environ")]

    def _in(self, name: str) -> str:
        return f"{self.job}/runs/{self.number}/{name}"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MachineSshd]:
    if not has_sshd():
        pytest.skip("Debian's openssh-server is not installed")
    with MachineSshd(tmp_path_factory.mktemp("machine")) as made:
        yield made


@pytest.fixture(scope="module")
def shells(machine: MachineSshd, tmp_path_factory: pytest.TempPathFactory) -> OpenSshShells:
    made = OpenSshShells(tmp_path_factory.mktemp("ssh"))
    machine.authorize(made.public_key("launch"))
    return made


@pytest.fixture(scope="module")
def address(machine: MachineSshd) -> SshAddress:
    return SshAddress(host="127.0.0.1", port=machine.port, user=machine.user)


@pytest.fixture(scope="module")
def shell(shells: OpenSshShells, address: SshAddress) -> OpenSshShell:
    return shells.open("launch", address, shells.host_key(address))


@pytest.fixture
def run(machine: MachineSshd, shell: OpenSshShell) -> RunOnMachine:
    return RunOnMachine(machine, shell, f"job{next(_numbers)}")
