"""`gpuwatch alerts test` reports for each channel whether the test message arrived."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.app.alerts.alerts import send_to_all
from gpuwatch.cli import run
from gpuwatch.errors import DeliverLater, DeliveryRefused
from gpuwatch.ports import Alert
from tests.notifiers.alerts import an_alert
from tests.smtp_server import Mailbox, smtp_server
from tests.telegram_double import BLOCKED, CHAT, TOKEN, TelegramDouble, moved, telegram


class Taking:
    """A channel that raises the given error, or accepts the alert."""

    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.name = name
        self.error = error

    def send(self, alert: Alert) -> None:
        if self.error is not None:
            raise self.error


def test_each_channel_is_tried_whatever_becomes_of_the_others() -> None:
    channels = [
        Taking("telegram", DeliveryRefused("telegram: 403")),
        Taking("email"),
        Taking("apprise", DeliverLater("apprise: not taken", refused="urls[2]")),
    ]
    outcomes = list(send_to_all(channels, an_alert()))
    assert [(outcome.channel, outcome.arrived, outcome.error) for outcome in outcomes] == [
        ("telegram", False, "telegram: 403"),
        ("email", True, None),
        ("apprise", False, "apprise: not taken (not by urls[2])"),
    ]


@pytest.fixture
def servers() -> Iterator[tuple[TelegramDouble, Mailbox]]:
    with telegram() as bot, smtp_server() as box:
        yield bot, box


@pytest.fixture
def config(servers: tuple[TelegramDouble, Mailbox], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    bot, box = servers
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "gpuwatch.toml"
    path.write_text(
        f'database_url = "sqlite:///{tmp_path}/gpuwatch.db"\n'
        f'[notify.telegram]\nbot_token = "{TOKEN}"\nchat_id = "{CHAT}"\nbase_url = "{bot.base_url}"\n'
        f'[notify.email]\nhost = "127.0.0.1"\nport = {box.port}\nsecurity = "none"\n'
        'sender = "gpuwatch@example.org"\nrecipients = ["me@example.org"]\n'
    )
    return str(path)


def test_both_messages_arrive_and_the_code_is_0(
    servers: tuple[TelegramDouble, Mailbox], config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bot, box = servers
    assert run(["notify", "--config", config]) == 0
    assert capsys.readouterr().out == "telegram: arrived\nemail: arrived\n"
    assert "gpuwatch test message" in bot.shown[0].text
    assert "gpuwatch test message" in box.texts()[0]


def test_a_blocked_bot_gives_1_and_its_words(
    servers: tuple[TelegramDouble, Mailbox], config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    servers[0].always = BLOCKED
    assert run(["notify", "--json", "--config", config]) == 1
    printed = capsys.readouterr().out
    reported = {row["channel"]: row for row in json.loads(printed)["channels"]}
    assert reported["email"]["arrived"]
    assert not reported["telegram"]["arrived"]
    assert "bot was blocked" in reported["telegram"]["error"]
    assert TOKEN not in printed


def test_a_mail_that_one_of_two_recipients_got_is_delivered_in_part(
    servers: tuple[TelegramDouble, Mailbox], config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    servers[1].answers = {"you@example.org": ["550 no such user"] * 2}
    Path(config).write_text(Path(config).read_text().replace('["me@', '["you@example.org", "me@'))
    assert run(["notify", "--config", config]) == 1
    assert "email: delivered IN PART. email: you@example.org: 550 no such user" in capsys.readouterr().out
    assert run(["notify", "--json", "--config", config]) == 1
    rows = json.loads(capsys.readouterr().out)["channels"]
    assert [(row["channel"], row["arrived"], row["in_part"]) for row in rows] == [
        ("telegram", True, False),
        ("email", False, True),
    ]


def test_a_moved_chat_is_named(
    servers: tuple[TelegramDouble, Mailbox], config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    servers[0].chats, servers[0].faults = {"-1007"}, [moved(-1007)]
    assert run(["notify", "--config", config]) == 0
    assert 'chat_id = "-1007"' in capsys.readouterr().out


def test_no_channel_is_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "gpuwatch.toml"
    path.write_text("dry_run = true\n")
    assert run(["notify", "--config", str(path)]) == 2
    assert "no channel is configured" in capsys.readouterr().err
