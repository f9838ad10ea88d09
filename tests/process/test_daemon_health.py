"""What the owner learns from the log alone when gpuwatch sees nothing: the real daemon, with and without a market."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.process.daemon_child import Home, bargain, terminate, wait_for

pytestmark = pytest.mark.slow
DEAD = "http://127.0.0.1:1"


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=5, key="demo-key", size=40, delays=Delays(running_s=0.5)) as opened:
        yield opened


def lines(home: Home, *levels: str) -> list[dict[str, Any]]:
    """The lines of the log so far; one that is still being written is left out."""
    log = home.folder / "log.txt"
    if not log.exists():
        return []
    records = [json.loads(line) for line in log.read_text().split("\n")[:-1] if line.startswith("{")]
    return [record for record in records if not levels or record["level"] in levels]


def messages(home: Home, *levels: str) -> list[str]:
    return [record["message"] for record in lines(home, *levels)]


def test_a_start_without_a_watch_and_without_a_channel_says_so(market: Marketplace, tmp_path: Path) -> None:
    home = Home(tmp_path, market.url)
    (tmp_path / "gpuwatch.toml").write_text(f'[providers.vastai]\nbase_url = "{market.url}"\n')
    with home.daemon() as child:
        wait_for(lambda: "watching" in messages(home))
        assert terminate(child)[0] == 0
    no_watch = [text for text in messages(home, "warning") if "there is no [[watch]]" in text]
    no_channel = [text for text in messages(home, "warning") if "no channel is configured" in text]
    assert (len(no_watch), len(no_channel)) == (1, 1)
    assert str(tmp_path / "gpuwatch.toml") in no_watch[0]
    assert "gpuwatch notify" in no_channel[0]


def test_a_start_with_both_warns_of_neither(market: Marketplace, tmp_path: Path) -> None:
    channel = '[notify.telegram]\nbot_token = "123456:abcdefghijklmnopqrstuvwxyz"\nchat_id = "1"\nbase_url = "' + DEAD
    home = Home(tmp_path, market.url, action="alert", extra=f'{channel}"\n')
    with home.daemon() as child:
        wait_for(lambda: "watching" in messages(home))
        assert terminate(child)[0] == 0
    assert not any("[[watch]]" in text or "no channel" in text for text in messages(home, "warning"))


def test_without_a_channel_the_log_has_each_alert_once_and_whole(market: Marketplace, tmp_path: Path) -> None:
    home = Home(tmp_path, market.url, action="alert")
    bargain(market)
    with home.daemon() as child:
        wait_for(lambda: [record for record in lines(home, "info") if record.get("kind") == "match"])
        assert terminate(child)[0] == 0
    with home.daemon() as child:
        wait_for(lambda: messages(home).count("watching") == 2)
        assert terminate(child)[0] == 0
    stored = json.loads(home.run("alerts", "--kind", "match", "--json").stdout)
    logged = [record for record in lines(home) if record.get("kind") == "match"]
    assert sorted(record["alert_id"] for record in logged) == sorted(event["alert_id"] for event in stored)
    first, text = logged[0], "\n".join(logged[0]["details"])
    assert first["message"] == stored[0]["headline"]
    assert all(value in text for value in stored[0]["facts"].values())
    assert stored[0]["delivered"] == {}
    assert "gpuwatch check" in text
