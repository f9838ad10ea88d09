"""The page's own script: it shows news without losing what a person does, and asks in a sheet before money moves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from gpuwatch.app.watches.pauses import pause, resume
from tests.web.chromium import DESKTOP, needs_browser, page_at
from tests.web.served import Served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [needs_browser, pytest.mark.slow]


@contextmanager
def opened(browser: Browser, web: Served, path: str) -> Iterator[Page]:
    """A page that is connected: its footer says so."""
    with page_at(browser, web.url, DESKTOP) as page:
        page.goto(path)
        page.locator("#live", has_text="Live").wait_for()
        yield page


def paused(web: Served, why: str) -> None:
    pause(web.context.settings, None, 3600.0, why, actor="another page")


def test_news_arrive_and_what_a_person_does_stays(web: Served, browser: Browser) -> None:
    with opened(browser, web, "/market") as page:
        page.locator("#menu > summary").click()
        field = page.locator("main input[name=gpu]").first
        if not field.is_visible():
            page.locator("main details.filter > summary").first.click()
        field.fill("A10")
        paused(web, "the month is over")
        page.get_by_text("the month is over").wait_for()
        assert field.input_value() == "A10"
        assert field.evaluate("one => one === document.activeElement")
        resume(web.context.settings, None, actor="another page")
        page.get_by_text("the month is over").wait_for(state="detached")
        assert field.input_value() == "A10"


def test_a_part_that_was_not_there_comes_where_the_server_has_it(web: Served, browser: Browser) -> None:
    with opened(browser, web, "/") as page:
        order = "[...document.querySelectorAll('main [data-live]')].map((one) => one.dataset.live)"
        before = page.evaluate(order)
        assert len(before) > 3
        for key in ("watches", before[-1]):
            page.evaluate(f"document.querySelector('[data-live={key}]').remove()")
            paused(web, f"without {key}")
            page.get_by_text(f"without {key}").first.wait_for()
            assert page.evaluate(order)[-1] == before[-1]
            assert set(before) <= set(page.evaluate(order))
            resume(web.context.settings, None, actor="another page")


def test_a_lost_connection_is_said_and_ends_by_itself(web: Served, browser: Browser) -> None:
    context = browser.new_context(base_url=web.url)
    page = context.new_page()
    page.clock.install()
    page.goto("/settings")
    page.locator("#live", has_text="Live").wait_for()
    context.set_offline(True)
    page.clock.fast_forward(16_000)
    page.clock.run_for(12_000)
    page.locator("#lost").wait_for()
    assert "Not connected for" in page.locator("#lost").inner_text()
    assert "The figures are from" in page.locator("#lost").inner_text()
    context.set_offline(False)
    page.clock.run_for(16_000)
    page.locator("#lost").wait_for(state="hidden")
    context.close()


def test_a_line_is_copied(web: Served, browser: Browser) -> None:
    context = browser.new_context(base_url=web.url, permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto("/login")
    page.get_by_role("button", name="Copy").click()
    page.get_by_text("Copied").wait_for(state="attached")
    assert "journalctl" in page.evaluate("navigator.clipboard.readText()")
    context.close()


def test_a_page_without_live_parts_reads_only_its_frame(web: Served) -> None:
    whole = web.client.get("/settings", headers={"Accept": "text/html"}).text
    frame = web.client.get("/settings", headers={"Accept": "text/html", "X-Frame-Only": "yes"}).text
    assert "<h1>" in whole
    assert "<h1>" not in frame
    assert 'data-live="pills"' in frame
