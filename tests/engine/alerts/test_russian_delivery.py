"""With `language = "ru"` one alert of each kind reaches a real mail server and a Bot API in Russian, and whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from email.message import EmailMessage
from html.parser import HTMLParser

import msgspec

from gpuwatch.bootstrap.service import button_signer
from gpuwatch.engine.alerts.alert_buttons import AlertButtons
from gpuwatch.engine.alerts.alert_delivery import AlertDelivery
from gpuwatch.notifiers.email import EmailChannel, EmailSettings
from gpuwatch.notifiers.telegram import TelegramChannel, TelegramSettings
from gpuwatch.ports import AlertKind, OutboxAlert
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.setup.database import Database
from tests.builders import NOON
from tests.notifiers.samples import alerts_by_kind
from tests.smtp_server import Mailbox, smtp_server
from tests.telegram_double import CHAT, TOKEN, Shown, telegram

# English that stays: names of settings and files, addresses, units, acronyms; GPUs, places, a provider's own words.
_KEPT = re.compile(
    r"<?https?://\S+|\w+ = \"?\w+\"?|\[[^\]]*\]|\"[^\"]*\"|\(\w+_\w+\)|\w+(_\w+)+|\S+\.py:\S+|gpuwatch-\w+|"
    r"h100-night|k3f7q2mzt5ab|uoyauilxpk2f|vastai|gpuwatch|GPU|H100 SXM|CUDA|vCPU|CET|UTC|systemd|email|"
    r"Reykjanes|Oslo|Utah|console|GET|follow|stream|timed out|new field|login refused|SMTP"
)
_COMMAND = re.compile(r": (gpuwatch|journalctl|systemctl) .*")
_WORD = re.compile(r"[A-Za-z]{3,}")


class _Texts(HTMLParser):
    """The words of a page, line by line, without those to be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in {"style", "code"}

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in {"style", "code"}

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.lines += data.splitlines()


def _english(text: str) -> list[str]:
    return [line for line in text.splitlines() if _WORD.search(_KEPT.sub("", _COMMAND.sub("", line)))]


def _delivered(database: Database, http: PooledHttpClient) -> tuple[Mailbox, list[Shown], list[AlertKind]]:
    """Send each kind by a daemon's delivery; what a channel does not get is not in the kinds."""
    outbox, kinds = Outbox(database), [kind for kind in alerts_by_kind() if kind is not AlertKind.AUDIT]
    with smtp_server() as box, telegram() as double:
        mail = EmailSettings(
            host="127.0.0.1", port=box.port, security="none", sender="a@example.org", recipients=("b@example.org",)
        )
        bot = TelegramSettings(bot_token=TOKEN, chat_id=CHAT, base_url=double.base_url)
        chat = TelegramChannel(bot, http, sleep=lambda _s: None)
        chat.buttons = AlertButtons(button_signer(chat, database), lambda _id: None, lambda: NOON)
        channels = {"email": EmailChannel(mail), "telegram": chat}
        for number, kind in enumerate(kinds):
            at = NOON + timedelta(hours=number)
            alert = msgspec.structs.replace(alerts_by_kind()[kind], alert_id=f"a{number:02}", created_at=at)
            outbox.enqueue(OutboxAlert(alert=alert, expires_at=at + timedelta(days=1)))
            delivery = AlertDelivery(outbox, channels, language="ru", patience_s=60.0)
            assert delivery.send_due(at) == 2, kind
            assert delivery.close(60.0)
        return box, double.shown, kinds


def test_each_kind_of_alert_arrives_in_russian(sqlite_database: Database, http: PooledHttpClient) -> None:
    box, messages, kinds = _delivered(sqlite_database, http)
    assert len(box.mails) == len(messages) == len(kinds)
    found = {(kind.value, *line) for kind, mail in zip(kinds, box.mails, strict=True) for line in _english_mail(mail)}
    for kind, shown in zip(kinds, messages, strict=True):
        copied = {entity.text for entity in shown.entities if entity.kind == "code"}
        assert shown.parse_mode == "HTML"
        found |= {(kind.value, "chat", line) for line in _english(shown.text) if not any(c in line for c in copied)}
        found |= {(kind.value, "button", label) for label in shown.labels if _WORD.search(label)}
    assert found == set()
    buttons = {label for shown in messages for label in shown.labels}
    assert {"Тишина 6 ч", "Почему", "Завершить", "Продлить", "Стоимость"} <= buttons


def _english_mail(mail: object) -> Iterator[tuple[str, str]]:
    """Judged by the standard library's parser: two alternatives, without a defect, in a charset that it reads."""
    assert isinstance(mail, EmailMessage)
    assert [part.defects for part in mail.walk()] == [[] for _ in mail.walk()]
    assert mail.get_content_type() == "multipart/alternative"
    subject, plain, page = str(mail["Subject"]), mail.get_body(("plain",)), mail.get_body(("html",))
    assert plain is not None
    assert page is not None
    assert mail.as_bytes().isascii()  # also for servers without 8BITMIME
    html, texts = page.get_content(), _Texts()
    assert '<html lang="ru">' in html
    texts.feed(html)
    for where, text in (("subject", subject), ("text", plain.get_content()), ("html", "\n".join(texts.lines))):
        assert re.search("[а-я]", text), where
        yield from ((where, line) for line in _english(text))
