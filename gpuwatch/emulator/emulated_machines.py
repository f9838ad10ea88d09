"""A real SSH server for every running instance: a folder stands for its machine, and its start script runs there."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.emulator.machine_sshd import MachineSshd

if TYPE_CHECKING:
    from gpuwatch.emulator.instance import EmulatedInstance

_ONSTART_TIMEOUT_S = 20.0


class EmulatedMachines:
    """The machines of a marketplace, by instance; `close` ends them all.

    Args:
        folder: contains the folder of each machine.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.machines: dict[int, MachineSshd] = {}

    def sync(self, instance: EmulatedInstance) -> None:
        """Boot or halt the machine of an instance, by its state. Its disk stays while the contract exists."""
        running = instance.actual_status == "running"
        if running and instance.id not in self.machines:
            machine = MachineSshd(self._folder / str(instance.id))
            machine.start()
            self.machines[instance.id] = machine
            instance.ssh, instance.ssh_user = ("127.0.0.1", machine.port), machine.user
            self._run_onstart(machine, str(instance.body.get("onstart") or ""))
        elif not running:
            self.halt(instance.id)

    def halt(self, instance_id: int) -> None:
        """Halt it, with everything that it runs."""
        machine = self.machines.pop(instance_id, None)
        if machine is not None:
            machine.destroy()

    def close(self) -> None:
        """Halt all machines."""
        for instance_id in list(self.machines):
            self.halt(instance_id)

    def _run_onstart(self, machine: MachineSshd, script: str) -> None:
        env = {"PATH": os.environ["PATH"], "HOME": str(machine.home), "GPUWATCH_MACHINE": str(machine.folder)}
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(  # noqa: S603 - the renter's own script, on the renter's own emulator
                ["/bin/sh", "-c", script], cwd=machine.home, env=env, timeout=_ONSTART_TIMEOUT_S, check=False,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
