"""One alert in four forms: the same facts in plain text, Telegram, and both parts of a mail; each fact once."""

from __future__ import annotations

import re
from html import unescape

import pytest

from gpuwatch.notifiers.email import EmailSettings, compose
from gpuwatch.notifiers.email.mail_page import as_html
from gpuwatch.notifiers.telegram import render
from gpuwatch.notifiers.toolkit import Role, as_text, footer, lines, subject
from gpuwatch.ports import Alert, AlertKind, Severity
from tests.notifiers.alerts import a_line, an_alert

MAIL = EmailSettings(host="mail", port=25, security="none", sender="watch@example.org", recipients=("me@example.org",))
HELD = an_alert(
    kind=AlertKind.HELD,
    severity=Severity.CRITICAL,
    headline="h100-night: held: nothing proves that no instance was created",
    facts=(("Launch", "k3f7q2mzt5ab"), ("Provider", "vastai, offer <7>")),
    offers=(),
    can_do=("If it does not: gpuwatch launches resolve k3f7q2mzt5ab --absent", "Ask a friend & wait"),
)
GROUP = an_alert(headline="2 watches have offers", facts=(), offers=(), can_do=(), parts=(an_alert(), HELD))
BURST = an_alert(
    headline="60 watches have offers",
    facts=(),
    offers=(),
    can_do=(),
    parts=tuple(an_alert(alert_id=f"part{n}", headline=f"watch-{n}: H100 SXM × 1 at $2.{n}") for n in range(60)),
)
each = pytest.mark.parametrize("alert", [an_alert(), HELD, GROUP, BURST], ids=["match", "held", "group", "burst"])


def _shown(page: str) -> str:
    """Return the visible text of the HTML, without the spaces between blocks."""
    body = re.sub(r"(?s)<head>.*?</head>", "", page)
    return unescape(re.sub(r"<[^>]*>", "", body)).replace("\n", "")


@each
def test_every_rendering_has_every_piece_of_every_line(alert: Alert) -> None:
    mail = compose(alert, MAIL)
    text, page = mail.get_body(("plain",)), mail.get_body(("html",))
    assert text is not None
    assert page is not None
    renderings = {
        "text": as_text(alert).replace("\n", ""),
        "telegram": _shown(render(alert)),
        "mail text": text.get_content().replace("\n", ""),
        "mail page": _shown(page.get_content()),
    }
    for line in (*lines(alert), *footer(alert)):
        for piece in line.pieces:
            wanted = piece.text if line.role is not Role.LINK else piece.text.removeprefix("• ")
            missing = [name for name, shown in renderings.items() if wanted not in shown]
            assert not missing, f"{wanted!r} is missing in {missing}"


@each
def test_a_message_is_bounded(alert: Alert) -> None:
    assert len(lines(alert)) <= 60
    assert len(as_text(alert)) <= 8_000
    assert len(as_html(alert)) <= 30_000


def test_what_a_burst_leaves_out_is_counted() -> None:
    assert "40 more; see all: gpuwatch alerts" in as_text(BURST)
    assert "40 more; see all: <code>gpuwatch alerts</code>" in render(BURST)


def test_gpu_price_and_total_are_said_once() -> None:
    text = as_text(an_alert(offers=(a_line(),)))
    for once in ("$3.48", "$6.96", "H100 SXM × 2", "$2.90", "99.2 %", "Iceland"):
        assert text.count(once) == 1, once


def test_a_short_value_is_not_taken_for_a_part_of_the_headline() -> None:
    assert "Attempts: 5" in as_text(an_alert(headline="held for 5 hours", facts=(("Attempts", "5"),)))


def test_the_first_offer_is_the_message_and_the_others_are_a_list() -> None:
    text = as_text(an_alert(offers=(a_line(), a_line(offer_id="2", price_usd_gpu_hour="3.49"))))
    assert "Next cheapest\n2. $3.49/GPU-h · H100 SXM × 2 · Iceland, IS · 99.2 % · vastai, offer 2" in text


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://cloud.vast.ai/create/", "Open the console of vastai"),
        ("https://market.example/offers/28123456", "Open offer 28123456 at vastai"),
    ],
)
def test_a_link_says_whether_it_leads_to_the_offer_itself(url: str, shown: str) -> None:
    alert = an_alert(offers=(a_line(url=url), a_line(offer_id="2", url=url)))
    assert as_text(alert).count(url) == 1
    assert f"• {shown} <{url}>" in as_text(alert)
    assert as_html(alert).count(f'href="{url}"') == 1


@pytest.mark.parametrize(("severity", "prefix"), [("info", ""), ("warning", "Warning: "), ("critical", "CRITICAL: ")])
def test_the_severity_is_the_first_thing_one_reads(severity: str, prefix: str) -> None:
    alert = an_alert(severity=Severity(severity))
    assert subject(alert) == prefix + alert.headline
    assert as_text(alert).startswith(prefix + alert.headline)
    assert compose(alert, MAIL)["Importance"] == ("high" if severity == "critical" else None)


def test_what_a_host_wrote_is_text_in_the_page() -> None:
    nasty = '"><script>alert(1)</script><img src=x>'
    page = as_html(
        an_alert(headline=nasty, facts=((nasty, nasty),), offers=(a_line(place=nasty, url=None),), why=nasty)
    )
    assert "<script" not in page
    assert "<img" not in page
