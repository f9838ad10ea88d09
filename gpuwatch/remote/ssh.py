"""A shell on a rented machine, through the system's OpenSSH; a key pair per launch, and a pinned host key.

The machine's host counts as hostile (`ssh_client`), and every call is limited in time and output. There is no shared
connection: each call is independent, so that nothing survives the end of gpuwatch.
"""

from __future__ import annotations

import base64
import binascii
import re
import shlex
import tarfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from gpuwatch.domain.market.text import clean
from gpuwatch.ports.remote import RemoteAnswer, RemoteRefused, RemoteUnreachable, SshAddress
from gpuwatch.redaction import redact
from gpuwatch.remote.bounded_process import BoundedResult, run_bounded
from gpuwatch.remote.ssh_client import CONNECT_S, is_address, is_refusal, ssh_command

_LAUNCH = re.compile(r"[a-z2-7]{1,32}")
_KEY_KINDS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-512", "ssh-rsa")  # in order of preference
_OTHER_KEY = ("host key verification failed", "remote host identification has changed")
_ANOTHER_MACHINE = "its host key differs from the first contact: it may be another machine"
_CONNECTION_LOST = 255  # the client's own code
_OPTIONS = ("StrictHostKeyChecking=yes", "ServerAliveInterval=5", "ServerAliveCountMax=3")


class OpenSshShells:
    """Opens shells on machines.

    Args:
        folder: stores the key pairs and known hosts of launches; created when needed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def public_key(self, launch_id: str) -> str:
        """Return the launch's public key; the first call creates the pair. Raises RemoteRefused: that failed."""
        private = self._of(launch_id) / "id_ed25519"
        public = private.with_suffix(".pub")
        if not public.exists():
            private.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            private.unlink(missing_ok=True)  # half of a pair, left by a killed process
            argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"gpuwatch-{launch_id}", "-f", str(private)]
            result, _ = _call(argv, timeout_s=CONNECT_S, max_bytes=1000)
            if result.exit_code != 0:
                raise RemoteRefused(f"ssh-keygen created no key: {_line(result.stderr)}")
        return public.read_text(encoding="ascii").strip()

    def host_key(self, address: SshAddress) -> str:
        """Return the host key that the machine presents now. Raises RemoteUnreachable."""
        _check(address)
        argv = ["ssh-keyscan", "-T", str(CONNECT_S // 2), "-p", str(address.port), "--", address.host]
        result, said = _call(argv, timeout_s=CONNECT_S, max_bytes=16_384)
        found = parse_host_keys(said.decode("ascii", "replace"))
        if not found:
            raise RemoteUnreachable(f"{address.host}:{address.port}: no SSH host key; {_line(result.stderr)}")
        return found[0]

    def open(self, launch_id: str, address: SshAddress, host_key: str) -> OpenSshShell:
        """Open a shell that accepts only this host key."""
        _check(address)
        self.public_key(launch_id)
        known = self._of(launch_id) / "known_hosts"
        name = f"gpuwatch-{launch_id}"
        line = f"{name} {host_key}\n"
        if not known.exists() or known.read_text(encoding="ascii") != line:
            known.write_text(line, encoding="ascii")
        options = (*_OPTIONS, f"UserKnownHostsFile={known}", f"HostKeyAlias={name}")
        key_file = str(self._of(launch_id) / "id_ed25519")
        return OpenSshShell(ssh_command(key_file, address.user, address.port, options), address.host)

    def forget(self, launch_id: str) -> None:
        """Delete its key pair."""
        folder = self._of(launch_id)
        for name in ("id_ed25519", "id_ed25519.pub", "known_hosts"):
            (folder / name).unlink(missing_ok=True)
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()

    def _of(self, launch_id: str) -> Path:
        if not _LAUNCH.fullmatch(launch_id):
            raise RemoteRefused(f"{launch_id!r} is not a launch id")
        return self._folder / launch_id


class OpenSshShell:
    """A shell on one machine.

    Args:
        client: the `ssh` command without host and command.
    """

    def __init__(self, client: Sequence[str], host: str) -> None:
        self._client = list(client)
        self._host = host

    def run(self, command: str, *, timeout_s: float, stdin: bytes = b"", max_bytes: int = 65_536) -> RemoteAnswer:
        """Run a line of shell. Raises RemoteUnreachable, RemoteRefused."""
        result, said = _call(self._argv(command), timeout_s=timeout_s, max_bytes=max_bytes, stdin=stdin)
        code = self._checked(result, timeout_s)
        return RemoteAnswer(exit_code=code, stdout=said, stderr=_line(result.stderr), cut=result.cut)

    def read(self, command: str, into: BinaryIO, *, timeout_s: float, max_bytes: int) -> int:
        """Write a command's output to a file; return the bytes received, even if the connection was lost."""
        result = _start(self._argv(command), into, timeout_s=timeout_s, max_bytes=max_bytes)
        if not result.received:
            self._checked(result, timeout_s)
        return result.received

    def send(self, local: Path, remote: str, *, timeout_s: float) -> None:
        """Copy with rsync if the machine has it, else as a tar archive."""
        quoted = shlex.quote(remote)
        found = self.run(f"mkdir -p {quoted} && command -v rsync", timeout_s=CONNECT_S * 2)
        if found.exit_code == 0:
            shell = shlex.join(self._client)
            source = f"{local}/" if local.is_dir() else str(local)
            # --no-o and --no-g: the machine's user owns the files; --partial: an interrupted transfer is resumed
            argv = ["rsync", "-a", "--no-o", "--no-g", "--partial", f"--timeout={CONNECT_S * 3}", "-e", shell]
            target = f"[{self._host}]" if ":" in self._host else self._host
            result, _ = _call([*argv, "--", source, f"{target}:{remote}/"], timeout_s=timeout_s, max_bytes=65_536)
            if result.exit_code == 0:
                return
            if result.exit_code not in {1, 12, 127}:  # 12, 127: the machine's rsync does not work; 1: ours does not
                raise RemoteUnreachable(f"cannot send {local.name}: {_why(result, timeout_s)}")
        answer = self.run(f"mkdir -p {quoted} && tar -xf - -C {quoted}", timeout_s=timeout_s, stdin=_archive(local))
        if answer.exit_code != 0:
            raise RemoteUnreachable(f"cannot send {local.name}: {answer.stderr}")

    def _argv(self, command: str) -> list[str]:
        return [*self._client, "--", self._host, command]

    def _checked(self, result: BoundedResult, timeout_s: float) -> int:
        if result.exit_code is None or result.exit_code == _CONNECTION_LOST:
            why = _why(result, timeout_s)
            kind = RemoteRefused if is_refusal(why) or why == _ANOTHER_MACHINE else RemoteUnreachable
            raise kind(f"{self._host}: {why}")
        return result.exit_code


def parse_host_keys(text: str) -> list[str]:
    """Return the host keys of `ssh-keyscan`, in order of preference; other lines are ignored."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and words[1] in _KEY_KINDS and _is_key(words[1], words[2]):
            found.setdefault(words[1], f"{words[1]} {words[2]}")
    return [found[kind] for kind in _KEY_KINDS if kind in found]


def _is_key(kind: str, text: str) -> bool:
    try:
        blob = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return len(text) < 4096 and blob[4 : 4 + len(kind)] == kind.encode()


def _check(address: SshAddress) -> None:
    if not is_address(address.host, address.port, address.user):
        raise RemoteUnreachable("it has no valid address")


def _call(argv: Sequence[str], *, timeout_s: float, max_bytes: int, stdin: bytes = b"") -> tuple[BoundedResult, bytes]:
    into = BytesIO()
    result = _start(argv, into, timeout_s=timeout_s, max_bytes=max_bytes, stdin=stdin)
    return result, into.getvalue()


def _start(
    argv: Sequence[str], into: BinaryIO, *, timeout_s: float, max_bytes: int, stdin: bytes = b""
) -> BoundedResult:
    try:
        return run_bounded(argv, into, timeout_s=timeout_s, max_bytes=max_bytes, stdin=stdin)
    except FileNotFoundError as error:
        raise RemoteRefused(f"{argv[0]} is not installed; Debian: apt install openssh-client rsync") from error


def _archive(local: Path) -> bytes:
    with TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            for one in sorted(local.iterdir()) if local.is_dir() else [local]:
                archive.add(one, arcname=one.name)
        file.seek(0)
        return file.read()


def _why(result: BoundedResult, timeout_s: float) -> str:
    if result.exit_code is None:
        return f"no answer within {timeout_s:g} s"
    words = _line(result.stderr)
    if any(sign in words.lower() for sign in _OTHER_KEY):
        return _ANOTHER_MACHINE
    return words or "no connection"


def _line(stderr: bytes) -> str:
    return clean(redact(" ".join(stderr.decode("utf-8", "replace").split())), 300)
