"""Fixtures of most tests with a real daemon: a marketplace, and a chat that gets the alerts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.conftest import Postgres
from tests.process.service_manager import ServiceManager
from tests.telegram_double import TelegramDouble, telegram


@pytest.fixture
def market() -> Iterator[Marketplace]:
    """A few offers that match no watch of the tests."""
    with Marketplace(seed=5, key="demo-key", size=8, delays=Delays(running_s=0.3)) as opened:
        yield opened


@pytest.fixture
def store_url(postgres: Postgres) -> Iterator[str]:
    """A store on PostgreSQL, for several daemons."""
    url = postgres.upgraded()
    yield url
    postgres.drop(url)


@pytest.fixture
def double() -> Iterator[TelegramDouble]:
    with telegram() as opened:
        yield opened


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[ServiceManager]:
    opened = ServiceManager(tmp_path / "notify")
    yield opened
    opened.close()
