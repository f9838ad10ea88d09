"""The adapter of TensorDock, for unit tests with respx."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpuwatch.ports import Launcher
from gpuwatch.ports.declarations import Adapter
from gpuwatch.providers.tensordock import INFO
from tests.providers.tensordock.stand_in import BENCH


@pytest.fixture
def adapter() -> Iterator[Adapter]:
    with BENCH.pointed_at(INFO.base_url) as adapter:
        yield adapter


@pytest.fixture
def launcher(adapter: Adapter) -> Launcher:
    assert adapter.launcher is not None
    return adapter.launcher
