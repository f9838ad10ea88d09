"""A changed watch is tested on what the store knows, before its settings are saved."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from gpuwatch.app.forecasts.watch_preview import past_actions, preview_watch
from gpuwatch.app.watches.edit_watch import draft_watch
from gpuwatch.app.watches.watch_selection import watch_named
from gpuwatch.bootstrap import real_now
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import open_database
from tests.storage.stored_answers import an_answer, an_offer
from tests.web.served import settings_in

TEXT = """
[providers.vastai]
[[watch]]
name = "cheap"
gpu = ["H100"]
max_price = 2.00
"""
NOW = real_now()


@pytest.fixture
def config(tmp_path: Path) -> str:
    """Two days of polls: four hours a day the offer costs a third less."""
    settings = settings_in(tmp_path, TEXT)
    recorder = SqlHistoryRecorder(open_database(settings.database_url))
    for hours in range(48, -1, -1):
        price = 2.0 if hours % 24 < 4 else 3.0
        answer = an_answer(an_offer("a", price), observed_at=NOW - timedelta(hours=hours, minutes=1))
        recorder.record(answer, lane="sweep")
    return str(tmp_path / "gpuwatch.toml")


def test_the_store_is_read_with_the_changed_limit(config: str) -> None:
    found = {}
    for limit in ("2.00", "2.60"):
        draft = draft_watch(config, "cheap", {"max_price": limit})
        found[limit] = preview_watch(draft.settings, watch_named(draft.settings, "cheap"), 14, NOW)
    assert [len(one.status.matches) for one in found.values()] == [0, 1]
    assert [one.under.times for one in found.values() if one.under] == [0, 3]


def test_a_new_watch_is_found_by_its_name(config: str) -> None:
    draft = draft_watch(config, None, {"name": "other", "gpu": "H100", "max_price": "9"})
    assert preview_watch(draft.settings, watch_named(draft.settings, "other"), 14, NOW).status.matches


def test_what_it_would_have_done_has_its_cost(config: str) -> None:
    changes = {"max_price": "2.60", "action": "launch", "launch.max_runtime": "1h", "launch.max_total": "0"}
    draft = draft_watch(config, "cheap", changes)
    past = past_actions(draft.settings, watch_named(draft.settings, "cheap"), 14, NOW)
    assert past is not None
    assert past.rentals
    assert past.cost_usd > 0
    assert past.hours > 0
    alerts = past_actions(draft.settings, watch_named(draft_watch(config, "cheap", {}).settings, "cheap"), 14, NOW)
    assert alerts is not None
    assert not alerts.rentals


def test_without_polls_nothing_is_claimed(config: str) -> None:
    draft = draft_watch(config, None, {"name": "other", "gpu": "RTX 4090", "max_price": "9"})
    watch = watch_named(draft.settings, "other")
    past = past_actions(draft.settings, watch, 14, NOW)
    assert past is None or (past.alerts, len(past.rentals)) == (0, 0)
    assert preview_watch(draft.settings, watch, 14, NOW).prices.known == []
