"""From `gpuwatch init` to the first alert and to the first rental: at most five minutes and 30 typed answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.first_session import ALERT, MAX_ANSWERS, MAX_S, RENTAL, record

pytestmark = pytest.mark.slow
QUICK = {
    "GPUWATCH_TEST_PACE": "20",
    "GPUWATCH_PROVIDERS__VASTAI__POLL_EVERY": "1s",
    "GPUWATCH_PROVIDERS__VASTAI__SEARCH_INTERVAL": "0.05s",
}


@pytest.mark.parametrize("goal", [ALERT, RENTAL])
def test_a_newcomer_is_there_within_five_minutes_and_thirty_answers(goal: str, tmp_path: Path) -> None:
    session = record(goal, tmp_path, QUICK)
    assert len(session.answers) <= MAX_ANSWERS
    assert session.person_s <= MAX_S
    session.write_cast(tmp_path)
    assert len((tmp_path / f"{goal.replace(' ', '-')}.cast").read_text().splitlines()) == len(session.events) + 1
