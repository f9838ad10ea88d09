"""Daemons of one database that are killed one after another, under faults; `make soak` kills five hundred."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.kills import ELSEWHERE, IN_A_ROW, kill_at_points


@pytest.mark.slow
def test_nothing_is_lost_over_a_row_of_kills_under_faults(tmp_path: Path) -> None:
    found = kill_at_points(tmp_path, seed=20261121, kills=IN_A_ROW)
    assert found.faults == []
    assert sum(found.at.values()) - found.at[ELSEWHERE] >= IN_A_ROW - 1  # a slow machine may miss one
