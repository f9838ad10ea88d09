"""What an owner reads of an alert: no name of a setting, no flag, and no command for which the pages have a button."""

from __future__ import annotations

import re

import msgspec
import pytest

from gpuwatch.domain.alerts.alert import Alert, AlertKind, alert_for_reading
from gpuwatch.domain.market.money import per_gpu_hour
from gpuwatch.language import LANGUAGES, translate_composed, use_language
from tests.builders import NOON
from tools.texts import declared_texts

_FIELD = re.compile(r"\{[^{}]*\}|%\(\w+\)s")
_KEY = re.compile(r"\b[a-z]+_[a-z_]+\b|(?<!\S)--[a-z]|per GPU-hour|\[[a-z]+\] \w+")
# Commands that no page replaces, and what a file of the owner's names.
_KEPT = re.compile(r"gpuwatch [a-z-]+( .*)?$|\[notify\.?\]|\[watch\.launch\]")


def _alert(**parts: object) -> Alert:
    return msgspec.structs.replace(
        Alert(alert_id="a" * 12, kind=AlertKind.RENT, created_at=NOON, headline="h100: running"), **parts
    )


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_declared_text_shows_a_name_of_a_setting(language: str) -> None:
    with use_language(language):
        read = {translate_composed(text, with_commands=True) for name, text in declared_texts() if "/alerts/" in name}
    assert [text for text in sorted(read) if _KEY.search(_KEPT.sub("", _FIELD.sub("", text)))] == []


def test_asides_and_commands_are_for_the_terminal() -> None:
    for composed, read in {
        "An offer is at or under the threshold (first_match). 2 more fit.": (
            "An offer is at or under the threshold. 2 more fit."
        ),
        "active launches of watch 'a': 1 (max_active = 1)": "active launches of watch 'a': 1",
        "it can cost $3, and agents used $2 of $4 in 24 h ([mcp] max_usd_day)": (
            "it can cost $3, and agents used $2 of $4 in 24 h"
        ),
        "there is no approval 'x'; see: gpuwatch approvals list": "there is no approval 'x'",
        "launch a has no max_runtime; it runs until you stop it": (
            "launch a has no longest runtime; it runs until you stop it"
        ),
        "cheapest 4 % of 30 days (n = 702 hours)": "cheapest 4 % of 30 days (n = 702 hours)",
        "1 watch, dry run: gpuwatch rents nothing": "1 watch, dry run: gpuwatch rents nothing",
    }.items():
        assert translate_composed(composed) == read, composed


def test_with_a_page_the_commands_that_it_replaces_are_left_out() -> None:
    lines = (
        "Follow it: gpuwatch launches", "End it: gpuwatch launches stop a", "See what is wrong: gpuwatch doctor",
        "End everything: gpuwatch launches stop --all", "Check the instances at vastai",
    )  # fmt: skip
    without = alert_for_reading(_alert(can_do=lines))
    assert without.can_do == lines
    there = alert_for_reading(_alert(can_do=lines, page_url="https://gpu.example.org/launches/a"))
    assert there.can_do == lines[2:]
    assert alert_for_reading(_alert(can_do=lines), has_page=True).can_do == lines[2:]


def test_a_jobs_watch_is_named_like_its_job() -> None:
    assert alert_for_reading(_alert(headline="job:tune: running")).headline == "job tune: running"
    with use_language("ru"):
        assert alert_for_reading(_alert(headline="job:tune: running")).headline == "задание tune: работает"
        assert per_gpu_hour(1.48) == "$1.48/GPU-ч"
