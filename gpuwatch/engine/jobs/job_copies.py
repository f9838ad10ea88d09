"""Copies of a job in an object store: its results and newest checkpoints. The instance has no access to the store.

STORE/JOB/SEQUENCE/files/…, manifest.json      the manifest is copied last: a folder without it is incomplete
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from gpuwatch.domain.alerts.alert import AlertSpec
from gpuwatch.domain.alerts.job_texts import NOT_COPIED, NOT_STORED
from gpuwatch.domain.jobs.checkpoints import StoredCheckpoint, below
from gpuwatch.domain.jobs.job import Job
from gpuwatch.domain.jobs.run_status import is_safe_path
from gpuwatch.domain.setup.durations import is_recent
from gpuwatch.engine.jobs.job_parts import JobParts
from gpuwatch.ports.remote import ObjectMissing, StoreUnreachable

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
_AGAIN = timedelta(minutes=1)
_CALL_S = 60.0


class JobCopies:
    """Copies to and from stores. If its memory is lost, it compares again instead of copying again."""

    def __init__(self, parts: JobParts) -> None:
        self._parts = parts
        self._there: dict[str, set[StoredCheckpoint]] = {}  # job → checkpoints in its store
        self._failed: dict[str, tuple[datetime, datetime]] = {}  # job → first failure, last attempt

    def forget_except(self, job_ids: Collection[str]) -> None:
        """Forget all other jobs."""
        self._there = {job_id: there for job_id, there in list(self._there.items()) if job_id in job_ids}
        self._failed = {job_id: failed for job_id, failed in list(self._failed.items()) if job_id in job_ids}

    def is_due(self, job: Job) -> bool:
        """Whether a checkpoint must be copied."""
        spec = job.definition.checkpoint
        if spec is None or spec.store is None or not self._may_try(job):
            return False
        return set(self._parts.files.checkpoints(job.job_id)) != self._there.get(job.job_id, set())

    def copy_checkpoints(self, job: Job) -> None:
        """Copy local checkpoints to the store, newest first, then delete superseded ones."""
        spec, stored = job.definition.checkpoint, self._parts.files.checkpoints(job.job_id)
        assert spec is not None
        assert spec.store is not None
        folder, there = below(spec.store, job.job_id), self._there.setdefault(job.job_id, set())
        try:
            for one in reversed(stored):
                if one not in there:
                    self._copy(job, folder, one)
                    there.add(one)
            if stored:
                self._drop_superseded(folder, stored)
        except (StoreUnreachable, OSError) as error:
            self._note_failure(job, NOT_COPIED, str(error))
        else:
            self._failed.pop(job.job_id, None)
        there.intersection_update(stored)

    def _copy(self, job: Job, folder: str, one: StoredCheckpoint) -> None:
        here, target = self._parts.files.checkpoint_folder(job.job_id, one.sequence).parent, below(folder, _name(one))
        names = [f"files/{file.path}" for file in one.files]
        self._parts.stores.put(here, names, target, timeout_s=self._parts.bounds.store_s)
        self._parts.stores.put(here, [MANIFEST], target, timeout_s=_CALL_S)

    def _drop_superseded(self, folder: str, stored: Sequence[StoredCheckpoint]) -> None:
        kept, newest = {_name(checkpoint) for checkpoint in stored}, _name(stored[-1])
        for name in self._parts.stores.list_folders(folder, timeout_s=_CALL_S):
            if len(name) == len(newest) and name.isdecimal() and name < newest and name not in kept:
                self._parts.stores.delete(below(folder, name), MANIFEST, timeout_s=_CALL_S)

    def restore(self, job: Job) -> StoredCheckpoint | None:
        """Fetch and verify the newest intact checkpoint from the store. Raises StoreUnreachable."""
        spec = job.definition.checkpoint
        if spec is None or spec.store is None or job.run_number <= 1:  # the first run has nothing there
            return None
        folder, stores, files = below(spec.store, job.job_id), self._parts.stores, self._parts.files
        torn = {_name(checkpoint) for checkpoint in files.checkpoints(job.job_id) if checkpoint.failed}
        for name in reversed(stores.list_folders(folder, timeout_s=_CALL_S)):
            one = None if name in torn else self._manifest(below(folder, name, MANIFEST))
            if one is None or one.failed or _name(one) != name:
                continue
            here = files.checkpoint_folder(job.job_id, one.sequence).parent
            names = [f"files/{file.path}" for file in one.files]
            stores.get(below(folder, name), here, names, timeout_s=self._parts.bounds.store_s)
            if files.is_intact(job.job_id, one):
                files.save_checkpoint(job.job_id, one)
                return one
            log.warning("job %s: checkpoint %s in its store is incomplete", job.name, name)
            files.delete_checkpoint(job.job_id, one.sequence)
        return None

    def _manifest(self, address: str) -> StoredCheckpoint | None:
        try:
            one = msgspec.json.decode(self._parts.stores.read(address, timeout_s=_CALL_S), type=StoredCheckpoint)
        except (ObjectMissing, msgspec.MsgspecError):
            return None
        return one if is_safe_path(one.name) and all(is_safe_path(file.path) for file in one.files) else None

    def put_results(self, job: Job, folder: Path, places: Sequence[tuple[str, str, Sequence[str]]]) -> bool:
        """Copy verified results; False: try again later.

        Args:
            places: for each, the subfolder of `folder`, the store, and the names.
        """
        if not self._may_try(job):
            return False
        try:
            for fixed, target, names in places:
                self._parts.stores.put(folder / fixed, names, target, timeout_s=self._parts.bounds.store_s)
        except (StoreUnreachable, OSError) as error:
            self._note_failure(job, NOT_STORED, str(error), folder)
            return False
        self._failed.pop(job.job_id, None)
        return True

    def _may_try(self, job: Job) -> bool:
        failed = self._failed.get(job.job_id)
        return failed is None or not is_recent(failed[1], self._parts.clock(), _AGAIN)

    def _note_failure(self, job: Job, spec: AlertSpec, error: str, folder: Path | None = None) -> None:
        """Report once per run that copying has failed for a while."""
        now = self._parts.clock()
        since, _ = self._failed.get(job.job_id, (now, now))
        self._failed[job.job_id] = since, now
        log.warning("%s: %s", spec.headline.format(job=job.name), error)
        if is_recent(since, now, timedelta(seconds=self._parts.bounds.late_results_s)):
            return
        self._parts.report(job, spec, error=error, folder=folder)


def _name(one: StoredCheckpoint) -> str:
    return f"{one.sequence:06d}"
