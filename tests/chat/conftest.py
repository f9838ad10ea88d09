"""A chat over a Bot API on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.storage.database import Database
from tests.chat.telegram_chat import OWNER, Chat
from tests.telegram_double import telegram


@pytest.fixture
def chat(tmp_path: Path, database: Database, database_url: str) -> Iterator[Chat]:
    with telegram() as double:
        double.chats = {str(OWNER)}
        opened = Chat(tmp_path, database, database_url, double)
        yield opened
        opened.http.close()
