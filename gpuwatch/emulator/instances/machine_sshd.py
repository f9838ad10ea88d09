"""A real SSH server per rented machine: Debian's sshd on loopback, with a folder that stands for the machine.

It runs as the current user, and accepts only the keys of its own `authorized_keys`. Each login gets HOME and its
working folder inside the machine's folder, and its shell reads start-up files only there. Faults: it refuses, loses its
network, gets notice, has a wrong clock, or dies with all its processes.

`EmulatedMachines` boots one for each running instance, whose start script runs there.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuwatch.emulator.instances.emulated_instance import EmulatedInstance

SSHD = "/usr/sbin/sshd"
_START_TIMEOUT_S = 60.0
_PORTS = range(10_000, 32_000)  # below the ephemeral ports: nobody else gets one while its machine is offline

# the default key exchange of SSH clients takes six times as long, and nobody eavesdrops on loopback
_CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/etc/host_key
PidFile none
AuthorizedKeysFile {folder}/etc/authorized_keys {folder}/home/.ssh/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AllowTcpForwarding local
X11Forwarding no
PrintMotd no
PrintLastLog no
SetEnv HOME={folder}/home
KexAlgorithms curve25519-sha256
MaxStartups 200
ForceCommand {folder}/etc/login
LogLevel ERROR
"""

# `bin` is first on PATH: a fault is a program of that name there
_LOGIN = """\
#!/bin/sh
HOME={folder}/home PATH={folder}/bin:$PATH
export HOME PATH GPUWATCH_MACHINE={folder}
[ -e "{folder}/etc/environment" ] && . "{folder}/etc/environment"
cd "$HOME" || exit 255
exec /bin/sh -c "${{SSH_ORIGINAL_COMMAND:-/bin/sh}}"
"""

_ONSTART_TIMEOUT_S = 20.0


def has_sshd() -> bool:
    """Whether Debian's openssh-server and client are installed."""
    return os.access(SSHD, os.X_OK) and shutil.which("ssh-keygen") is not None


class MachineSshd:
    """One machine. Use it as a context manager, or call `start` and `destroy`.

    Args:
        folder: of the machine; created.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.port = _free_port()
        self._sshd: subprocess.Popen[bytes] | None = None

    @property
    def user(self) -> str:
        """The login user: the current one."""
        import pwd  # noqa: PLC0415 - not on every system

        return pwd.getpwuid(os.getuid()).pw_name

    def __enter__(self) -> MachineSshd:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def authorize(self, public_key: str) -> None:
        """Add an authorized key."""
        self._etc_folder()
        with (self.folder / "etc/authorized_keys").open("a", encoding="ascii") as file:
            file.write(public_key + "\n")

    def start(self) -> None:
        """Boot: when this returns, the SSH server answers."""
        etc = self._etc_folder()
        if not (etc / "host_key").exists():
            argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(etc / "host_key")]
            subprocess.run(argv, check=True)  # noqa: S603
        (etc / "config").write_text(_CONFIG.format(port=self.port, folder=self.folder))
        (etc / "login").write_text(_LOGIN.format(folder=self.folder))
        (etc / "login").chmod(0o755)
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # root's sshd needs it, and the package creates it only at boot
        with (etc / "log").open("ab") as log:
            argv = [SSHD, "-D", "-e", "-f", str(etc / "config")]
            self._sshd = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # noqa: S603
        self._wait_until_listening()

    def destroy(self) -> None:
        """Destroy the machine: the server, every session and all their processes."""
        self.disconnect()
        for _ in range(20):
            remaining = self.processes()
            if not remaining:
                break
            for pid in remaining:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def disconnect(self) -> None:
        """Cut the network: sessions break, new ones are refused; processes keep running."""
        if self._sshd is None:
            return
        children = _descendants(self._sshd.pid)
        self._sshd.kill()
        self._sshd.wait()
        self._sshd = None
        for pid in children:
            if _name(pid).startswith("sshd"):  # the processes of the sessions; those that they started survive
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def override_program(self, program: str, script: str) -> None:
        """Put a program before the system's own: a wrong clock is a `date` of its own."""
        path = self.folder / "bin" / program
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def preempt(self, notice_s: float) -> None:
        """Give notice: TERM to every runner now; the caller destroys the machine after the notice."""
        for pid in self.processes():
            if "supervise" in _command(pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)

    def processes(self) -> list[int]:
        """All processes of the machine."""
        marker = f"GPUWATCH_MACHINE={self.folder}".encode()
        return [pid for pid in _all_processes() if marker in _environment(pid)]

    def _etc_folder(self) -> Path:
        for name in ("etc", "home", "bin"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        return self.folder / "etc"

    def _wait_until_listening(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as connection:
                if connection.recv(4) == b"SSH-":
                    return
            time.sleep(0.02)
        raise OSError(f"sshd did not start: {(self.folder / 'etc/log').read_text()[-500:]}")


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


def _free_port() -> int:
    for port in random.sample(_PORTS, 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


def _all_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return []


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _descendants(pid: int) -> list[int]:
    parents: dict[int, int] = {}
    for process_id in _all_processes():
        with suppress(OSError, ValueError, IndexError):
            parents[process_id] = int(Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[1])
    descendants, queue = [], [pid]
    while queue:
        parent = queue.pop()
        children = [process_id for process_id, parent_pid in parents.items() if parent_pid == parent]
        descendants += children
        queue += children
    return descendants
