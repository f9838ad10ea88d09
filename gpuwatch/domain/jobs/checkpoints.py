"""The checkpoints of a job: which are complete on the machine, which is the newest here, and which are kept. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import PurePath

import msgspec

from gpuwatch.domain.jobs.job_definition import JobDefinition
from gpuwatch.domain.jobs.run_status import MachineFile
from gpuwatch.domain.setup.store_addresses import is_store

SETTLE_S = 2  # a file that was just written may still grow
_INCOMPLETE = re.compile(r"(^\.|\.(tmp|part|partial|incomplete|new|lock)$|~$|^tmp)", re.IGNORECASE)


class StoredCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that was fetched and verified.

    Attributes:
        sequence: increases with every checkpoint of a job.
        name: its path relative to the work folder; a file or a folder.
        failed: a run that started from it failed before it wrote another one, so it may be damaged.
    """

    sequence: int
    run_number: int
    name: str
    files: tuple[MachineFile, ...]
    fetched_at: datetime
    failed: bool = False

    @property
    def written_at(self) -> datetime:
        """When the command wrote it, by the age that the machine stated for its newest file."""
        return self.fetched_at - timedelta(seconds=max(min((file.age_s for file in self.files), default=0), 0))


class MachineCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint on the machine."""

    name: str
    files: tuple[MachineFile, ...]

    @property
    def age_s(self) -> int:
        """Seconds since its newest file was changed."""
        return min(file.age_s for file in self.files)


def machine_checkpoints(path: str, files: Iterable[MachineFile]) -> list[MachineCheckpoint]:
    """The checkpoints in a listing, newest first, without temporary names.

    Args:
        path: as in the job file: a folder with one entry per checkpoint, a file, or a pattern.
    """
    depth = len(path.split("/")) + (0 if "*" in path else 1)
    found = []
    for name, group in groupby(sorted(files, key=lambda file: file.path), lambda file: _entry(file.path, depth)):
        members = tuple(group)
        if not any(_INCOMPLETE.search(part) for part in name.split("/")[-1:]):
            found.append(MachineCheckpoint(name=name, files=members))
    return sorted(found, key=lambda one: (-one.age_s, _numbers(one.name)), reverse=True)


def newest_complete(listed: Sequence[MachineCheckpoint], *, running: bool) -> MachineCheckpoint | None:
    """The newest checkpoint that is not being written at the moment.

    Args:
        running: whether the command may be writing.
    """
    return next(
        (checkpoint for checkpoint in listed if not running or checkpoint.age_s >= SETTLE_S or checkpoint.age_s < 0),
        None,
    )


def to_resume(stored: Sequence[StoredCheckpoint]) -> list[StoredCheckpoint]:
    """The checkpoints from which a run may start, best first."""
    return sorted(
        (checkpoint for checkpoint in stored if not checkpoint.failed), key=lambda one: one.sequence, reverse=True
    )


def superseded(stored: Sequence[StoredCheckpoint], keep: int) -> list[StoredCheckpoint]:
    """The checkpoints to delete: all but the newest `keep` and the newest sound one."""
    newest = sorted(stored, key=lambda checkpoint: checkpoint.sequence, reverse=True)
    kept = newest[: max(keep, 1)]
    sound = next((checkpoint for checkpoint in newest if not checkpoint.failed), None)
    return [checkpoint for checkpoint in newest if checkpoint not in kept and checkpoint != sound]


def _entry(path: str, depth: int) -> str:
    return "/".join(path.split("/")[:depth])


def _numbers(name: str) -> list[int]:
    return [int(one) for one in re.findall(r"[0-9]+", name)]


def below(address: str, *names: str) -> str:
    """Join an address and a relative path, also at the root of a remote."""
    joined = "/".join(names)
    return f"{address}{joined}" if address.endswith((":", "/")) else f"{address}/{joined}"


def kept_facts(definition: JobDefinition) -> list[tuple[str, str]]:
    """Where a job's results and checkpoints go, as text; empty: nothing is kept."""
    folder = definition.folder
    places = {
        result.source: result.target if is_store(result.target) else str(PurePath(folder, result.target))
        for result in definition.results
    }
    facts = [("results", ", ".join(f"{source} to {target}" for source, target in places.items()))] if places else []
    if (checkpoint := definition.checkpoint) is not None:
        where = f"here and in {checkpoint.store}" if checkpoint.store else "here"
        facts.append(("checkpoint", f"{checkpoint.path}; gpuwatch keeps the newest {checkpoint.keep} {where}"))
    return facts
