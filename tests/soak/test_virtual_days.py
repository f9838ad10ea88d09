"""Days of the daemon on the virtual clock; `make soak` runs 400."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.year.virtual_days import simulate


@pytest.mark.slow
def test_the_store_stays_as_large_as_what_is_kept(tmp_path: Path) -> None:
    """Prices are kept for two days: from the second part on, ten days need no more than four."""
    samples = simulate(tmp_path, days=10, kept_days=2, poll_every="3h", parts=5)
    assert samples[-1].store_kb <= 1.05 * samples[1].store_kb
    assert samples[-1].memory_mb <= samples[1].memory_mb + 8  # 15 more when a day's machines stayed
