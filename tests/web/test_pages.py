"""Every page in a real browser, on a desktop and on a phone: it shows its contents, and axe-core finds nothing."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest

from gpuwatch.web.page import nav
from tests import loopback_client
from tests.process.daemon_child import wait_for
from tests.web.chromium import DESKTOP, PHONE, needs_browser, overflow, page_at, serious_findings

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.web.conftest import LiveDaemon

pytestmark = [needs_browser, pytest.mark.slow]
FIRST_LOAD_MAX = 150_000  # bytes


def addresses(live: LiveDaemon) -> list[str]:
    """Return every existing page."""
    asked = wait_for(lambda: loopback_client.items(live.url, "approvals"))
    launches = loopback_client.items(live.url, "launches")
    found = [page.path for page in nav()]
    found += [f"/approvals/{asked[0]['ask_id']}", "/gpu/H100%20SXM", "/login"]
    return found + [f"/launches/{launches[0]['launch_id']}" for _ in launches[:1]]


def log_in(page: Page, live: LiveDaemon) -> None:
    page.goto("/login")
    page.get_by_label("One-time code").fill(live.code())
    page.get_by_role("main").get_by_role("button", name="Log in").click()
    page.wait_for_url("**/")


def reloaded_until(page: Page, text: str) -> None:
    def shown() -> bool:
        page.reload()
        return text in page.content()

    wait_for(shown, every_s=0.5)


def test_the_links_are_named_as_promised() -> None:
    names = ["Now", "Market", "Watches", "Launches", "Approvals", "Costs", "Plan", "Alerts", "Settings", "Log"]
    assert [page.name for page in nav()] == names


def test_a_quote_is_approved_on_a_phone_runs_and_is_stopped(live: LiveDaemon, browser: Browser) -> None:
    wait_for(lambda: loopback_client.items(live.url, "approvals"))
    with page_at(browser, live.url, PHONE) as page:
        log_in(page, live)
        page.get_by_role("link", name="Approve 1× H100 SXM").click()
        page.get_by_role("button", name="Approve").click()
        assert "Rent it for" in page.get_by_role("heading", level=1).inner_text()
        assert overflow(page) == 0
        assert live.market.ledger.creates == ()
        page.get_by_role("button", name="Approve").click()
        page.wait_for_url("**/approvals/*")
        assert "rented" in page.get_by_role("main").inner_text()
        assert len(live.market.ledger.creates) == 1
        page.get_by_role("link", name="Launches").first.click()
        page.get_by_role("row").get_by_role("link").first.click()
        reloaded_until(page, ">running<")
        page.get_by_role("button", name="Stop").click()
        page.get_by_role("button", name="Stop it").click()
        reloaded_until(page, ">ended<")
        page.goto("/alerts?kind=audit")
        assert "stopped" in page.get_by_role("main").inner_text()


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_every_page_can_be_used_by_everybody(live: LiveDaemon, browser: Browser, size: tuple[int, int]) -> None:
    """In the dark too: there the colours differ, and nothing else."""
    found = {}
    with page_at(browser, live.url, size, color_scheme="light") as page:
        for address in addresses(live):
            page.emulate_media(color_scheme="light")
            page.goto(address, wait_until="load")
            assert page.get_by_role("heading", level=1).count() == 1, address
            problems = serious_findings(page) + ([f"{overflow(page)} px too wide"] if overflow(page) else [])
            page.emulate_media(color_scheme="dark")
            problems += [f"dark: {finding}" for finding in serious_findings(page, "cat.color")]
            if problems:
                found[address] = problems
    assert found == {}


def test_in_the_dark_only_colours_differ() -> None:
    css = (files("gpuwatch") / "web/static/gpuwatch.css").read_text()
    (dark,) = re.findall(r"prefers-color-scheme: dark\) \{\s*:root \{(.*?)\}\s*\}", css, re.DOTALL)
    assert re.fullmatch(r"(\s*--[a-z-]+: (#[0-9a-f]{3,8}|rgb\([^)]*\));)+\s*", dark), dark
    assert css.count("prefers-color-scheme") == 1


def test_pages_are_read_without_javascript(live: LiveDaemon, browser: Browser) -> None:
    with page_at(browser, live.url, java_script_enabled=False) as page:
        for address in addresses(live):
            page.goto(address)
            assert page.get_by_role("main").inner_text().strip(), address


def test_the_first_load_is_small_and_from_here_alone(live: LiveDaemon, browser: Browser) -> None:
    for address in ("/", "/gpu/H100%20SXM"):
        sizes = loaded(browser, live.url, address)
        assert all(url.startswith(live.url) for url in sizes), sizes
        assert sum(sizes.values()) <= FIRST_LOAD_MAX, sizes


def loaded(browser: Browser, url: str, address: str) -> dict[str, int]:
    """Return the downloads of a first visit: address and bytes."""
    sizes: dict[str, int] = {}
    with page_at(browser, url) as page:
        page.on("response", lambda answer: sizes.update({answer.url: int(answer.headers.get("content-length", 0))}))
        page.goto(address, wait_until="load")
    return sizes


def test_a_page_shows_what_happens_without_a_reload(live: LiveDaemon, browser: Browser) -> None:
    with page_at(browser, live.url) as page, page_at(browser, live.url) as other:
        page.goto("/")
        log_in(other, live)
        other.get_by_role("button", name="Pause renting").click()
        other.get_by_text("Renting is paused.").wait_for()
        page.get_by_text("Paused:").first.wait_for()
        other.get_by_role("button", name="Resume renting").click()
        other.get_by_text("Renting is resumed.").wait_for()


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
                assert "it awaits your approval until" in page.get_by_role("main").inner_text()
                assert overflow(page) == 0
