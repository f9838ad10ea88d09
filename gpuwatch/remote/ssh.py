"""A shell on a rented machine, through the system's OpenSSH; a key pair per launch, and a pinned host key.

The machine's host counts as hostile: its address cannot become an option of the client, and nothing of this machine is
used: no configuration, agent, forwarding or shared connection. Every call is limited in time and output, and
independent of the others, so that nothing survives the end of gpuwatch.
"""

from __future__ import annotations

import base64
import binascii
import secrets
import shlex
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from gpuwatch.domain.launches.instance import SshAddress
from gpuwatch.domain.market.offer import clean
from gpuwatch.ports.remote import RemoteAnswer, RemoteRefused, RemoteUnreachable
from gpuwatch.redaction import redact
from gpuwatch.remote.bounded_process import BoundedResult, ByteSink, one_line, run_bounded
from gpuwatch.remote.framed_output import NOISE_MAX_BYTES, FramedOutput, framed
from gpuwatch.remote.launch_keys import LaunchKeyFiles
from gpuwatch.remote.sent_tree import archive_of, sent_entries

CONNECT_S = 10
_REJECTION_MESSAGES = ("permission denied", "too many authentication failures", "load key", "no such identity")
_CLIENT_OPTIONS = (
    "BatchMode=yes",
    "IdentitiesOnly=yes",
    "IdentityAgent=none",
    "PreferredAuthentications=publickey",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "ControlPath=none",
    "RequestTTY=no",
    "LogLevel=ERROR",
    f"ConnectTimeout={CONNECT_S}",
)


def ssh_command(key_file: str, user: str, port: int, options: Sequence[str], client: str = "ssh") -> list[str]:
    """Return the client's arguments before `--`, host and command; `options` set how the host key is checked."""
    option_args = [part for option in (*_CLIENT_OPTIONS, *options) for part in ("-o", option)]
    return [client, "-F", "none", "-T", "-i", key_file, "-l", user, "-p", str(port), *option_args]


def is_rejection(message: str) -> bool:
    """Whether the machine answered, but rejected this key."""
    return any(pattern in message.lower() for pattern in _REJECTION_MESSAGES)


# --- shells -----------------------------------------------------------------------------------------------------------


_KEY_TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-512", "ssh-rsa")  # in order of preference
_KEY_CHANGED_MESSAGES = ("host key verification failed", "remote host identification has changed")
_KEY_CHANGED = "its host key differs from the first contact: it may be another machine"
_ALIVE_OPTIONS = ("ServerAliveInterval=5", "ServerAliveCountMax=3")


class OpenSshShells:
    """Opens shells on machines.

    Args:
        folder: stores the key pairs and known hosts of launches; created when needed.
    """

    def __init__(self, folder: Path) -> None:
        self._keys = LaunchKeyFiles(folder)

    def public_key(self, launch_id: str) -> str:
        """Return the launch's public key; the first call creates the pair. Raises RemoteRefused: that failed."""
        private = self._keys.private_key(launch_id)
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
        result, output = _call(argv, timeout_s=CONNECT_S, max_bytes=16_384)
        host_keys = parse_host_keys(output.decode("ascii", "replace"))
        if not host_keys:
            raise RemoteUnreachable(f"{address.host}:{address.port}: no SSH host key; {_line(result.stderr)}")
        return host_keys[0]

    def open(self, launch_id: str, address: SshAddress, host_key: str) -> OpenSshShell:
        """Open a shell that accepts only this host key."""
        _check(address)
        self.public_key(launch_id)
        self._keys.pin(launch_id, host_key)
        pinned = (f"{name}={value}" for name, value in self._keys.host_key_options(launch_id).items())
        key_file = str(self._keys.private_key(launch_id))
        options = (*_ALIVE_OPTIONS, *pinned)
        return OpenSshShell(ssh_command(key_file, address.user, address.port, options), address.host)

    def delete_keys(self, launch_id: str) -> None:
        """Delete its key pair."""
        self._keys.delete(launch_id)


class OpenSshShell:
    """A shell on one machine.

    Args:
        client: the `ssh` command without host and command.
    """

    def __init__(self, client: Sequence[str], host: str) -> None:
        self._client = list(client)
        self._host = host
        self._noise = b""  # that its login shell printed at the last call

    def run(self, command: str, *, timeout_s: float, stdin: bytes = b"", max_bytes: int = 65_536) -> RemoteAnswer:
        """Run a line of POSIX sh, whatever the login shell is or prints. Raises RemoteUnreachable, RemoteRefused."""
        return self._run(command, timeout_s, stdin, max_bytes)

    def read(self, command: str, output: BinaryIO, *, timeout_s: float, max_bytes: int) -> int:
        """Write a command's output to a file; return the bytes received, even if the connection was lost."""
        result, found = self._start(command, output, timeout_s, b"", max_bytes)
        if not found.received:
            self._exit_code(result, found, timeout_s)
        return found.received

    def send(self, local: Path, remote: str, *, timeout_s: float) -> None:
        """Copy with rsync if the machine has it, and a shell that prints nothing; else as a tar archive."""
        for _ in sent_entries(local):  # raises what no retry helps against
            pass
        quoted = shlex.quote(remote)
        rsync_check = self._run(f"mkdir -p {quoted} && command -v rsync", CONNECT_S * 2, b"", 65_536)
        if rsync_check.exit_code == 0 and not self._noise:
            shell = shlex.join(self._client)
            source = f"{local}/" if local.is_dir() else str(local)
            # --no-o and --no-g: the machine's user owns the files; --no-D: no pipes and devices;
            # --partial: an interrupted transfer is resumed
            links = "--copy-unsafe-links" if local.is_dir() else "--copy-links"
            argv = ["rsync", "-a", "--no-o", "--no-g", "--no-D", links, "--partial", f"--timeout={CONNECT_S * 3}"]
            target = f"[{self._host}]" if ":" in self._host else self._host
            argv += ["-e", shell, "--", source, f"{target}:{remote}/"]
            result, _ = _call(argv, timeout_s=timeout_s, max_bytes=65_536)
            if result.exit_code == 0:
                return
            # 2: the shell printed something; 12, 127: the machine's rsync does not work; 1: ours does not
            if result.exit_code not in {1, 2, 12, 127}:
                raise RemoteUnreachable(f"cannot send {local.name}: {_failure_reason(result, timeout_s)}")
        with archive_of(local) as archive:
            answer = self._run(f"mkdir -p {quoted} && tar -xf - -C {quoted}", timeout_s, archive, 65_536)
        if answer.exit_code != 0:
            raise RemoteUnreachable(f"cannot send {local.name}: {answer.stderr}")

    def _run(self, command: str, timeout_s: float, stdin: bytes | BinaryIO, max_bytes: int) -> RemoteAnswer:
        output = BytesIO()
        result, found = self._start(command, output, timeout_s, stdin, max_bytes)
        exit_code = self._exit_code(result, found, timeout_s)
        return RemoteAnswer(
            exit_code=exit_code,
            stdout=output.getvalue(),
            stderr=_line(result.stderr),
            is_truncated=found.is_truncated,
        )

    def _start(
        self, command: str, output: BinaryIO, timeout_s: float, stdin: bytes | BinaryIO, max_bytes: int
    ) -> tuple[BoundedResult, FramedOutput]:
        marker = f"gpuwatch-{secrets.token_hex(8)}"
        found = FramedOutput(output, marker, max_bytes)
        argv = [*self._client, "--", self._host, framed(command, marker)]
        bound = max_bytes + NOISE_MAX_BYTES
        result = _start(argv, found, timeout_s=timeout_s, max_bytes=bound, stdin=stdin)
        found.finish()
        self._noise = found.noise
        return result, found

    def _exit_code(self, result: BoundedResult, found: FramedOutput, timeout_s: float) -> int:
        if found.exit_code is not None:
            return found.exit_code
        if found.is_truncated:
            return 0
        text = one_line(result.stderr)
        if found.noise and not found.begun and not is_rejection(text):
            printed = clean(redact(one_line(found.noise)), 200)
            raise RemoteRefused(f"{self._host}: its login shell runs no command; it prints: {printed}")
        reason = _failure_reason(result, timeout_s)
        is_refused = reason == _KEY_CHANGED or is_rejection(text)
        error_class = RemoteRefused if is_refused else RemoteUnreachable
        raise error_class(f"{self._host}: {reason}")


def parse_host_keys(text: str) -> list[str]:
    """Return the host keys of `ssh-keyscan`, in order of preference; other lines are ignored."""
    keys: dict[str, str] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) == 3 and fields[1] in _KEY_TYPES and _is_key(fields[1], fields[2]):
            keys.setdefault(fields[1], f"{fields[1]} {fields[2]}")
    return [keys[kind] for kind in _KEY_TYPES if kind in keys]


def _is_key(kind: str, text: str) -> bool:
    try:
        blob = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return len(text) < 4096 and blob[4 : 4 + len(kind)] == kind.encode()


def _check(address: SshAddress) -> None:
    if not address.is_usable:
        raise RemoteUnreachable("it has no valid address")


def _call(argv: Sequence[str], *, timeout_s: float, max_bytes: int, stdin: bytes = b"") -> tuple[BoundedResult, bytes]:
    output = BytesIO()
    result = _start(argv, output, timeout_s=timeout_s, max_bytes=max_bytes, stdin=stdin)
    return result, output.getvalue()


def _start(
    argv: Sequence[str], output: ByteSink, *, timeout_s: float, max_bytes: int, stdin: bytes | BinaryIO = b""
) -> BoundedResult:
    try:
        return run_bounded(argv, output, timeout_s=timeout_s, max_bytes=max_bytes, stdin=stdin)
    except FileNotFoundError as error:
        raise RemoteRefused(f"{argv[0]} is not installed; Debian: apt install openssh-client rsync") from error


def _failure_reason(result: BoundedResult, timeout_s: float) -> str:
    if result.exit_code is None:
        return f"no answer within {timeout_s:g} s"
    text = one_line(result.stderr).lower()  # all of it: a banner or a long path may stand before the error
    if any(pattern in text for pattern in _KEY_CHANGED_MESSAGES):
        return _KEY_CHANGED
    return _line(result.stderr) or "no connection"


def _line(stderr: bytes) -> str:
    return clean(redact(one_line(stderr)), 300)
