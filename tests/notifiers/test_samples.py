"""Every kind of alert in every form, compared with its golden file; all forms have the same facts."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest

from gpuwatch.bootstrap import log_alert
from gpuwatch.domain.alerts.alert import event_json
from gpuwatch.notifiers.email.mail_page import as_html
from gpuwatch.notifiers.telegram import render
from gpuwatch.notifiers.toolkit import as_text
from gpuwatch.ports import Alert, AlertKind
from tests.notifiers.samples import FOLDER, alerts_by_kind, golden_files

ALERTS = alerts_by_kind()
FILES = golden_files()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_looks_as_its_golden_file(path: Path) -> None:
    assert path.read_text("utf-8") == FILES[path], "make golden, and review the difference"


def test_every_kind_has_its_files_and_none_is_left_over() -> None:
    assert {alert.kind for alert in ALERTS.values()} == set(AlertKind)
    assert set(FOLDER.iterdir()) == set(FILES)


@pytest.mark.parametrize("alert", ALERTS.values(), ids=[kind.value for kind in ALERTS])
def test_one_source_equal_facts(alert: Alert, caplog: pytest.LogCaptureFixture) -> None:
    """Text, Telegram, mail and the log for people, and the event for programs: each has every value of every fact."""
    with caplog.at_level("INFO", "gpuwatch"):
        log_alert(alert)
    (record,) = caplog.records
    shown = {
        "text": as_text(alert),
        "telegram": unescape(re.sub(r"<[^>]*>", "", render(alert))),
        "mail": unescape(re.sub(r"<[^>]*>", "", as_html(alert))),
        "log": "\n".join([record.getMessage(), *vars(record)["details"]]),
    }
    for value in (alert.headline, alert.why, alert.did, *(fact for _, fact in alert.facts)):
        assert [name for name, text in shown.items() if value not in text] == []
    for hint in alert.can_do:
        assert [name for name, text in shown.items() if hint not in text] == []
    event = json.dumps(event_json(alert), ensure_ascii=False)
    for value in (alert.headline, *(fact for _, fact in alert.facts)):
        assert json.dumps(value, ensure_ascii=False) in event
