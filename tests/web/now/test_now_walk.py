"""What an owner does from Now, in a real browser: answer on a phone, pause, and begin without a watch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpuwatch.emulator import Marketplace
from gpuwatch.settings import Settings, load
from tests import loopback_client
from tests.process.daemon_child import wait_for
from tests.web.chromium import PHONE, needs_browser, overflow, page_at, serious_findings
from tests.web.served import Served, serving_settings, settings_in

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.web.conftest import LiveDaemon

pytestmark = [needs_browser, pytest.mark.slow]
TALL_PHONE = (390, 844)
NEW = """
[web]
listen = "127.0.0.1:0"
[providers.vastai]
base_url = "{url}"
search_interval = "0s"
"""


def log_in(page: Page, code: str, to: str = "/") -> None:
    page.goto(f"/login?next={to}")
    page.get_by_label("One-time code").fill(code)
    page.get_by_role("main").get_by_role("button", name="Log in").click()
    page.wait_for_url(f"**{to}")


def waiting_id(live: LiveDaemon) -> str:
    """The open approval, once there is one."""

    def found() -> list[str]:
        return [one["ask_id"] for one in loopback_client.items(live.url, "approvals") if one["state"] == "open"]

    return wait_for(found)[0]


def test_a_quote_is_approved_with_a_thumb(live: LiveDaemon, browser: Browser) -> None:
    path = f"/approvals/{waiting_id(live)}"
    with page_at(browser, live.url, TALL_PHONE) as page:
        log_in(page, live.code())
        assert "waits for you" in page.get_by_role("heading", level=1).inner_text()
        page.get_by_role("link", name=re.compile(r"^Review: approve 1×\sH100")).click()
        page.wait_for_url(f"**{path}")
        last = wait_for(page.locator(".decide .facts dd").last.bounding_box)
        dock = wait_for(page.locator(".decide-dock").bounding_box)
        assert last["y"] + last["height"] <= dock["y"], "the decision is not on one screen"
        assert (overflow(page), serious_findings(page)) == (0, [])
        rented = len(live.market.ledger.creates)
        page.get_by_role("button", name="Approve").click()
        sheet = page.get_by_role("dialog")
        assert "Rent it for" in sheet.inner_text()
        assert page.evaluate("document.activeElement.textContent") == "Back"
        assert len(live.market.ledger.creates) == rented
        sheet.get_by_role("button", name="Rent it").click()
        page.get_by_text("See the machine").wait_for()
        assert "Rented 1× H100" in page.get_by_role("main").inner_text().replace("\N{NO-BREAK SPACE}", " ")
        assert len(live.market.ledger.creates) == rented + 1


def test_without_javascript_a_quote_is_denied_and_renting_paused(live: LiveDaemon, browser: Browser) -> None:
    live.market.publish(gpu="H100 SXM", count=1, usd_hour=1.1)
    path = f"/approvals/{waiting_id(live)}"
    with page_at(browser, live.url, PHONE, java_script_enabled=False) as page:
        log_in(page, live.code(), path)
        page.get_by_role("button", name="Deny").click()
        page.get_by_text("Denied. This offer is not asked again for").wait_for()
        assert page.get_by_role("button", name="Approve").count() == 0
        page.goto("/")
        page.get_by_role("link", name="Pause renting").click()
        page.get_by_role("main").get_by_role("button", name=re.compile("^Pause")).click()
        page.get_by_text("Renting is paused.").first.wait_for()
        page.get_by_role("button", name="Resume").first.click()
        page.get_by_text("Renting is resumed.").wait_for()


@pytest.fixture
def new(tmp_path: Path) -> Iterator[Served]:
    """The page of an owner without a watch."""
    with Marketplace(seed=3, size=10) as market:
        settings = settings_in(tmp_path, NEW.format(url=market.url))
        with serving_settings(settings, tmp_path) as web:
            yield web


def test_a_new_owner_s_first_watch_is_written(new: Served, browser: Browser) -> None:
    with page_at(browser, new.url, TALL_PHONE, java_script_enabled=False) as page:
        page.goto("/")
        assert page.get_by_role("button", name="Watch it").count() == 0  # reading needs no login, changes do
        log_in(page, new.codes[-1])
        assert overflow(page) == 0
        form = page.locator("form.preset", has_text="RTX 4090")
        assert float(form.get_by_label("Alert me under").input_value()) > 0  # public prices, without an own history
        form.get_by_label("Alert me under").fill("dear")
        form.get_by_role("button").click()
        assert "expected USD per GPU-hour" in page.get_by_role("main").inner_text()
        assert page.locator("[aria-invalid=true]").input_value() == "dear"
        page.locator("[aria-invalid=true]").fill("0.31")
        page.locator("form.preset", has_text="RTX 4090").get_by_role("button").click()
        page.get_by_text("Watch rtx-4090 is written to the settings file.").wait_for()
    assert new.reloads == [1]
    (watch,) = settings_again(new).watches
    assert (watch.name, float(watch.max_price_usd_gpu_hour), watch.action.value) == ("rtx-4090", 0.31, "alert")


def settings_again(web: Served) -> Settings:
    """What the file says now."""
    return load(env={"HOME": str(web.folder)}, cwd=web.folder)
