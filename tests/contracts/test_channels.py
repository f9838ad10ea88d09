"""One suite for every alert channel: the guarantees that the engine relies on. New modules in `notifiers` join it."""

from __future__ import annotations

import pkgutil
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest

from gpuwatch import notifiers
from gpuwatch.errors import DeliverLater, DeliveryError, DeliveryRefused
from gpuwatch.notifiers.apprise import AppriseChannel, AppriseSettings
from gpuwatch.notifiers.email import EmailChannel, EmailSettings
from gpuwatch.notifiers.telegram import TelegramChannel, TelegramSettings
from gpuwatch.notifiers.webhook import WebhookChannel, WebhookSettings
from gpuwatch.ports import AlertKind, Channel, ChannelSettings
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from tests.checkout import ROOT
from tests.notifiers.alerts import a_line, an_alert
from tests.smtp_server import smtp_server
from tests.telegram_double import BAD_GATEWAY, BLOCKED, CHAT, TOKEN, telegram

# Apprise imports all its plugins at the first use, and they import modules that Python will remove
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

SECRET = "aVerySecretPassword1234"
_NO_CHANNELS = {"toolkit"}


class Case(msgspec.Struct):
    """A channel with its service, and ways to make the service fail."""

    channel: Channel
    arrived: Callable[[], list[str]]
    fail: Callable[[], None]  # makes the service fail temporarily
    refuse: Callable[[], None] | None  # makes the service reject for good; None: it never does
    secrets: tuple[str, ...]


def _telegram(stack: ExitStack) -> Case:
    bot = stack.enter_context(telegram())
    http = PooledHttpClient()
    stack.callback(http.close)
    settings = TelegramSettings(bot_token=TOKEN, chat_id=CHAT, base_url=bot.base_url)
    return Case(
        TelegramChannel(settings, http, sleep=lambda _s: None),
        lambda: [shown.text for shown in bot.shown],
        lambda: setattr(bot, "always", BAD_GATEWAY),
        lambda: setattr(bot, "always", BLOCKED),
        (TOKEN,),
    )


def _email(stack: ExitStack) -> Case:
    box = stack.enter_context(smtp_server(password=SECRET))
    settings = EmailSettings(
        host="127.0.0.1",
        port=box.port,
        security="none",
        sender="w@example.org",
        recipients=("me@example.org",),
        username="me",
        password=SECRET,
    )
    return Case(
        EmailChannel(settings),
        box.texts,
        lambda: box.to_data.extend(["451 not now"] * 10),
        lambda: box.to_data.extend(["554 never"] * 10),
        (SECRET,),
    )


def _posts(stack: ExitStack, key: str | None) -> tuple[int, list[int], list[str]]:
    """A server for POSTs: its port, its status, and each body as text: the value of `key` in its JSON, or all of it."""
    status, bodies = [200], list[str]()

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if status[0] == 200:
                bodies.append(body.decode() if key is None else str(msgspec.json.decode(body)[key]))
            self.send_response(status[0])
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Keeps quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    stack.callback(server.server_close)
    stack.callback(thread.join)
    stack.callback(server.shutdown)
    return server.server_port, status, bodies


def _apprise(stack: ExitStack) -> Case:
    port, status, bodies = _posts(stack, "message")
    url = f"json://me:{SECRET}@127.0.0.1:{port}"
    channel = AppriseChannel(AppriseSettings(urls=(url,)))
    return Case(channel, lambda: bodies, lambda: status.__setitem__(0, 503), None, (SECRET, url))


def _webhook(stack: ExitStack) -> Case:
    port, status, bodies = _posts(stack, None)
    http = PooledHttpClient()
    stack.callback(http.close)
    url = f"http://127.0.0.1:{port}/{SECRET}?token={SECRET}"
    channel = WebhookChannel(WebhookSettings(url=url, secret=SECRET), http)
    return Case(
        channel,
        lambda: bodies,
        lambda: status.__setitem__(0, 503),
        lambda: status.__setitem__(0, 410),
        (SECRET, url),
    )


def _documented(stack: ExitStack) -> Case:
    """The channel in docs/write-a-provider.md."""
    port, status, bodies = _posts(stack, "text")
    page = (ROOT / "docs" / "write-a-provider.md").read_text(encoding="utf-8")
    (source,) = (code for code in re.findall(r"(?ms)^```python\n(.*?)^```$", page) if "ChannelInfo(" in code)
    module: dict[str, Any] = {"__name__": "gpuwatch.notifiers.poster"}
    exec(compile(source, "write-a-provider.md", "exec"), module)
    http = PooledHttpClient()
    stack.callback(http.close)
    url = f"http://127.0.0.1:{port}/{SECRET}"
    settings = ChannelSettings(name="poster", options={"url": url})
    return Case(
        module["build"](settings, http),
        lambda: bodies,
        lambda: status.__setitem__(0, 503),
        lambda: status.__setitem__(0, 403),
        (SECRET,),
    )


CASES = {
    "telegram": _telegram,
    "email": _email,
    "apprise": _apprise,
    "webhook": _webhook,
    "poster": _documented,
}


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    with ExitStack() as stack:
        yield CASES[request.param](stack)


def test_every_channel_of_the_package_is_in_this_suite() -> None:
    modules = {module.name for module in pkgutil.iter_modules(notifiers.__path__)}
    assert modules - _NO_CHANNELS == set(CASES) - {"poster"}


def test_a_channel_bears_the_name_of_its_module(case: Case) -> None:
    assert type(case.channel).__module__ == f"gpuwatch.notifiers.{case.channel.name}"


def test_an_alert_arrives_with_its_price_and_its_id(case: Case) -> None:
    case.channel.send(an_alert())
    (text,) = case.arrived()
    for part in ("h100-night", "$3.48", "$2.90", "$3.50", "abcdefgh2345"):
        assert part in text


def test_every_kind_of_alert_arrives(case: Case) -> None:
    for number, kind in enumerate(AlertKind, 1):
        case.channel.send(an_alert(kind=kind, facts=(), offers=(), why="", did="", can_do=()))
        assert len(case.arrived()) == number, kind


def test_a_hostile_alert_arrives(case: Case) -> None:
    hostile = "<b>\r\nX: y\0\u202e\ud800 & ' \"" + "x" * 50_000
    line = a_line(gpu=hostile, place=hostile, offer_id=hostile, url="https://h/" + hostile)
    case.channel.send(an_alert(headline=hostile, facts=((hostile, hostile),), offers=(line,), why=hostile))
    assert len(case.arrived()) == 1


def test_a_service_in_trouble_is_tried_later(case: Case) -> None:
    case.fail()
    with pytest.raises(DeliverLater):
        case.channel.send(an_alert())
    assert case.arrived() == []


@pytest.mark.parametrize(
    "case", ["telegram", "email", "webhook", "poster"], indirect=True
)  # Apprise does not distinguish a rejection from a temporary failure
def test_a_service_that_says_no_is_a_refusal(case: Case) -> None:
    assert case.refuse is not None
    case.refuse()
    with pytest.raises(DeliveryRefused):
        case.channel.send(an_alert())


@pytest.mark.parametrize("fault", ["fail", "refuse"])
def test_no_error_and_no_log_line_shows_a_secret(
    case: Case, fault: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("DEBUG", "gpuwatch")
    caplog.set_level("INFO")
    (getattr(case, fault) or case.fail)()
    with pytest.raises(DeliveryError) as caught:
        case.channel.send(an_alert())
    own = [record.getMessage() for record in caplog.records if not record.name.startswith("mail.log")]
    seen = "\n".join([str(caught.value), repr(caught.value), *own, *capfd.readouterr()])
    for secret in case.secrets:
        assert secret not in seen


def test_an_error_is_one_line_that_names_its_channel(case: Case) -> None:
    case.fail()
    with pytest.raises(DeliveryError) as caught:
        case.channel.send(an_alert())
    assert str(caught.value).startswith(case.channel.name)
    assert "\n" not in str(caught.value)
