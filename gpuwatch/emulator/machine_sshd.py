"""A real SSH server per rented machine: Debian's sshd on loopback, with a folder that stands for the machine.

It runs as the current user, and accepts only the keys of its own `authorized_keys`. Each login gets HOME and its
working folder inside the machine's folder, and its shell reads start-up files only there. Faults: it refuses, loses its
network, gets notice, has a wrong clock, or dies with all its processes.
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

SSHD = "/usr/sbin/sshd"
_STARTS_S = 60.0
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
AllowTcpForwarding no
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
[ -e "{folder}/etc/down" ] && exit 255
HOME={folder}/home PATH={folder}/bin:$PATH
export HOME PATH GPUWATCH_MACHINE={folder}
[ -e "{folder}/etc/environment" ] && . "{folder}/etc/environment"
cd "$HOME" || exit 255
exec /bin/sh -c "${{SSH_ORIGINAL_COMMAND:-/bin/sh}}"
"""


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
        self._etc()
        with (self.folder / "etc/authorized_keys").open("a", encoding="ascii") as file:
            file.write(public_key + "\n")

    def start(self) -> None:
        """Boot: when this returns, the SSH server answers."""
        etc = self._etc()
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
        self._wait()

    def destroy(self) -> None:
        """Destroy the machine: the server, every session and all their processes."""
        self.disconnect()
        for _ in range(20):
            left = self.processes()
            if not left:
                break
            for one in left:
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
            time.sleep(0.02)

    def disconnect(self) -> None:
        """Cut the network: sessions break, new ones are refused; processes keep running."""
        if self._sshd is None:
            return
        children = _descendants(self._sshd.pid)
        self._sshd.kill()
        self._sshd.wait()
        self._sshd = None
        for one in children:
            if _name(one).startswith("sshd"):  # the processes of the sessions; those that they started survive
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)

    def refuse(self, *, refuses: bool = True) -> None:
        """Accept logins, but return nothing."""
        down = self.folder / "etc/down"
        if refuses:
            down.touch()
        else:
            down.unlink(missing_ok=True)

    def shadow(self, program: str, script: str) -> None:
        """Put a program before the system's own: a wrong clock is a `date` of its own."""
        path = self.folder / "bin" / program
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def preempt(self, notice_s: float) -> None:
        """Give notice: TERM to every runner now; the caller destroys the machine after the notice."""
        for one in self.processes():
            if "supervise" in _command(one):
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGTERM)

    def processes(self) -> list[int]:
        """All processes of the machine."""
        mark = f"GPUWATCH_MACHINE={self.folder}".encode()
        return [one for one in _all_processes() if mark in _environment(one)]

    def _etc(self) -> Path:
        for name in ("etc", "home", "bin"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        return self.folder / "etc"

    def _wait(self) -> None:
        ends_at = time.monotonic() + _STARTS_S
        while time.monotonic() < ends_at:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as line:
                if line.recv(4) == b"SSH-":
                    return
            time.sleep(0.02)
        raise OSError(f"sshd did not start: {(self.folder / 'etc/log').read_text()[-500:]}")


def _free_port() -> int:
    for port in random.sample(_PORTS, 100):
        with socket.socket() as taken, suppress(OSError):
            taken.bind(("127.0.0.1", port))
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
    for one in _all_processes():
        with suppress(OSError, ValueError, IndexError):
            parents[one] = int(Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[1])
    found, todo = [], [pid]
    while todo:
        parent = todo.pop()
        below = [one for one, of in parents.items() if of == parent]
        found += below
        todo += below
    return found
