"""The port to a shell on a rented machine. Whatever such a machine says is hostile until it is parsed."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from gpuwatch.errors import GpuwatchError


class RemoteUnreachable(GpuwatchError):
    """The machine gave no answer in time; what was asked may have been done. Its text is fit to be shown."""


class RemoteRefused(GpuwatchError):
    """The machine answers, and does not let us in, or is another one: its host key differs from the pinned one."""


class SshAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a machine's SSH server listens."""

    host: str
    port: int
    user: str = "root"


class RemoteAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a command on the machine gave back; `cut`: it printed more than was wanted."""

    exit_code: int
    stdout: bytes
    stderr: str  # cleaned, one line
    cut: bool = False


class RemoteShell(Protocol):
    """A shell on one machine. Every method raises RemoteUnreachable and RemoteRefused; each is bounded in time."""

    def run(self, command: str, *, timeout_s: float, stdin: bytes = b"", max_bytes: int = 65_536) -> RemoteAnswer:
        """Run a line of shell.

        Args:
            command: no secrets: other processes of the machine can read it.
            stdin: may hold secrets.
            max_bytes: of the output; what is beyond is not kept.
        """

    def read(self, command: str, into: BinaryIO, *, timeout_s: float, max_bytes: int) -> int:
        """Write a command's output to a file, and return how many bytes came; also when the time is over."""

    def send(self, local: Path, remote: str, *, timeout_s: float) -> None:
        """Copy a file, or what is in a folder, into the folder `remote`; repeated, it goes on where it stopped."""


class RemoteShells(Protocol):
    """Opens shells on machines."""

    def public_key(self, launch_id: str) -> str:
        """The public key that a launch's machine must let in: a line of authorized_keys. Made once per launch."""

    def host_key(self, address: SshAddress) -> str:
        """Ask a machine for its host key: "ssh-ed25519 AAAA…". Raises RemoteUnreachable."""

    def open(self, launch_id: str, address: SshAddress, host_key: str) -> RemoteShell:
        """A shell that accepts this host key alone."""

    def forget(self, launch_id: str) -> None:
        """Delete the key pair of a launch that is over."""
