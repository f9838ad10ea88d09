"""The owner's texts: values filled in and escaped; the built-in text replaces a faulty template."""

from __future__ import annotations

from email.message import EmailMessage
from typing import Any

import msgspec
import pytest

from gpuwatch.notifiers.apprise import AppriseChannel, AppriseSettings
from gpuwatch.notifiers.email import EmailSettings, compose
from gpuwatch.notifiers.telegram import render
from gpuwatch.notifiers.toolkit import TEMPLATES, as_text, custom_text, plain, template_errors
from gpuwatch.notifiers.toolkit.owner_texts import FACT_NAMES, GENERAL_NAMES
from gpuwatch.ports import AlertKind
from tests.engine.alerts.test_alerts import WATCH, a_match, reported
from tests.notifiers.alerts import an_alert

MATCH = {"match": "<b>$watch</b> $price ($rank)\n$place $$ $headline"}
FILLED = (
    "<b>h100-night</b> $3.48/GPU-h (cheapest 4 % of 30 days (n = 702 hours of H100 SXM on demand at all providers))\n"
    "Iceland, IS $ h100-night: H100 SXM × 2 at $3.48/GPU-h"
)


def _mail(templates: dict[str, str] | None, **changes: Any) -> EmailMessage:
    settings = EmailSettings(
        host="mail", port=25, security="none", sender="watch@example.org", recipients=("me@example.org",),
        templates=templates,
    )  # fmt: skip
    return compose(an_alert(**changes), settings)


def _part(mail: EmailMessage, kind: str) -> str:
    part = mail.get_body((kind,))
    assert part is not None
    return str(part.get_content())


def test_a_template_is_filled_in_by_every_channel() -> None:
    assert render(an_alert(), MATCH) == FILLED  # its own tags are Telegram's
    assert _part(_mail(MATCH), "plain").strip() == FILLED
    assert "&lt;b&gt;h100-night&lt;/b&gt; $3.48/GPU-h" in _part(_mail(MATCH), "html")  # there they are text
    assert custom_text(MATCH, an_alert(), plain) == FILLED


def test_apprise_gets_it_too() -> None:
    sent: list[str] = []

    class Service:
        def add(self, url: str) -> bool:
            return bool(url)

        def notify(self, *, title: str, body: str, body_format: str, notify_type: str) -> bool:
            sent.extend((title, body, body_format))
            return True

    class Module:
        Apprise = Service

    settings = AppriseSettings(urls=("ntfy://topic",), templates=MATCH)
    AppriseChannel(settings, import_module=lambda name: Module).send(an_alert())
    assert sent[1] == FILLED


def test_what_a_host_wrote_stays_text_in_a_template() -> None:
    shown = render(an_alert(facts=(("Place", '<a href="tg://user?id=1">$rank @admin'),)), {"match": "<i>$place</i>"})
    assert "&lt;a <code>href=" in shown
    assert "<code>@admin</code></i>" in shown
    assert "<a " not in shown
    assert "cheapest" not in shown  # a value is not filled in again


def test_a_value_that_this_alert_lacks_is_empty() -> None:
    assert custom_text({"match": "[$rank]"}, an_alert(facts=()), plain) == "[]"


@pytest.mark.parametrize(
    ("text", "fault"),
    [("$pirce", "unknown variable $pirce"), ("costs 5 $ an hour", "a single $; write $$ for a dollar sign")],
)
def test_a_broken_template_is_not_used_and_reported(text: str, fault: str) -> None:
    broken = {"match": text}
    assert list(template_errors(broken)) == [("match", fault)]
    assert render(an_alert(), broken) == render(an_alert())
    assert _part(_mail(broken), "plain").strip() == as_text(an_alert())


def test_only_the_named_kinds_and_single_alerts_have_it() -> None:
    assert custom_text(MATCH, an_alert(kind=AlertKind.HELD), plain) is None
    assert custom_text(MATCH, an_alert(parts=(an_alert(), an_alert())), plain) is None


def test_what_telegram_would_refuse_for_its_length_is_not_used() -> None:
    assert render(an_alert(), {"match": "x" * 4_097}) == render(an_alert())


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (["text"], "expected a table"),
        ("text", "expected JSON"),
        ({"offer": "x"}, "unknown alert kind 'offer'; expected one of match,"),
        ({"match": ""}, "match: expected a text"),
        ({"match": 5}, "match: expected a text"),
    ],
)
def test_settings_of_a_wrong_shape_are_refused(value: object, words: str) -> None:
    assert TEMPLATES.parse is not None
    with pytest.raises(ValueError, match=words):
        TEMPLATES.parse(value)


def test_every_fact_of_an_offer_has_a_name() -> None:
    """Detects a new fact that templates cannot name."""
    watch = msgspec.structs.replace(WATCH, download_gb=500.0)
    full = a_match(cuda_max=12.8, ram_gib=256.0, vcpu=32.0, download_mbps=900.0, download_usd_gb=0.01)
    everything = " ".join(f"${name}" for name in (*GENERAL_NAMES, *FACT_NAMES))
    filled = custom_text({"match": everything}, reported(full, watch=watch), plain)
    assert filled is not None
    for _, value in reported(full, watch=watch).facts:
        assert value in filled
