"""An EC2 for each test, and a launcher for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpuwatch.ports import Launcher
from tests.clouds.aws import Ec2
from tests.providers.aws.aws_bench import NOW, asking, launcher_of


@pytest.fixture
def place() -> Iterator[Ec2]:
    with Ec2(page=3, clock=NOW.timestamp) as place:
        yield place


@pytest.fixture
def launcher(place: Ec2) -> Iterator[Launcher]:
    with asking(place.url) as adapter:
        yield launcher_of(adapter)
