"""Mail: readable, unencrypted only if configured, one result per recipient."""

from __future__ import annotations

import logging
import socket
import time
from contextlib import closing
from smtplib import SMTPServerDisconnected
from typing import Any

import pytest

from gpuwatch.errors import DeliverLater, DeliveryRefused
from gpuwatch.notifiers.email import EmailChannel, EmailSettings, compose
from gpuwatch.notifiers.email.mail_connection import BoundedSmtp, parse_address
from gpuwatch.ports import Severity
from gpuwatch.redaction import register_secret
from tests.notifiers.alerts import a_line, an_alert
from tests.smtp_server import Mailbox, a_ca, dripping_server, smtp_server, trusting

PASSWORD = "correct-horse-battery"
TO = ("a@example.org", "b@example.org", "c@example.org")


def settings_for(box: Mailbox, **changes: Any) -> EmailSettings:
    values: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": box.port,
        "security": "none",
        "sender": "gpuwatch <watch@example.org>",
        "recipients": TO[:1],
    }
    return EmailSettings(**(values | changes))


@pytest.mark.parametrize("before", range(268, 300, 6))
def test_half_a_key_is_not_shown_wherever_the_answer_of_a_server_is_cut(before: int) -> None:
    key = "Eq7-zW3.mB9_pX5+tR1vN8sD4"
    register_secret(key)
    with smtp_server() as box:
        box.to_data = [f"554 {'y' * before} {key} and more"]
        with pytest.raises(DeliveryRefused) as caught:
            EmailChannel(settings_for(box)).send(an_alert())
    assert "yyy" in str(caught.value)
    assert key[:6] not in str(caught.value)


# --- the message -----------------------------------------------------------------------------------------------------
def test_a_mail_has_text_and_html_with_the_same_content() -> None:
    with smtp_server() as box:
        EmailChannel(settings_for(box)).send(an_alert())
    (mail,) = box.mails
    assert [part.get_content_type() for part in mail.iter_parts()] == ["text/plain", "text/html"]
    html = mail.get_body(("html",))
    assert html is not None
    for text in (box.texts()[0], html.get_content()):
        for part in ("h100-night", "$3.48", "$2.90", "$3.50", "Iceland, IS", "Alerted only.", "abcdefgh2345"):
            assert part in text


def test_headers_say_who_what_and_when() -> None:
    with smtp_server() as box:
        EmailChannel(settings_for(box, recipients=TO[:2])).send(an_alert())
    (mail,) = box.mails
    assert mail["From"] == "gpuwatch <watch@example.org>"
    assert mail["To"] == "a@example.org, b@example.org"
    assert mail["Subject"] == "[gpuwatch] h100-night: H100 SXM × 2 at $3.48/GPU-h"
    assert mail["Message-ID"] == "<abcdefgh2345.gpuwatch@example.org>"
    assert mail["Date"] == "Sat, 21 Nov 2026 12:00:00 +0000"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert box.recipients == [["a@example.org", "b@example.org"]]


def test_only_a_critical_alert_asks_for_attention() -> None:
    with smtp_server() as box:
        for severity in Severity:
            EmailChannel(settings_for(box)).send(an_alert(severity=severity))
    assert [(mail.get_all("Importance"), mail.get_all("X-Priority")) for mail in box.mails] == [
        (None, None),
        (None, None),
        (["high"], ["1"]),
    ]


def test_nothing_that_a_host_wrote_becomes_a_header_or_a_tag() -> None:
    """W14."""
    hostile = "x\r\nBcc: evil@example.org\u2028<img src=//evil.example>"
    with smtp_server() as box:
        EmailChannel(settings_for(box)).send(
            an_alert(headline=hostile, alert_id=hostile, facts=((hostile, hostile),), offers=(a_line(place=hostile),))
        )
    (mail,) = box.mails
    assert mail["Bcc"] is None
    html = mail.get_body(("html",))
    assert html is not None
    assert "<img" not in html.get_content()
    assert "\nBcc" not in box.texts()[0]
    assert box.recipients == [["a@example.org"]]


def test_names_and_domains_in_other_letters_reach_a_server_that_speaks_only_ascii() -> None:
    to = ("Jürgen Müller <a@example.org>", "b@exämple.org")
    with smtp_server() as box:
        EmailChannel(settings_for(box, sender="Wächter <watch@example.org>", recipients=to)).send(an_alert())
    (mail,) = box.mails
    assert box.recipients == [["a@example.org", "b@xn--exmple-cua.org"]]
    assert mail["From"] == "Wächter <watch@example.org>"
    assert mail["To"] == "Jürgen Müller <a@example.org>, b@xn--exmple-cua.org"


def test_an_address_that_the_server_cannot_take_does_not_cost_the_others_their_mail() -> None:
    to = ("a@example.org", "Jörg <jörg@example.org>", "c@example.org")
    with smtp_server(utf8=False) as box:
        channel = EmailChannel(settings_for(box, recipients=to))
        with pytest.raises(DeliveryRefused, match=r"jörg@example\.org>: the server takes no addresses") as caught:
            channel.send(an_alert())
        channel.send_remaining(an_alert(), caught.value.taken)
        with pytest.raises(DeliveryRefused, match="SMTPUTF8") as alone:
            EmailChannel(settings_for(box, recipients=to[1:2])).send(an_alert())
    assert alone.value.taken == ()
    assert box.recipients == [["a@example.org", "c@example.org"]]
    assert box.mails[0]["To"] == "a@example.org, c@example.org"


def test_an_address_outside_ascii_gets_its_mail_from_a_server_that_takes_it() -> None:
    with smtp_server() as box:
        EmailChannel(settings_for(box, recipients=("a@example.org", "jörg@example.org"))).send(an_alert())
    assert box.recipients == [["a@example.org", "jörg@example.org"]]
    assert box.mails[0]["To"] == "a@example.org, jörg@example.org"


def test_a_refusal_names_the_recipient_as_the_settings_do() -> None:
    with smtp_server() as box:
        box.answers = {"b@xn--exmple-cua.org": ["550 no such user"]}
        with pytest.raises(DeliveryRefused, match=r"b@exämple\.org: 550") as caught:
            EmailChannel(settings_for(box, recipients=("a@example.org", "b@exämple.org"))).send(an_alert())
    assert caught.value.taken


def test_the_text_is_ascii_on_the_wire() -> None:
    mail = compose(
        an_alert(headline="ünïcode 😀"), EmailSettings(host="", port=1, security="none", sender="a@b.c", recipients=TO)
    )
    assert mail.as_bytes().isascii()


@pytest.mark.parametrize(
    "text",
    [
        "me",
        "@example.org",
        "a@b.org, c@d.org",
        "a@b.org;c@d.org",
        "Wächter, GPU <w@b.org>",
        "a@b.org\\nBcc: c@d.org",
        "a b@c.org",
        5,
    ],
)
def test_what_is_not_one_address_is_rejected(text: object) -> None:
    """Of several addresses in one text, the server would get only the first."""
    with pytest.raises(ValueError, match="mail address"):
        parse_address(text)


@pytest.mark.parametrize(
    "text", ["a@b.org", "Me <a@b.org>", '"Wächter, GPU" <w@b.org>', "jürgen@exämple.org", "a@[127.0.0.1]"]
)
def test_an_address_may_have_a_name_and_any_letters(text: str) -> None:
    assert parse_address(text) == text


@pytest.mark.parametrize("text", ["\ud800 lone", "\0", "ünïcode 😀", "", "x" * 100_000])
def test_any_text_can_be_mailed(text: str) -> None:
    with smtp_server() as box:
        alert = an_alert(headline=text, alert_id=text, facts=((text, text),), offers=(a_line(gpu=text),), why=text)
        EmailChannel(settings_for(box)).send(alert)
    assert len(box.mails) == 1


def test_a_sender_without_a_domain_still_gives_a_message_id() -> None:
    mail = compose(an_alert(), settings_for(Mailbox(), sender="watch"))
    assert mail["Message-ID"] == "<abcdefgh2345.gpuwatch@localhost>"


# --- the connection --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_mail_and_password_travel_under_tls(security: str) -> None:
    ca = a_ca()
    with smtp_server(security, ca, PASSWORD) as box:
        settings = settings_for(box, security=security, username="me", password=PASSWORD)
        EmailChannel(settings, tls=trusting(ca)).send(an_alert())
    assert box.in_tls == [True]
    assert box.logins == [("me", PASSWORD, True)]


def test_a_server_without_starttls_gets_neither_password_nor_mail() -> None:
    """A12."""
    with smtp_server("none", password=PASSWORD) as box:
        settings = settings_for(box, security="starttls", username="me", password=PASSWORD)
        with pytest.raises(DeliveryRefused, match="STARTTLS"):
            EmailChannel(settings).send(an_alert())
    assert box.logins == []
    assert box.mails == []


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_an_untrusted_certificate_gets_neither_password_nor_mail(security: str) -> None:
    with smtp_server(security, password=PASSWORD) as box:
        settings = settings_for(box, security=security, username="me", password=PASSWORD)
        with pytest.raises(DeliveryRefused, match="certificate"):
            EmailChannel(settings).send(an_alert())
    assert box.logins == []


def test_a_certificate_for_another_name_is_refused() -> None:
    ca = a_ca()
    with (
        smtp_server("tls", ca, names=("mail.example.org",)) as box,
        pytest.raises(DeliveryRefused, match="certificate"),
    ):
        EmailChannel(settings_for(box, security="tls"), tls=trusting(ca)).send(an_alert())
    assert box.mails == []


def test_a_wrong_password_is_tried_once_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    """A14: smtplib itself would try each mechanism; after three failures many servers lock the account."""
    caplog.set_level(logging.DEBUG)
    wrong = "wrong-horse-battery"
    ca = a_ca()
    with smtp_server("starttls", ca, PASSWORD) as box:
        settings = settings_for(box, security="starttls", username="me", password=wrong)
        with pytest.raises(DeliveryRefused, match="login refused: 535") as caught:
            EmailChannel(settings, tls=trusting(ca)).send(an_alert())
    assert len(box.logins) == 1
    assert wrong not in str(caught.value) + caplog.text + repr(settings)


def test_a_login_that_the_server_does_not_offer_is_refused() -> None:
    with smtp_server() as box, pytest.raises(DeliveryRefused, match="offers no login"):
        EmailChannel(settings_for(box, username="me", password=PASSWORD)).send(an_alert())


def test_a_batch_uses_one_connection() -> None:
    with smtp_server() as box:
        channel = EmailChannel(settings_for(box))
        with channel.batch():
            for number in range(3):
                channel.send(an_alert(alert_id=f"a{number}"))
    assert len(box.mails) == 3
    assert box.connections == 1


def test_a_connection_that_was_lost_is_made_anew() -> None:
    with smtp_server() as box:
        channel = EmailChannel(settings_for(box))
        with channel.batch():
            box.to_data = ["421 closing"]
            with pytest.raises(DeliverLater):
                channel.send(an_alert())
            channel.send(an_alert())
    assert len(box.mails) == 1


# --- the server's answers --------------------------------------------------------------------------------------------
def test_greylisting_is_tried_again_as_is_customary() -> None:
    """A10: after 5, 15, 30 and 60 minutes."""
    with smtp_server() as box:
        box.answers = {TO[0]: ["451 4.7.1 greylisted, try again later"]}
        channel = EmailChannel(settings_for(box))
        with pytest.raises(DeliverLater, match="451") as caught:
            channel.send(an_alert())
        channel.send(an_alert())
    assert caught.value.waits_s == (300, 900, 1800, 3600)
    assert caught.value.taken == ()
    assert len(box.mails) == 1


def test_a_refused_recipient_does_not_cost_the_others_their_mail() -> None:
    """A11: two get it once, one is reported."""
    with smtp_server() as box:
        box.answers = {TO[1]: ["550 5.1.1 no such user"]}
        channel = EmailChannel(settings_for(box, recipients=TO))
        with pytest.raises(DeliveryRefused, match="550") as caught:
            channel.send(an_alert())
        assert TO[1] in caught.value.refused
        channel.send_remaining(an_alert(), caught.value.taken)
    assert box.recipients == [[TO[0], TO[2]]]


def test_a_greylisted_recipient_gets_it_later_and_the_others_once() -> None:
    with smtp_server() as box:
        box.answers = {TO[1]: ["450 later"], TO[2]: ["550 never"]}
        channel = EmailChannel(settings_for(box, recipients=TO))
        with pytest.raises(DeliverLater) as caught:
            channel.send(an_alert())
        assert TO[2] in caught.value.refused
        channel.send_remaining(an_alert(), caught.value.taken)
        channel.send_remaining(an_alert(), caught.value.taken)
    assert box.recipients == [[TO[0]], [TO[1]], [TO[1]]]


def test_all_recipients_refused_is_a_refusal_of_the_channel() -> None:
    with smtp_server() as box:
        box.answers = {to: ["550 no"] for to in TO}
        with pytest.raises(DeliveryRefused) as caught:
            EmailChannel(settings_for(box, recipients=TO)).send(an_alert())
    assert caught.value.taken == ()


def test_a_mail_that_the_server_will_not_have_is_refused() -> None:
    with smtp_server() as box:
        box.to_data = ["554 5.7.1 spam"]
        with pytest.raises(DeliveryRefused, match="554"):
            EmailChannel(settings_for(box)).send(an_alert())


def test_a_server_that_hangs_in_data_is_left_at_the_deadline() -> None:
    """A13."""
    with smtp_server() as box:
        box.hangs = True
        began = time.monotonic()
        with pytest.raises(DeliverLater):
            EmailChannel(settings_for(box), deadline_s=0.5).send(an_alert())
        assert time.monotonic() - began < 60


@pytest.mark.parametrize("stage", ["greeting", "EHLO", "STARTTLS", "TLS", "AUTH", "MAIL", "RCPT", "DATA", "."])
def test_a_server_that_drips_is_left_at_the_deadline(stage: str) -> None:
    """One byte now and then prevents every timeout of a single read."""
    with dripping_server(stage) as port:
        in_tls = stage in ("STARTTLS", "TLS")
        settings = settings_for(
            Mailbox(port=port), security="starttls" if in_tls else "none", username="me", password=PASSWORD
        )
        began = time.monotonic()
        with pytest.raises(DeliverLater, match=r"email: 127\.0\.0\.1 took longer than 0\.5 s"):
            EmailChannel(settings, deadline_s=0.5).send(an_alert())
        assert time.monotonic() - began < 60


def test_a_server_that_drips_within_tls_is_left_at_the_deadline() -> None:
    with dripping_server("greeting") as port:
        began = time.monotonic()
        with pytest.raises(DeliverLater):
            EmailChannel(settings_for(Mailbox(port=port), security="tls"), deadline_s=0.5).send(an_alert())
        assert time.monotonic() - began < 60


def test_a_server_that_does_not_read_is_left_at_the_deadline() -> None:
    with smtp_server() as box:
        connection = BoundedSmtp(
            "127.0.0.1", box.port, tls=None, own_name="x", ends_at=time.monotonic() + 10, monotonic=time.monotonic
        )
        connection.ehlo()
        ours, theirs = socket.socketpair()
        with ours, theirs, closing(connection):
            assert connection.sock is not None
            connection.sock.close()
            connection.sock, connection.ends_at = ours, time.monotonic() + 0.5
            began = time.monotonic()
            with pytest.raises((OSError, SMTPServerDisconnected)):
                connection.send(b"x" * 50_000_000)
            assert time.monotonic() - began < 60


def test_nobody_listening_is_tried_later() -> None:
    with smtp_server() as box:
        settings = settings_for(box)
    with pytest.raises(DeliverLater, match="email:"):
        EmailChannel(settings).send(an_alert())
