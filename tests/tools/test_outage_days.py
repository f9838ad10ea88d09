"""Channels fail one by one and together: no alert about money is lost, late or doubled (`benchmarks.outage_days`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.outage_days import simulate


@pytest.mark.slow
def test_alerts_about_money_survive_every_outage(tmp_path: Path) -> None:
    found = simulate(5, tmp_path)
    assert found.money > 10
    assert found.arrived == found.money
    assert found.latest_s <= 20 * 60
    assert found.twice == 0
    assert found.most_threads <= 3
