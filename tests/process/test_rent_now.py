"""One offer, rented now: by the real command beside the real daemon, priced again, confirmed, and rented once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.process.daemon_child import Home, bargain, notify_by, wait_for, wait_for_searches
from tests.telegram_double import CHAT, TelegramDouble, telegram

pytestmark = pytest.mark.slow
QUICK = Delays(created_s=0.1, ssh_s=0.1, loading_s=0.1, running_s=0.3)
OWNER = "5001"
FOR_AN_HOUR = ("--provider", "vastai", "--for", "1h", "--yes", "--json")


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=3, key="demo-key", size=0, odd_rows=False, delays=QUICK) as opened:
        yield opened


def rent(home: Home, offer_id: int, *more: str, **env: str) -> tuple[int, dict[str, Any]]:
    ran = home.run("rent", str(offer_id), *FOR_AN_HOUR, *more, **env)
    return ran.returncode, json.loads(ran.stdout) if ran.stdout else {"stderr": ran.stderr}


def chat_of(double: TelegramDouble) -> str:
    """The settings of the owner's private chat."""
    return notify_by(double).replace(CHAT, OWNER)


def creates(market: Marketplace) -> int:
    return sum(seen.method == "PUT" and seen.path.startswith("/api/v0/asks/") for seen in tuple(market.requests))


def test_an_offer_is_rented_once_and_followed_to_its_end(tmp_path: Path, market: Marketplace) -> None:
    home = Home(tmp_path, market.url, action="alert")
    home.env["GPUWATCH_TEST_PACE"] = "60"
    offer, dearer = bargain(market, 3.0), bargain(market, 3.5)
    with home.daemon():
        wait_for_searches(market)
        with ThreadPoolExecutor(2) as pool:  # pressed twice
            answers = list(pool.map(lambda _: rent(home, offer, "--image", "my/image"), range(2)))
        assert 0 in {code for code, _ in answers}, answers
        assert creates(market) == 1
        running = wait_for(lambda: next((one for one in home.launches() if one["state"] == "running"), None))
        assert (running["watch"], running["offer_id"]) == ("rent:now", str(offer))
        assert running["started_by"].startswith("command line (")
        (instance,) = market.instances()
        assert instance["image_uuid"] == "my/image"
        kinds = json.loads(home.run("alerts", "--json").stdout)
        assert "rent" in {one["kind"] for one in kinds}

        code, gone = rent(home, offer)
        assert code == 1
        assert (gone["outcome"], gone["nearest"]["offer_id"]) == ("refused", str(dearer)), gone
        assert f"is offer {dearer} at $4.20 an hour" in gone["text"]

        over = wait_for(lambda: next((one for one in home.launches() if one["state"] == "ended"), None))
        assert over["end_reason"].startswith("max_runtime is over")
        assert not market.instances()


def test_the_best_offer_of_an_alert_is_rented_by_three_presses(tmp_path: Path, market: Marketplace) -> None:
    offer = bargain(market)
    with telegram() as double:
        double.chats = {OWNER}
        home = Home(
            tmp_path, market.url, action="alert", repeat_every="6h", extra=notify_by(double).replace(CHAT, OWNER)
        )
        with home.daemon():
            alert = wait_for(lambda: next((one for one in tuple(double.shown) if "Rent…" in one.labels), None))
            double.press(alert, "Rent…", int(OWNER))
            asked = wait_for(lambda: "4h" in (now := double.now(alert)).labels and now)
            double.press(asked, "4h", int(OWNER))
            quote = wait_for(lambda: next((one for one in tuple(double.shown) if "Rent it" in one.labels), None))
            assert "H100 SXM × 1 at vastai for $1.80 an hour or less?" in quote.text
            assert "It ends after 4h and costs $" in quote.text
            assert market.ledger.creates == ()
            for _ in range(2):  # pressed twice
                double.press(quote, "Rent it", int(OWNER))
            launch = wait_for(lambda: next((one for one in home.launches() if one["state"] == "running"), None))
    assert (launch["offer_id"], len(market.ledger.creates)) == (str(offer), 1)
    assert launch["started_by"] == f"Telegram (user {OWNER})"
