"""The chart of an alert: of its watch or GPU, and never the reason why an alert is late, lost or sent twice."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.app.setup.sharing.alert_pictures import AlertPictures
from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.language import use_language
from gpuwatch.notifiers.email import EmailChannel, EmailSettings
from gpuwatch.notifiers.telegram import TelegramChannel, TelegramSettings
from gpuwatch.ports import Alert, AlertKind
from gpuwatch.ports.alerts import AlertPicture, MessageButton, PictureChannel, PictureSource
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.settings import Settings
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from tests.notifiers.alerts import an_alert
from tests.smtp_server import smtp_server
from tests.storage.stored_answers import an_answer, an_offer
from tests.telegram_double import (
    BAD_GATEWAY,
    CHAT,
    REPLY_LOST,
    TOKEN,
    Fault,
    TelegramDouble,
    telegram,
    too_many,
)
from tests.web.served import WATCH, settings_in

_PNG = b"\x89PNG\r\n"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings with prices of an H100 SXM."""
    found = settings_in(tmp_path, f"[providers.vastai]\ncommission = 0\n{WATCH}")
    with open_store(found) as store:
        for hours in (6, 3, 0):
            at = real_now() - timedelta(hours=hours)
            answer = an_answer(an_offer("m1", 2.0 + hours, observed_at=at), observed_at=at)
            SqlHistoryRecorder(store).record(answer, lane="sweep", gpu="H100 SXM", spot=False)
    return found


def of_gpu(gpu: str) -> Alert:
    alert = an_alert()
    return replace(alert, alert_id=gpu, offers=(replace(alert.offers[0], gpu=gpu),))


def test_a_mail_about_an_offer_carries_the_chart_of_its_gpu(settings: Settings) -> None:
    with smtp_server() as box:
        plain = {"host": "127.0.0.1", "port": box.port, "security": "none", "sender": "a@example.org"}
        channel = EmailChannel(EmailSettings(**plain, recipients=("b@example.org",)))  # type: ignore[arg-type]
        assert isinstance(channel, PictureChannel)
        channel.pictures = AlertPictures(settings, patience_s=60.0)
        channel.send(of_gpu("H100 SXM"))
        channel.send(of_gpu("unheard-of"))  # no prices: no picture, and the mail is sent
    with_chart, without = box.mails
    html = with_chart.get_body(("html",))
    assert html is not None
    assert 'src="cid:chart.gpuwatch"' in html.get_content()
    (picture,) = [part for part in with_chart.walk() if part.get_content_type() == "image/png"]
    assert picture["Content-ID"] == "<chart.gpuwatch>"
    assert picture.get_content().startswith(_PNG)
    assert 'alt="H100 SXM: $2.00/GPU-h. In 7 days the lowest price was between $2.00 and $8.00."' in html.get_content()
    assert [part.get_content_type() for part in without.walk() if part.get_content_type().startswith("image")] == []
    assert "cid:" not in str(without)


def test_a_chart_is_drawn_once_for_all_channels_of_a_language(settings: Settings) -> None:
    pictures = AlertPictures(settings, patience_s=60.0)
    alert, other = of_gpu("H100 SXM"), replace(of_gpu("H100 SXM"), alert_id="another")
    first = pictures.picture_for(alert)
    assert first is not None
    assert pictures.picture_for(alert) is first
    assert pictures.picture_for(other) is not first
    with use_language("ru"):
        in_russian = pictures.picture_for(alert)
    assert in_russian is not None
    assert in_russian.text != first.text
    assert pictures.picture_for(alert) is first


def test_no_picture_is_drawn_of_what_is_no_offer(settings: Settings) -> None:
    pictures = AlertPictures(settings, patience_s=60.0)
    assert pictures.picture_for(Alert(alert_id="a", kind=AlertKind.DAEMON, created_at=real_now(), headline="x")) is None


def test_a_picture_that_fails_or_takes_long_is_left_out(settings: Settings, tmp_path: Path) -> None:
    broken = replace(settings, database_url=f"sqlite:///{tmp_path}/missing/gpuwatch.db")
    assert AlertPictures(broken, patience_s=60.0).picture_for(of_gpu("H100 SXM")) is None
    slow = AlertPictures(settings, patience_s=0.0)
    assert slow.picture_for(of_gpu("H100 SXM")) is None  # not drawn at once
    for thread in threading.enumerate():
        if thread.name == "alert-picture":
            thread.join(60)


def test_the_picture_of_a_watch_has_its_prices_and_its_limit(settings: Settings) -> None:
    pictures = AlertPictures(settings, patience_s=60.0)
    with use_language("ru"):
        of_watch = pictures.picture_for(replace(of_gpu("H100 SXM"), watch="cheap"))
    of_other = pictures.picture_for(replace(of_gpu("H100 SXM"), watch="gone"))
    assert of_watch is not None
    assert of_other is not None
    assert of_watch.text.startswith("cheap: $2.00/GPU-ч. ")
    assert of_other.text.startswith("H100 SXM: $2.00/GPU-h. ")
    assert of_watch.png != of_other.png


# --- Telegram ---------------------------------------------------------------------------------------------------------
def telegram_channel(double: TelegramDouble, http: PooledHttpClient, pictures: PictureSource) -> TelegramChannel:
    settings = TelegramSettings(bot_token=TOKEN, chat_id=CHAT, base_url=double.base_url)
    channel = TelegramChannel(settings, http, sleep=lambda _s: None)
    assert isinstance(channel, PictureChannel)
    channel.pictures = pictures
    channel.buttons = SilenceButton()
    return channel


def finish_pictures() -> None:
    for thread in threading.enumerate():
        if thread.name == "telegram-picture":
            thread.join(60)
            assert not thread.is_alive()


class SilenceButton:
    def buttons_for(self, _alert: Alert) -> list[list[MessageButton]]:
        return [[MessageButton("Silence 6 h", "s:1")]]


class OnePicture:
    """A picture that is drawn once the test lets it be."""

    def __init__(self) -> None:
        self.may_draw = threading.Event()

    def picture_for(self, _alert: Alert) -> AlertPicture | None:
        assert self.may_draw.wait(60)
        return AlertPicture(_PNG, "H100 SXM: $2.00/GPU-h")


def test_a_picture_follows_its_alert_as_a_silent_reply(settings: Settings, http: PooledHttpClient) -> None:
    with telegram() as double:
        channel = telegram_channel(double, http, AlertPictures(settings, patience_s=60.0))
        channel.send(of_gpu("H100 SXM"))
        finish_pictures()
    alert, picture = double.shown
    assert (alert.labels, alert.silent, alert.replies_to) == (["Silence 6 h"], False, None)
    assert (picture.silent, picture.replies_to) == (True, alert.message_id)
    assert picture.text == "H100 SXM: $2.00/GPU-h. In 7 days the lowest price was between $2.00 and $8.00."
    assert double.photos[0].startswith(_PNG)


def test_an_alert_does_not_wait_for_its_picture_and_others_go_first(http: PooledHttpClient) -> None:
    pictures = OnePicture()
    with telegram() as double:
        channel = telegram_channel(double, http, pictures)
        channel.send(of_gpu("H100 SXM"))
        channel.send(of_gpu("H100 SXM"))
        assert [seen.replies_to for seen in double.shown] == [None, None]  # both are there; nothing is drawn yet
        pictures.may_draw.set()
        finish_pictures()
    assert [seen.replies_to for seen in double.shown] == [None, None, 2]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(400, "Bad Request: not enough rights to send photos to the chat"),
        Fault(413, raw=b"<html>too large</html>"),
        BAD_GATEWAY,
        too_many(30),
        REPLY_LOST,
    ],
)
def test_whatever_happens_to_a_picture_the_alert_is_sent_once(http: PooledHttpClient, fault: Fault) -> None:
    pictures = OnePicture()
    pictures.may_draw.set()
    with telegram() as double:
        double.photo_fault = fault
        channel = telegram_channel(double, http, pictures)
        channel.send(of_gpu("H100 SXM"))
        finish_pictures()
    assert double.methods == ["sendMessage", "sendPhoto"]
    assert double.shown[0].labels == ["Silence 6 h"]
