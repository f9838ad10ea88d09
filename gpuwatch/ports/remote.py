"""The ports to a rented machine: probes of an instance, and a shell.

A probe asks: does it answer, and what hardware has it? All output of a shell is untrusted until parsed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import msgspec

from gpuwatch.errors import GpuwatchError

if TYPE_CHECKING:
    from gpuwatch.domain.launches.instance import SshAddress
    from gpuwatch.domain.launches.instances.instance_checks import MeasuredInstance


class InstanceUnreachable(GpuwatchError):
    """It does not answer correctly; it may do so later. The text may be shown to users."""


class LoginRefused(GpuwatchError):
    """It answers, but rejects the login; this does not prove a fault of the machine."""


class InstanceProbe(Protocol):
    """Checks an instance from outside and inside. A call may take its whole timeout: never call it within a task."""

    def banner(self, host: str, port: int) -> str:
        """The banner of the SSH server, cleaned. Raises InstanceUnreachable."""

    def measure(
        self, host: str, port: int, key_file: str, *, download: bool, user: str | None = None
    ) -> MeasuredInstance:
        """Log in and measure; unknown values are None.

        Args:
            key_file: the private key.
            download: also measure the download speed.
            user: None: root.

        Raises:
            InstanceUnreachable, LoginRefused.
        """


class RemoteUnreachable(GpuwatchError):
    """The machine did not answer in time; the request may have been executed. The text may be shown to users."""


class RemoteRefused(GpuwatchError):
    """The machine answers, but rejects the login, or its host key differs from the pinned one."""


class CannotSend(GpuwatchError):
    """A local file cannot be sent as it is, however often it is tried; the text names it."""


class StoreUnreachable(GpuwatchError):
    """An object store did not complete the request; retry later. The text may be shown to users."""


class ObjectMissing(StoreUnreachable):
    """The store answers, but has no such file or folder."""


class RemoteAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a command on the machine; `is_truncated`: the output was truncated."""

    exit_code: int
    stdout: bytes
    stderr: str  # cleaned, one line
    is_truncated: bool = False


class RemoteShell(Protocol):
    """A shell on one machine. Every method raises RemoteUnreachable and RemoteRefused, and has a timeout."""

    def run(self, command: str, *, timeout_s: float, stdin: bytes = b"", max_bytes: int = 65_536) -> RemoteAnswer:
        """Run a shell command line.

        Args:
            command: must not contain secrets: other processes of the machine can read it.
            stdin: may contain secrets.
            max_bytes: limit of the output; the rest is discarded.
        """

    def read(self, command: str, output: BinaryIO, *, timeout_s: float, max_bytes: int) -> int:
        """Write a command's output to a file, and return the number of bytes received, even after a timeout."""

    def send(self, local: Path, remote: str, *, timeout_s: float) -> None:
        """Copy a file, or the contents of a folder, into the folder `remote`; a repeated call resumes.

        What links lead to outside of the folder is copied as well. Raises CannotSend in addition.
        """


class RemoteShells(Protocol):
    """Opens shells on machines."""

    def public_key(self, launch_id: str) -> str:
        """The public key that a launch's machine must accept: a line of authorized_keys. Created once per launch."""

    def host_key(self, address: SshAddress) -> str:
        """Fetch the host key of a machine: "ssh-ed25519 AAAA…". Raises RemoteUnreachable."""

    def open(self, launch_id: str, address: SshAddress, host_key: str) -> RemoteShell:
        """A shell that accepts only this host key."""

    def delete_keys(self, launch_id: str) -> None:
        """Delete the key pair of an ended launch."""
