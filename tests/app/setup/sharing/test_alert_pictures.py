"""The chart in a mail: of the offer's GPU, and never the reason why an alert is late or lost."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.app.setup.sharing.alert_pictures import AlertPictures
from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.notifiers.email import EmailChannel, EmailSettings
from gpuwatch.ports import Alert, AlertKind
from gpuwatch.ports.alerts import PictureChannel
from gpuwatch.settings import Settings
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from tests.notifiers.alerts import an_alert
from tests.smtp_server import smtp_server
from tests.storage.stored_answers import an_answer, an_offer
from tests.web.served import settings_in

_PNG = b"\x89PNG\r\n"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings with prices of an H100 SXM."""
    found = settings_in(tmp_path)
    with open_store(found) as store:
        for hours in (6, 3, 0):
            at = real_now() - timedelta(hours=hours)
            answer = an_answer(an_offer("m1", 2.0 + hours, observed_at=at), observed_at=at)
            SqlHistoryRecorder(store).record(answer, lane="sweep", gpu="H100 SXM", spot=False)
    return found


def of_gpu(gpu: str) -> Alert:
    alert = an_alert()
    return replace(alert, offers=(replace(alert.offers[0], gpu=gpu),))


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
    assert [part.get_content_type() for part in without.walk() if part.get_content_type().startswith("image")] == []
    assert "cid:" not in str(without)


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
