"""The files of jobs on this machine: logs, results and checkpoints; each is fetched, verified, then published.

JOB/runs/N/log           the output of the command
JOB/runs/N/fetched/…     results that are verified, but not published yet
JOB/checkpoints/SEQUENCE/…, manifest.json      the manifest is written last: a folder without it is incomplete
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from gpuwatch.atomic_file import atomic_file, publish
from gpuwatch.domain.jobs.checkpoints import StoredCheckpoint
from gpuwatch.domain.jobs.job import Job, JobRun
from gpuwatch.domain.jobs.run_status import MachineFile, is_safe_path
from gpuwatch.ports.remote import RemoteShell, RemoteUnreachable

_MANIFEST = "manifest.json"
_CHUNK_BYTES = 1 << 20


class JobFolder:
    """Files fetched from jobs, on this machine. Methods raise OSError, for example if the disk is full.

    Args:
        root: folder of all jobs; created when needed.
        monotonic: seconds.
        max_log_bytes: the rest of a log stays on the machine.
    """

    def __init__(
        self, root: Path, monotonic: Callable[[], float] = time.monotonic, max_log_bytes: int = 200 << 20
    ) -> None:
        self._root = root
        self._monotonic = monotonic
        self._max_log_bytes = max_log_bytes

    # --- the log ------------------------------------------------------------------------------------------------------

    def log_path(self, job_id: str, run_number: int) -> Path:
        """Return the path of a run's log."""
        return self._run(job_id, run_number) / "log"

    def log_size(self, job_id: str, run_number: int) -> int:
        """Return the number of stored bytes."""
        path = self.log_path(job_id, run_number)
        return path.stat().st_size if path.exists() else 0

    def append_log(self, job_id: str, run_number: int, offset: int, part: bytes) -> None:
        """Write a part of the log; idempotent. Anything beyond the limit stays on the machine."""
        path = self.log_path(job_id, run_number)
        path.parent.mkdir(parents=True, exist_ok=True)
        if part and offset < self._max_log_bytes:
            with path.open("r+b" if path.exists() else "wb") as file:
                file.seek(offset)
                file.write(part)

    def log_tail(self, job_id: str, run_number: int, lines: int) -> list[str]:
        """Return its last lines, not cleaned."""
        path = self.log_path(job_id, run_number)
        if not path.exists():
            return []
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 65_536))
            return list(deque(file.read().decode("utf-8", "replace").splitlines(), lines))

    # --- fetching -----------------------------------------------------------------------------------------------------

    def fetch(
        self, shell: RemoteShell, folder: str, files: Sequence[MachineFile], target: Path, within_s: float
    ) -> list[MachineFile]:
        """Fetch missing files; return those that are verified: size and hash match.

        If the time is over, the next call continues an incomplete file. Raises RemoteUnreachable, RemoteRefused.
        """
        ends_at = self._monotonic() + within_s
        verified: list[MachineFile] = []
        for file in files:
            path = target / file.path
            if not is_safe_path(file.path):
                continue
            if _is_verified(path, file) or self._fetch_file(shell, f"{folder}/{file.path}", file, path, ends_at):
                verified.append(file)
        return verified

    def _fetch_file(self, shell: RemoteShell, source: str, file: MachineFile, path: Path, ends_at: float) -> bool:
        part = path.with_name(f".{file.sha256[:32]}.part")  # a fixed name: the next try continues it
        part.parent.mkdir(parents=True, exist_ok=True)
        while (size := part.stat().st_size if part.exists() else 0) < file.size:
            left_s = ends_at - self._monotonic()
            if left_s <= 0:
                return False
            command = f"tail -c +{size + 1} {shlex.quote(source)}"
            with part.open("ab") as output:
                received_bytes = shell.read(command, output, timeout_s=left_s, max_bytes=file.size - size)
            if not received_bytes:  # it is now shorter than it was listed
                break
        if not file.size:
            part.touch()
        if not _is_verified(part, file):
            if part.stat().st_size >= file.size:  # torn, or changed meanwhile: start again
                part.unlink()
            return False
        publish(part, path, is_durable=True)
        return True

    def publish(self, job_id: str, run_number: int, files: Sequence[tuple[str, Path]]) -> None:
        """Copy verified results to their targets, each atomically; never over those of a later run."""
        results = self.results_folder(job_id, run_number)
        for source, target in files:
            target.parent.mkdir(parents=True, exist_ok=True)
            run_marker = self._job(job_id) / "published" / hashlib.sha256(str(target).encode()).hexdigest()[:32]
            if run_marker.exists() and int(run_marker.read_text() or 0) > run_number:
                continue
            run_marker.parent.mkdir(exist_ok=True)
            run_marker.write_text(str(run_number))
            with atomic_file(target, is_durable=True) as temporary:
                shutil.copyfile(results / source, temporary)

    def input_folder(self, job_id: str, number: int) -> Path:
        """Return the folder for an input from a store."""
        return self._job(job_id) / "inputs" / str(number)

    def results_folder(self, job_id: str, run_number: int) -> Path:
        """Return the folder for the results of a run."""
        return self._run(job_id, run_number) / "fetched"

    def prepared_folder(self, job: Job) -> Path | None:
        """Return the folder of what a job prepared before it began; None: it begins with nothing."""
        spec = job.definition
        if spec.prepared_run is None or spec.prepare is None or not spec.prepare.outputs:
            return None
        return self.results_folder(job.job_id, spec.prepared_run)

    def has_prepared(self, job: Job, run: JobRun) -> bool:
        """Whether everything that a job begins with is on this host: each file of that run, with its size."""
        folder = self.prepared_folder(job)
        return folder is None or all(_size(folder / str(one["path"])) == one["bytes"] for one in run.results)

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def checkpoints(self, job_id: str) -> list[StoredCheckpoint]:
        """Return complete checkpoints, oldest first."""
        checkpoints = []
        for manifest in sorted((self._job(job_id) / "checkpoints").glob(f"*/{_MANIFEST}")):
            try:
                checkpoints.append(msgspec.json.decode(manifest.read_bytes(), type=StoredCheckpoint))
            except (msgspec.MsgspecError, OSError):
                continue
        return checkpoints

    def is_intact(self, job_id: str, checkpoint: StoredCheckpoint) -> bool:
        """Whether every file of it still has its size and hash."""
        folder = self.checkpoint_folder(job_id, checkpoint.sequence)
        return all(_is_verified(folder / file.path, file) for file in checkpoint.files)

    def checkpoint_folder(self, job_id: str, sequence: int) -> Path:
        """Return the folder of a checkpoint's files, with the same layout as in the work folder."""
        return self._job(job_id) / "checkpoints" / f"{sequence:06d}" / "files"

    def save_checkpoint(self, job_id: str, checkpoint: StoredCheckpoint) -> None:
        """Mark it as complete, because all its files are verified."""
        path = self.checkpoint_folder(job_id, checkpoint.sequence).parent / _MANIFEST
        with atomic_file(path, is_durable=True) as temporary:
            temporary.write_bytes(msgspec.json.encode(checkpoint))

    def delete_checkpoint(self, job_id: str, sequence: int) -> None:
        """Delete one: its manifest first, so that an incomplete one does not count."""
        folder = self.checkpoint_folder(job_id, sequence).parent
        (folder / _MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)

    def _job(self, job_id: str) -> Path:
        if not job_id.isalnum():
            raise RemoteUnreachable(f"{job_id!r} is not a job id")
        return self._root / job_id

    def _run(self, job_id: str, run_number: int) -> Path:
        return self._job(job_id) / "runs" / str(run_number)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size if path.is_file() else None
    except OSError:
        return None


def _is_verified(path: Path, expected: MachineFile) -> bool:
    if not path.is_file() or path.stat().st_size != expected.size:
        return False
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest() == expected.sha256
