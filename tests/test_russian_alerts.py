"""Alerts are stored in English and sent in the language of the settings: every declared one, by mail and Telegram."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from importlib import import_module

from gpuwatch.domain.alerts.alert import Alert, AlertKind, AlertSpec, alert_for_reading, event_json
from gpuwatch.domain.alerts.market_texts import LANE_TEXTS
from gpuwatch.domain.launches.launch import EndReason
from gpuwatch.domain.market.money import per_gpu_hour, per_hour
from gpuwatch.language import translate_composed, use_language
from gpuwatch.notifiers.email.mail_page import as_html
from gpuwatch.notifiers.telegram import render
from gpuwatch.notifiers.toolkit import as_text
from tests.builders import NOON
from tests.notifiers.samples import alerts_by_kind
from tools import texts

# English that stays: names, keys and values of settings, units, acronyms. Commands follow a colon.
_NAMES = re.compile(
    r"\w+(\.\w+)+|\w+_\w+(_\w+)*|`[^`]*`|\[[^\]]*\]|\"[^\"]*\"|systemctl.*|journalctl.*|--\S+|k3m5pq7rstuv|"
    r"gpuwatch|systemd|GPU|SSH|CPU|UTC|Arm|spot|rclone|dstack|CUDA|vCPU|true|false|keep|FILE|FOLDER|auto"
)
_ENGLISH = re.compile(r"[A-Za-z]{3,}")


def _specs() -> Iterator[tuple[str, AlertSpec]]:
    for path in sorted((texts.PACKAGE / "domain" / "alerts").glob("*_texts.py")):
        for name, value in vars(import_module(f"gpuwatch.domain.alerts.{path.stem}")).items():
            if isinstance(value, AlertSpec) and value.kind is not AlertKind.AUDIT:
                yield f"{path.stem}.{name}", value


def _alert(spec: AlertSpec) -> Alert:
    def filled(text: str) -> str:
        return re.sub(r"\{[^{}]*\}", "7", text)

    def sentences(text: str | tuple[str, ...]) -> list[str]:
        return [filled(one) for one in ((text,) if isinstance(text, str) else text)]

    (why, *more_why), (did, *more_did) = sentences(spec.why), sentences(spec.did)
    return Alert(
        alert_id="k3m5pq7rstuv",
        kind=spec.kind,
        created_at=NOON,
        headline=filled(spec.headline),
        facts=tuple((filled(label), filled(value)) for label, value in spec.facts),
        why=why,
        did=did,
        can_do=(*map(filled, spec.can_do), *more_why, *more_did),
    )


def test_every_declared_alert_is_russian_in_mail_and_telegram() -> None:
    english = [(name, *line) for name, spec in _specs() for line in _english_lines(spec)]
    assert english == []


def _english_lines(spec: AlertSpec) -> Iterator[tuple[str, str]]:
    with use_language("ru"):
        alert = alert_for_reading(_alert(spec))
        shown = {
            "text": as_text(alert),
            "telegram": unescape(re.sub(r"<code>.*?</code>|<[^>]*>", "", render(alert))),
            "mail": unescape(re.sub(r"(?s)<style>.*?</style>|<code.*?</code>|<[^>]*>", "", as_html(alert))),
        }
    for form, text in shown.items():
        for line in text.splitlines():
            said = re.split(r"(?:: |• |; |\n)gpuwatch (?=[a-z])", line)[0]
            if _ENGLISH.search(_NAMES.sub("", said)):
                yield form, line


def test_a_stored_alert_stays_english_for_programs() -> None:
    for alert in alerts_by_kind().values():
        english = event_json(alert)
        with use_language("ru"):
            assert event_json(alert) == english


def test_composed_texts_are_recognised_with_their_values() -> None:
    with use_language("ru"):
        for english, russian in {
            "idle": "простой",
            EndReason.NO_CREDIT.text("the balance is $0.20"): "нет денег на счёте: на счёте $0.20",
            "cheap: its host raises the price": "cheap: хост поднимает цену",
            "budget: rented; found by its label": "budget: арендована; найдена по метке",
            "3 launches": "3 запуска",
            "1 launch": "1 запуск",
            "25 launches": "25 запусков",
            "1,204 offers": "1,204 предложения",
            "1h30m": "1 ч 30 мин",
            "Nothing yet. Save its results": "Пока ничего. Сохраните результаты",
            "words of a host: buy now": "words of a host: buy now",
            "": "",
            "42": "42",
        }.items():
            assert translate_composed(english) == russian, english
    assert translate_composed("idle") == "idle"


def test_a_name_is_not_translated_even_if_it_is_a_word_of_the_catalogue() -> None:
    with use_language("ru"):
        assert translate_composed("Stop: its price rose") == "Stop: цена выросла"


def test_rates_have_the_unit_of_the_language() -> None:
    assert (per_hour(1.48), per_gpu_hour(1.48)) == ("$1.48/h", "$1.48/GPU-h")
    with use_language("ru"):
        assert (per_hour(1.48), per_gpu_hour(1.48)) == ("$1.48/ч", "$1.48/GPU-ч")
        assert translate_composed("now $1.48/GPU-h") == "now $1.48/GPU-ч"


def test_lanes_are_translated_inside_their_alerts() -> None:
    with use_language("ru"):
        for lane in LANE_TEXTS.values():
            for text in (lane.searches, lane.unknown, lane.did):
                assert translate_composed(text) != text
