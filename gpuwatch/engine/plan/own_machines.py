"""Reads the GPUs of the owner's own machines, all of them at once: a hung one delays no other beyond its time limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from gpuwatch.domain.plan.machines.gpu_reading import GpuReading, parse_gpus
from gpuwatch.domain.plan.machines.machine_use import MachineReading
from gpuwatch.engine.setup.parallel import run_in_parallel
from gpuwatch.errors import GpuwatchError
from gpuwatch.ports.remote import RemoteShell

READ_TIMEOUT_S: Final = 20.0  # of one machine: ten to connect, and the drivers' tools take seconds
_MOST_BYTES: Final = 16_384


class MachineUnreadable(GpuwatchError):
    """It answers, but states no GPUs; the text says what it states, and may be shown."""


class OwnMachines:
    """The machines, and what was last read of each.

    Args:
        open_shell: opens a shell on a host. Raises RemoteRefused, RemoteUnreachable.
        script: the runner, whose `use` prints what a machine is busy with: the same for rented machines.
    """

    def __init__(self, hosts: Sequence[str], open_shell: Callable[[str], RemoteShell], script: bytes) -> None:
        self.hosts = tuple(hosts)
        self._open_shell = open_shell
        self._script = script
        self.newest: tuple[MachineReading, ...] = ()

    def read(self, now: Callable[[], datetime]) -> tuple[MachineReading, ...]:
        """Read all machines, in their order. A machine that cannot be read has an error instead of GPUs."""
        found = {
            result.name: MachineReading(host=result.name, at=now(), gpus=tuple(result.result or ()), error=result.error)
            for result in run_in_parallel(self.hosts, self._gpus, READ_TIMEOUT_S + 5)
        }
        self.newest = tuple(found[host] for host in self.hosts)
        return self.newest

    def _gpus(self, host: str) -> list[GpuReading]:
        answer = self._open_shell(host).run(
            "sh -s use", timeout_s=READ_TIMEOUT_S, stdin=self._script, max_bytes=_MOST_BYTES
        )
        if answer.is_truncated:
            raise MachineUnreadable(f"it prints more than {_MOST_BYTES:,} bytes for its GPUs")
        try:
            gpus = parse_gpus(answer.stdout.decode("utf-8", "replace"))
        except ValueError as error:
            raise MachineUnreadable(f"no figures of its GPUs: {error}") from error
        if not gpus:
            raise MachineUnreadable("no GPU there: nvidia-smi, amd-smi and rocm-smi are missing, fail, or find none")
        return gpus
