"""What an owner does on the pages of a daemon, in a real browser. Every page at every width: test_every_page.py."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest

from gpuwatch.web.page_frame import links
from tests import loopback_client
from tests.process.daemon_child import wait_for
from tests.web.chromium import DESKTOP, PHONE, needs_browser, overflow, page_at

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.web.conftest import LiveDaemon

pytestmark = [needs_browser, pytest.mark.slow]


def log_in(page: Page, live: LiveDaemon) -> None:
    page.goto("/login")
    page.get_by_label("One-time code").fill(live.code())
    page.get_by_role("main").get_by_role("button", name="Log in").click()
    page.wait_for_url("**/")


def test_the_links_are_named_as_promised() -> None:
    names = ["Now", "Market", "Watches", "Launches", "Approvals", "Costs", "Plan", "Alerts", "Settings", "Log"]
    found = [link.name for link in links()]
    assert [name for name in names if name not in found] == []


def test_a_quote_is_approved_on_a_phone_runs_and_is_stopped(live: LiveDaemon, browser: Browser) -> None:
    wait_for(lambda: loopback_client.items(live.url, "approvals"))
    with page_at(browser, live.url, PHONE) as page:
        log_in(page, live)
        page.get_by_role("link", name="Review").first.click()
        page.get_by_role("button", name="Approve").click()
        assert "Rent it for" in page.get_by_role("dialog").get_by_role("heading").inner_text()
        assert overflow(page) == 0
        assert live.market.ledger.creates == ()
        with page.expect_navigation():
            page.get_by_role("button", name="Rent it").click()
        wait_for(lambda: live.market.ledger.creates)
        assert len(live.market.ledger.creates) == 1
        (launch,) = wait_for(lambda: loopback_client.items(live.url, "launches"))
        page.goto(f"/launches/{launch['launch_id']}")
        page.get_by_text("Running", exact=True).first.wait_for()
        page.get_by_role("button", name="Stop…").click()
        page.get_by_role("button", name="Stop it").click()
        page.get_by_text("Ended", exact=True).first.wait_for()
        page.goto("/alerts?kind=audit")
        assert "stopped" in page.get_by_role("main").inner_text()


def test_in_the_dark_only_colours_differ() -> None:
    css = (files("gpuwatch") / "web/static/gpuwatch.css").read_text()
    (dark,) = re.findall(r"prefers-color-scheme: dark\) \{\s*:root \{(.*?)\}\s*\}", css, re.DOTALL)
    assert re.fullmatch(r"(\s*--[a-z-]+: (#[0-9a-f]{3,8}|rgb\([^)]*\));)+\s*", dark), dark
    assert css.count("prefers-color-scheme") == 1


def test_the_chart_is_drawn(live: LiveDaemon, browser: Browser) -> None:
    with page_at(browser, live.url) as page:
        page.goto("/gpu/H100%20SXM?spot=any")
        page.locator(".chart canvas").wait_for()


def test_a_matching_watch_says_on_a_phone_why_it_does_not_rent(live: LiveDaemon, browser: Browser) -> None:
    wait_for(lambda: loopback_client.items(live.url, "approvals"))
    (watch,) = loopback_client.items(live.url, "watches")
    assert watch["blocked_by"] == "approval"
    for size in (PHONE, DESKTOP):
        for path in ("/", "/watches"):
            with page_at(browser, live.url, size) as page:
                page.goto(path)
                assert "the offer waits until" in page.get_by_role("main").inner_text()
                assert overflow(page) == 0
