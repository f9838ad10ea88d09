"""A bot, its database and the daemon's side of its chat, with a Bot API on loopback; the test sets the time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gpuwatch.bootstrap.service import button_signer
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.chat.telegram.chat import open_chat
from gpuwatch.engine.alerts.alert_buttons import ButtonAction
from gpuwatch.notifiers.telegram import TelegramChannel, TelegramSettings
from gpuwatch.ports import AlertKind
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.settings import Settings
from gpuwatch.storage.alerts.alert_rows import EventFilter, StoredEvent, events
from gpuwatch.storage.setup.database import Database
from tests.process.daemon_child import wait_for
from tests.telegram_double import TOKEN, Shown, TelegramDouble

OWNER = 5001
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SETTINGS = """
database_url = "{url}"
[notify.telegram]
bot_token = "{token}"
chat_id = {owner}
base_url = "{bot}"
[[watch]]
name = "h100"
gpu = ["H100"]
max_price = 2.0
"""


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


class Chat:
    """A bot and its database; a test opens the daemon's side once or twice."""

    def __init__(self, folder: Path, database: Database, url: str, double: TelegramDouble) -> None:
        self.double, self.database = double, database
        self.clock = Clock()
        path = folder / "gpuwatch.toml"
        path.write_text(SETTINGS.format(url=url, token=TOKEN, owner=OWNER, bot=double.base_url))
        self.settings: Settings = load_settings(str(path))
        self.http = PooledHttpClient()
        options = TelegramSettings(bot_token=TOKEN, chat_id=str(OWNER), base_url=double.base_url)
        self.channel = TelegramChannel(options, self.http)
        self.signer = button_signer(self.channel, database)

    @contextmanager
    def open(self, database: Database | None = None) -> Iterator[None]:
        store = database or self.database
        # a busy machine may need seconds for the effects of a press; another test checks the time limit of the answer
        with open_chat(self.settings, store, self.channel, self.clock, poll_s=1.0, answer_within_s=100.0):
            yield

    def shows(self, *buttons: tuple[str, ButtonAction, str, timedelta]) -> Shown:
        """A message with buttons, like an alert's."""
        row = tuple(
            (made.label, made.data)
            for label, action, subject, lives in buttons
            for made in [self.signer.button(label, action, subject, self.clock() + lives)]
        )
        shown = Shown(str(OWNER), "an alert", (), None, False, False, len(self.double.shown) + 1, (row,))
        self.double.shown.append(shown)
        return shown

    def answer(self, press_id: str) -> str:
        return str(wait_for(lambda: self.double.answers.get(press_id))[0])


def audits(database: Database) -> list[StoredEvent]:
    since = datetime(2000, 1, 1, tzinfo=UTC)
    return list(events(database, EventFilter(since=since, kinds=(AlertKind.AUDIT,))))
