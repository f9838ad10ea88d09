"""The port to a shell on a rented machine. Whatever such a machine says is hostile until it is parsed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import msgspec

from gpuwatch.errors import GpuwatchError

if TYPE_CHECKING:
    from gpuwatch.domain.jobs.checkpoints import StoredCheckpoint
    from gpuwatch.domain.jobs.run_status import MachineFile


class RemoteUnreachable(GpuwatchError):
    """The machine gave no answer in time; what was asked may have been done. Its text is fit to be shown."""


class RemoteRefused(GpuwatchError):
    """The machine answers, and does not let us in, or is another one: its host key differs from the pinned one."""


class StoreUnreachable(GpuwatchError):
    """An object store did not take or give what was asked, or not whole; later again. Its text is fit to be shown."""


class ObjectMissing(StoreUnreachable):
    """The store answers, and has no such file or folder."""


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


class RunFiles(Protocol):
    """What is fetched of jobs, on this machine. Methods raise OSError where it has no room."""

    def log_size(self, job_id: str, run_number: int) -> int:
        """Bytes that are known of a run's log."""

    def append_log(self, job_id: str, run_number: int, offset: int, part: bytes) -> None:
        """Add what came of it; written twice, nothing changes."""

    def log_tail(self, job_id: str, run_number: int, lines: int) -> list[str]:
        """Its last lines, not cleaned."""

    def fetch(
        self, shell: RemoteShell, folder: str, files: Sequence[MachineFile], target: Path, within_s: float
    ) -> list[MachineFile]:
        """Fetch what is not there yet; return those that are verified here. Raises RemoteUnreachable, RemoteRefused."""

    def input_of(self, job_id: str, number: int) -> Path:
        """Where an input waits that comes from a store, until the machine has it."""

    def results_of(self, job_id: str, run_number: int) -> Path:
        """Where the verified results of a run wait to be published."""

    def publish(self, job_id: str, run_number: int, files: Sequence[tuple[str, Path]]) -> None:
        """Put verified results (path in `results_of`, place) there, each whole; never over those of a later run."""

    def checkpoints(self, job_id: str) -> list[StoredCheckpoint]:
        """Those that are whole, oldest first."""

    def is_intact(self, job_id: str, one: StoredCheckpoint) -> bool:
        """Whether it is still as it was verified."""

    def checkpoint_files(self, job_id: str, sequence: int) -> Path:
        """The folder of a checkpoint's files."""

    def save_checkpoint(self, job_id: str, one: StoredCheckpoint) -> None:
        """Note that it is whole."""

    def drop_checkpoint(self, job_id: str, sequence: int) -> None:
        """Delete it."""


class ObjectStores(Protocol):
    """Object stores as job files name them: `s3://BUCKET/FOLDER`, `rclone:REMOTE:FOLDER`.

    Every method raises StoreUnreachable and is bounded in time.
    """

    def put(self, folder: Path, names: Sequence[str], target: str, *, timeout_s: float) -> None:
        """Copy files below a folder, and verify each there by size and hash; repeated, it goes on."""

    def get(self, source: str, folder: Path, names: Sequence[str] = (), *, timeout_s: float) -> None:
        """Copy a file, a folder, or the named files below it. Raises ObjectMissing."""

    def folders(self, target: str, *, timeout_s: float) -> list[str]:
        """Names of the folders below it, sorted; none where nothing is."""

    def read(self, source: str, *, timeout_s: float) -> bytes:
        """The text of a small file. Raises ObjectMissing."""

    def drop(self, target: str, first: str, *, timeout_s: float) -> None:
        """Delete a folder with all that is in it, the file `first` before the others."""
