"""The real adapter with a clock of the test; `bundles` is the route of its searches."""

from __future__ import annotations

import pytest
import respx
from vast_double import URL, an_adapter

from gpuwatch.ports import Launcher, Market
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from tests.clocks import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def market(http: PooledHttpClient, clock: Clock) -> Market:
    return an_adapter(http, clock).market


@pytest.fixture
def launcher(http: PooledHttpClient, clock: Clock) -> Launcher:
    launcher = an_adapter(http, clock).launcher
    assert launcher is not None
    return launcher


@pytest.fixture
def bundles(respx_mock: respx.MockRouter) -> respx.Route:
    return respx_mock.get(f"{URL}/api/v0/bundles/")
