"""Worlds of jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.emulator.instances.machine_sshd import has_sshd
from tests.jobs.job_world import JobWorld


@pytest.fixture
def new_world(tmp_path: Path) -> Iterator[Callable[..., JobWorld]]:
    """Create worlds; their machines end with the test."""
    made: list[JobWorld] = []

    def make(**wanted: Any) -> JobWorld:
        folder = tmp_path / f"world{len(made)}"
        folder.mkdir()
        made.append(JobWorld(folder, **wanted))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(new_world: Callable[..., JobWorld]) -> JobWorld:
    """With real SSH servers."""
    if not has_sshd():
        pytest.skip("Debian's openssh-server is not installed")
    return new_world()
