"""The page can be installed on a phone, as Chromium judges it, and nothing of it is kept by a service worker."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpuwatch.app.setup.sharing.share_links import SharedThing, make_link
from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from tests.storage.stored_answers import an_answer, an_offer
from tests.web.chromium import PHONE, needs_browser, page_at

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.web.served import Served

pytestmark = [needs_browser, pytest.mark.slow]


def test_the_page_can_be_installed_and_has_no_service_worker(web: Served, browser: Browser) -> None:
    with page_at(browser, web.url, PHONE) as page:
        page.goto("/login")
        devtools = page.context.new_cdp_session(page)
        devtools.send("Page.enable")
        manifest = devtools.send("Page.getAppManifest")
        findings = devtools.send("Page.getInstallabilityErrors")["installabilityErrors"]
        # a context of a test is a private window, where no page can be installed
        assert [one for one in findings if one["errorId"] != "in-incognito"] == []
        assert manifest["url"] == f"{web.url}/static/manifest.webmanifest"
        assert manifest["errors"] == []
        icons = json.loads(manifest["data"])["icons"]
        assert {icon["purpose"] for icon in icons} == {"any", "maskable"}
        for icon in icons:
            size = page.evaluate(
                "path => { const one = new Image(); one.src = path; return one.decode().then(() => one.naturalWidth) }",
                icon["src"],
            )
            assert icon["sizes"] in {"any", f"{size}x{size}"}, icon
        assert page.evaluate("navigator.serviceWorker.getRegistrations().then(found => found.length)") == 0


def test_a_shared_picture_is_shown_by_the_page_of_somebody_else(web: Served, browser: Browser, tmp_path: Path) -> None:
    now = real_now()
    with open_store(web.context.settings) as store:
        answer = an_answer(an_offer("m1", 1.75, observed_at=now), observed_at=now)
        SqlHistoryRecorder(store).record(answer, lane="sweep", gpu="H100 SXM", spot=False)
    link = make_link(web.context.settings, SharedThing.GPU, "H100 SXM", 3600.0, now, actor="a test")
    source = f"{web.url}{(link.picture_url or '')[(link.picture_url or '').index('/share/') :]}"
    elsewhere = tmp_path / "blog.html"  # of another origin
    elsewhere.write_text(f'<img src="{escape(source)}" alt="Price of H100">')
    with page_at(browser, web.url) as page:
        page.goto(elsewhere.as_uri())
        width = page.get_by_alt_text("Price of H100").evaluate("one => one.decode().then(() => one.naturalWidth)")
        assert width > 500
        assert page.context.cookies() == []
