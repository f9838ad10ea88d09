"""A TensorDock for each test, and an adapter for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpuwatch.ports import Launcher
from gpuwatch.ports.declarations import Adapter
from tests.clouds.tensordock import TensorDock
from tests.providers.tensordock.stand_in import BENCH


@pytest.fixture
def place() -> Iterator[TensorDock]:
    with TensorDock() as place:
        yield place


@pytest.fixture
def adapter(place: TensorDock) -> Iterator[Adapter]:
    with BENCH.pointed_at(place.url) as adapter:
        yield adapter


@pytest.fixture
def launcher(adapter: Adapter) -> Launcher:
    assert adapter.launcher is not None
    return adapter.launcher
