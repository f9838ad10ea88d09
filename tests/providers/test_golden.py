"""Every recorded answer is understood as its golden file says; `make golden` writes them anew."""

from __future__ import annotations

import json

import pytest
from golden import TESTS, golden_path, replays

REPLAYS = replays()


@pytest.mark.parametrize(("provider", "name"), [(p, name) for p, results in REPLAYS.items() for name in results])
def test_a_recorded_answer_is_understood_as_before(provider: str, name: str) -> None:
    expected = json.loads(golden_path(provider, name).read_text("utf-8"))
    assert REPLAYS[provider][name] == expected


@pytest.mark.parametrize("provider", REPLAYS)
def test_no_golden_file_is_left_over(provider: str) -> None:
    files = {path.name for path in (TESTS / "recorded" / provider / "golden").glob("*.json")}
    assert files == set(REPLAYS[provider])
