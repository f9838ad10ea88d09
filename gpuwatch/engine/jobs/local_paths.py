"""Where a job's inputs and results are on this machine."""

from __future__ import annotations

from pathlib import Path

from gpuwatch.domain.jobs.job import JobDefinition
from gpuwatch.home_folder import expand_home


def local_path(definition: JobDefinition, path: str) -> Path:
    """A path of a job's file: below the file's own folder, unless it is absolute or begins with `~`.

    Raises:
        OSError: this user has no home folder.
    """
    return Path(definition.folder) / expand_home(path)
