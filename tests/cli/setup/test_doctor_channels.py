"""`gpuwatch doctor` checks whether each channel would accept an alert: in parallel, with a time limit, sending none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from gpuwatch.app.setup.doctor_adapters import channel_findings
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.settings import load
from tests.cli.conftest import Shell
from tests.smtp_server import Mailbox, dripping_server, smtp_server
from tests.telegram_double import BAD_GATEWAY, CHAT, TOKEN, Fault, TelegramDouble, telegram


class Servers:
    """The services of both channels; a test moves an address to a server that fails."""

    def __init__(self, shell: Shell, bot: TelegramDouble, box: Mailbox) -> None:
        self.shell, self.bot, self.box = shell, bot, box
        self.token, self.mail_port = TOKEN, box.port

    def configure(self, more: str = "") -> None:
        self.shell.settings(
            f'[notify.telegram]\n{more}bot_token = "{self.token}"\nchat_id = "{CHAT}"\n'
            f'base_url = "{self.bot.base_url}"\n'
            f'[notify.email]\nhost = "127.0.0.1"\nport = {self.mail_port}\nsecurity = "none"\n'
            'sender = "gpuwatch@example.org"\nrecipients = ["me@example.org"]\n'
        )

    def found(self) -> tuple[int, dict[str, tuple[str, str]]]:
        """Return the exit code, and by channel: state and text."""
        self.configure()
        ran = self.shell("doctor", "--json")
        by_area = {one["area"]: (one["state"], one["text"]) for one in ran.json}
        return ran.code, {name: by_area[f"alerts by {name}"] for name in ("telegram", "email")}


@pytest.fixture
def servers(shell: Shell) -> Iterator[Servers]:
    with telegram() as bot, smtp_server() as box:
        yield Servers(shell, bot, box)


def test_channels_that_work_are_fine_and_get_no_message(servers: Servers) -> None:
    code, found = servers.found()
    assert code == 0
    assert found["telegram"][0] == found["email"][0] == "ok"
    assert "127.0.0.1 accepts the connection" in found["email"][1]
    assert servers.bot.shown == []
    assert servers.box.mails == []


def test_a_wrong_token_is_a_fault_and_the_code_is_1(servers: Servers) -> None:
    servers.token = "8123456789:AAH-AnotherTokenOfATest_0123456789ab"
    code, found = servers.found()
    assert code == 1
    assert found["telegram"] == ("fault", "401 Unauthorized; check bot_token")
    assert found["email"][0] == "ok"


def test_a_chat_that_the_bot_does_not_know_is_a_fault(servers: Servers) -> None:
    servers.bot.chats = {"-1"}
    assert servers.found()[1]["telegram"] == (
        "fault",
        "400 Bad Request: chat not found; check chat_id, and send the bot a message first",
    )


def test_a_service_in_trouble_is_a_fault(servers: Servers) -> None:
    servers.bot.always = BAD_GATEWAY
    with smtp_server() as gone:
        servers.mail_port = gone.port
    code, found = servers.found()
    assert code == 1
    assert found["telegram"] == ("fault", "502 Bad Gateway")
    assert found["email"][0] == "fault"


def test_channels_that_hang_are_faults_within_one_bound(servers: Servers) -> None:
    """In parallel; a server that answers byte by byte counts as hanging."""
    servers.bot.always = Fault(hangs_s=60)
    with ExitStack() as stack:
        servers.mail_port = stack.enter_context(dripping_server("greeting"))
        servers.configure()
        settings = load(str(servers.shell.folder / "gpuwatch.toml"), env={})
        http = PooledHttpClient()
        stack.callback(http.close)
        began = time.monotonic()
        found = list(channel_findings(settings, http, within_s=0.5))
        assert time.monotonic() - began < 15  # sequentially they would take 16 s
        servers.bot.released.set()
    assert [(one.area, one.state, one.text) for one in found] == [
        ("alerts by telegram", "fault", "no answer within 0.5 s"),
        ("alerts by email", "fault", "no answer within 0.5 s"),
    ]


def test_a_broken_template_is_named_and_the_channel_works(shell: Shell, caplog: pytest.LogCaptureFixture) -> None:
    with telegram() as bot:
        shell.settings(
            f'[notify.telegram]\nbot_token = "{TOKEN}"\nchat_id = "{CHAT}"\nbase_url = "{bot.base_url}"\n'
            '[notify.telegram.templates]\nmatch = "$pirce"\ntest = "$headline only"\n'
        )
        found = [one for one in shell("doctor", "--json").json if one["area"] == "alerts by telegram"]
        assert [(one["state"], one["text"]) for one in found][1:] == [
            ("note", "the template of match is not used: unknown variable $pirce")
        ]
        assert "notify.telegram.templates.match: unknown variable $pirce; the built-in text is used" in caplog.text
        assert shell("notify").code == 0
    assert [one.text for one in bot.shown] == ["gpuwatch test message only"]


def test_doctor_says_who_may_use_the_chat_and_what_keeps_commands_away(servers: Servers) -> None:
    servers.configure()  # a group without authorised users
    by_area = {one["area"]: one for one in servers.shell("doctor", "--json").json}
    assert by_area["commands by telegram"]["state"] == "note"
    servers.configure("users = [5001]\n")
    by_area = {one["area"]: one for one in servers.shell("doctor", "--json").json}
    assert by_area["commands by telegram"]["text"].startswith("1 user may press")
    servers.bot.webhook = "https://other.example.org/hook"
    ran = servers.shell("doctor", "--json")
    assert (ran.code, {one["area"]: one for one in ran.json}["commands by telegram"]["state"]) == (1, "fault")
