"""A rented machine on a phone, in a real browser: extended, stopped, a held one resolved; also without JavaScript."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpuwatch.app.launches.launches import all_launches
from gpuwatch.domain.launches.launch import COMMAND_PLACE, LaunchState
from tests.process.daemon_child import wait_for
from tests.web.chromium import PHONE, needs_browser, overflow, page_at, serious_findings, started
from tests.web.launches.test_launch_pages import ID, RENTS, stored
from tests.web.served import Served, served

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [needs_browser, pytest.mark.slow]


def log_in(page: Page, web: Served) -> None:
    page.goto("/login")
    page.get_by_label("One-time code").fill(web.codes[-1])
    page.get_by_role("main").get_by_role("button", name="Log in").click()
    page.wait_for_url(lambda url: "/login" not in url)


def state(web: Served) -> LaunchState:
    return all_launches(web.context.settings)[0].state


def test_a_machine_is_extended_and_stopped_from_a_phone(tmp_path: Path) -> None:
    with served(tmp_path, more=RENTS) as web, started() as browser, page_at(browser, web.url, PHONE) as page:
        settings = web.context.settings
        stored(settings)
        log_in(page, web)
        page.goto("/launches")
        assert (overflow(page), serious_findings(page)) == (0, [])
        page.get_by_role("button", name="Extend… 1× H100 SXM").click()
        sheet = page.get_by_role("dialog")
        sheet.get_by_text("+2").click()
        assert overflow(page) == 0
        sheet.get_by_role("button", name="Extend it").click()
        page.get_by_role("main").get_by_text("more.").wait_for()
        assert all_launches(settings)[0].max_runtime_s == 12 * 3600
        assert (overflow(page), serious_findings(page)) == (0, [])
        page.get_by_role("button", name="Stop… 1× H100 SXM").click()
        sheet.get_by_text("Stop 1× H100 SXM at vast.ai?").wait_for()
        page.keyboard.press("Enter")  # the focus is on Back
        wait_for(lambda: page.get_by_role("dialog").count() == 0)
        assert state(web) is LaunchState.RUNNING
        page.get_by_role("button", name="Stop… 1× H100 SXM").click()
        sheet.get_by_role("button", name="Stop it").click()
        page.get_by_role("main").get_by_text("It is being ended; this page").wait_for()
        assert state(web) is LaunchState.STOPPING


def test_without_javascript_a_held_one_is_resolved(tmp_path: Path) -> None:
    with (
        served(tmp_path, more=RENTS) as web,
        started() as browser,
        page_at(browser, web.url, PHONE, java_script_enabled=False) as page,
    ):
        stored(web.context.settings, state=LaunchState.HELD, provider=COMMAND_PLACE)
        log_in(page, web)
        page.goto(f"/launches/{ID}")
        page.get_by_role("button", name="It does not exist…").click()
        page.get_by_role("button", name="It does not exist").click()
        page.get_by_text("The launch is closed: nothing was made.").wait_for()
        assert state(web) is LaunchState.FAILED
