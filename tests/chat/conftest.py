"""A chat over a Bot API on loopback, and the daemon's side of a bot for respx."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import respx

from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.storage.setup.database import Database
from tests.chat.telegram_bot import Bot
from tests.chat.telegram_chat import OWNER, Chat
from tests.telegram_double import telegram
from tests.telegram_routes import ok


@pytest.fixture
def chat(tmp_path: Path, database: Database, database_url: str) -> Iterator[Chat]:
    with telegram() as double:
        double.chats = {str(OWNER)}
        opened = Chat(tmp_path, database, database_url, double)
        yield opened
        opened.http.close()


@pytest.fixture
def menu(respx_mock: respx.MockRouter) -> respx.Route:
    return respx_mock.post("/setMyCommands").mock(return_value=ok())


@pytest.fixture
def bot(database: Database, tmp_path: Path, http: PooledHttpClient, menu: respx.Route) -> Iterator[Bot]:
    opened = Bot(database, tmp_path, http)
    yield opened
    opened.finish()
