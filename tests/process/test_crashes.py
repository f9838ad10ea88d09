"""Whatever dies, and whenever: no double launch, nothing unknown, no alert lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.process.kills import ELSEWHERE, kill_at_points

KILLS = 15  # of each seed: 60 in all
SEEDS = range(20261121, 20261125)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sixty_kills_over_all_named_points_under_faults(tmp_path: Path) -> None:
    """`make soak` kills five hundred. Most of the time each daemon waits, so that four rows run side by side."""
    folders = [tmp_path / str(seed) for seed in SEEDS]
    for folder in folders:
        folder.mkdir()
    firsts = [n * KILLS for n in range(len(SEEDS))]
    with ThreadPoolExecutor(len(SEEDS)) as pool:
        found = list(pool.map(kill_at_points, folders, SEEDS, [KILLS] * len(SEEDS), firsts))
    assert {seed: one.faults for seed, one in zip(SEEDS, found, strict=True) if one.faults} == {}
    assert sum(sum(one.at.values()) for one in found) == KILLS * len(SEEDS)
    assert any(one.at.keys() - {ELSEWHERE} for one in found)
