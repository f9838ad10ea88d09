"""An offer of the market's page is rented: over the API, by a form without JavaScript, and in a browser's dialog."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.app.launches.launches import all_launches
from gpuwatch.bootstrap import real_now
from gpuwatch.emulator import Marketplace
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import open_database
from tests.app.launches.test_rent import RENTS
from tests.storage.stored_answers import an_answer, an_offer
from tests.web.chromium import PHONE, needs_browser, overflow, page_at, serious_findings, started
from tests.web.launches.test_launch_walk import log_in
from tests.web.served import Served, page, serving_settings, settings_in


class Shop:
    """A marketplace, and the page of a gpuwatch that may rent there and has recorded an offer of it."""

    def __init__(self, market: Marketplace, web: Served) -> None:
        self.market, self.web = market, web
        self.offer = str(market.publish(gpu="H100 SXM", count=1, usd_hour=2.0))
        store = open_database(web.context.settings.database_url)
        listed = an_offer("60001", 2.0, offer_id=self.offer, gpu="H100 SXM", gpu_family="H100", gpu_count=1)
        SqlHistoryRecorder(store).record(an_answer(listed, observed_at=real_now()), lane="sweep")
        store.close()

    @property
    def creates(self) -> int:
        return len(self.market.ledger.creates)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with Marketplace(seed=3, key="demo-key", size=0, odd_rows=False) as market:
        settings = settings_in(tmp_path, f'{RENTS.format(url=market.url)}[web]\nlisten = "127.0.0.1:0"\n')
        with serving_settings(settings, tmp_path) as web:
            yield Shop(market, web)


def sent(shop: Shop, path: str, status: int = 200, **body: Any) -> dict[str, Any]:
    answer = shop.web.client.post(f"/api/v1/{path}", json=body)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_program_prices_an_offer_and_rents_it_once(shop: Shop) -> None:
    shop.web.client.headers["X-CSRF-Token"] = shop.web.log_in()
    wanted = {"provider": "vastai", "offer": shop.offer, "for": "4h", "image": "my/image"}
    quote = sent(shop, "rent", **wanted)
    assert quote["most_usd"] >= 4 * quote["offer"]["price_usd_hour"]
    assert (quote["dry_run"], quote["daemon_runs"], quote["watch"]) == (False, False, "rent:now")
    assert sent(shop, "rent", **wanted)["ask_id"] == quote["ask_id"]
    first, again = (sent(shop, f"approvals/{quote['ask_id']}/approve") for _ in range(2))
    assert (first["changed"], again["changed"], shop.creates) == (True, False, 1)
    (launch,) = shop.web.client.get("/api/v1/launches").json()["items"]
    assert (launch["launch_id"], launch["started_by"][:5]) == (quote["ask_id"], "API (")
    gone = sent(shop, "rent", 409, **wanted)
    assert gone["nearest"] is None
    sent(shop, "rent", 422, provider="vastai", offer=shop.offer)
    sent(shop, "rent", 409, **(wanted | {"provider": "nowhere"}))


def test_a_form_without_a_script_asks_once_and_rents(shop: Shop) -> None:
    web = shop.web
    assert "/rent?" not in page(web, "/market?view=offers"), "nobody is logged in"
    token = web.log_in()
    (path,) = set(re.findall(r'href="(/rent\?[^"]+)"', page(web, "/market?view=offers")))
    assert "Rent 1× H100 SXM?" in page(web, path)
    form = {"csrf_token": token, "provider": "vastai", "offer": shop.offer, "by": "4"}
    asked = web.client.post("/rent", data=form).text
    assert "Rent it for $2.40/h or less?" in asked.replace("\N{NO-BREAK SPACE}", " ")
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', asked))
    assert shop.creates == 0
    for _ in range(2):  # pressed twice
        answer = web.client.post("/rent", data=fields, follow_redirects=False)
        assert answer.headers["location"] == f"/launches/{fields['ask']}"
    assert shop.creates == 1
    text = page(web, f"/launches/{fields['ask']}")
    assert "rented by you" in text
    assert "web page (" in text
    wrong = web.client.post("/rent", data=form | {"by": "other", "other": "x"})
    assert "Write a number of hours" in wrong.text


@needs_browser
@pytest.mark.slow
def test_in_a_browser_it_is_one_dialog(shop: Shop) -> None:
    with started() as browser, page_at(browser, shop.web.url, PHONE) as shown:
        log_in(shown, shop.web)
        shown.goto("/market?view=offers")
        assert (overflow(shown), serious_findings(shown)) == (0, [])
        shown.get_by_role("link", name="Rent… 1× H100 SXM").click()
        sheet = shown.get_by_role("dialog")
        sheet.get_by_role("button", name="Check the price…").click()
        sheet.get_by_text("Rent it for").wait_for()
        assert overflow(shown) == 0
        sheet.get_by_role("button", name="Rent it").click()
        shown.wait_for_url("**/launches/*")
        assert shop.creates == 1
        (launch,) = all_launches(shop.web.context.settings)
        assert launch.started_by is not None
