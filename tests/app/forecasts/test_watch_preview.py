"""A changed watch is tested on the market and on the history before its settings are saved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.app.forecasts.watch_preview import preview_backtest, preview_market
from gpuwatch.app.watches.edit_watch import draft_watch
from gpuwatch.emulator import Marketplace

TEXT = """
database_url = "sqlite:///{folder}/gpuwatch.db"

[providers.vastai]
base_url = "{url}"
search_interval = "0s"

[[watch]]
name = "cheap"
gpu = ["H100"]
max_price = 0.10
"""


@pytest.fixture
def config(tmp_path: Path, market: Marketplace) -> str:
    file = tmp_path / "gpuwatch.toml"
    file.write_text(TEXT.format(folder=tmp_path, url=market.url))
    return str(file)


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=3, size=10) as opened:
        opened.publish(gpu="H100 SXM", count=1, usd_hour=2.00)
        yield opened


def test_the_market_is_asked_with_the_changed_limit(config: str) -> None:
    assert preview_market(draft_watch(config, "cheap", {})).matches == []
    found = preview_market(draft_watch(config, "cheap", {"max_price": "2.40"}))
    assert min(match.price_microusd_gpu_hour for match in found.matches) == 2_400_000
    assert [part.report.ok for part in found.providers] == [True]


def test_a_new_watch_is_found_by_its_name(config: str) -> None:
    draft = draft_watch(config, None, {"name": "other", "gpu": "H100", "max_price": "9"})
    assert preview_market(draft).matches


def test_without_a_history_the_backtest_says_so(config: str) -> None:
    (line,) = preview_backtest(draft_watch(config, "cheap", {}), 14)
    assert "gpuwatch" in line
