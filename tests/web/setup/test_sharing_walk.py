"""Sharing and the alerts in a real browser: by clicks alone, also without JavaScript, on a phone and on a desktop."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from gpuwatch.app.alerts.alerts import silence
from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.domain.alerts.alert import Alert, AlertKind, outbox_alert
from gpuwatch.storage.alerts.outbox import Outbox
from tests.web.chromium import DESKTOP, PHONE, needs_browser, overflow, page_at, serious_findings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.web.served import Served

pytestmark = [needs_browser, pytest.mark.slow]


def put_alerts(web: Served) -> None:
    with open_store(web.context.settings) as store:
        for number in range(3):
            text = f"H100 SXM at $1.{number}8/GPU-h, 22 % under the limit, at a place with a rather long name"
            alert = Alert(
                alert_id=f"a{number}",
                kind=AlertKind.MATCH,
                created_at=real_now(),
                headline=text,
                watch="cheap",
                facts=(("GPU", "1× H100 SXM"),),
            )
            Outbox(store).enqueue(outbox_alert(alert))
    silence(web.context.settings, "cheap", 3600.0, actor="a test")


@pytest.mark.parametrize("has_script", [True, False], ids=["script", "no script"])
def test_a_watch_is_shared_and_a_silence_ends_by_clicks(web: Served, browser: Browser, has_script: bool) -> None:
    put_alerts(web)
    with page_at(browser, web.url, PHONE, java_script_enabled=has_script) as page:
        page.goto("/login?next=/share%3Fwatch%3Dcheap")
        page.get_by_role("textbox").first.fill(web.codes[-1])
        page.get_by_role("main").get_by_role("button", name="Log in").click()
        page.goto("/share?watch=cheap")
        page.get_by_role("button", name="Valid for 1 day").click()
        address = page.get_by_label("Address", exact=True).input_value()
        assert re.search(r"/share/watch\?name=cheap&until=\d+&key=", address)
        assert overflow(page) == 0
        shown = web.client.get(f"/share/{address.partition('/share/')[2]}")
        assert shown.status_code == 200
        page.goto("/alerts")
        page.get_by_text("and 2 more like this").click()
        assert page.get_by_text("$1.08/GPU-h").first.is_visible()
        page.get_by_role("button", name="End").click()
        page.get_by_text("Alerts of cheap are sent again.").wait_for()
        assert overflow(page) == 0


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_pages_can_be_used_by_everybody(web: Served, browser: Browser, size: tuple[int, int]) -> None:
    put_alerts(web)
    found = {}
    with page_at(browser, web.url, size) as page:
        for path in ("/alerts", "/alerts?kind=match", "/settings", "/settings?q=key", "/log", "/share?watch=cheap"):
            page.goto(path)
            assert page.get_by_role("heading", level=1).count() == 1, path
            problems = serious_findings(page) + ([f"{overflow(page)} px too wide"] if overflow(page) else [])
            if problems:
                found[path] = problems
    assert found == {}
