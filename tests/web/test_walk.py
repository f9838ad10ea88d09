"""The first steps of a new owner: `gpuwatch demo --web` in a real browser on a phone, from the first page to costs.

Every step is asserted. With `GPUWATCH_WALK=FOLDER` each step stores a picture there:

    GPUWATCH_WALK=/tmp/walk pytest tests/web/test_walk.py
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.process.daemon_child import ROOT, wait_for
from tests.web.chromium import PHONE, needs_browser, overflow, page_at, serious_findings, started

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [needs_browser, pytest.mark.slow]


class DemoRun:
    """The demo as a process, and what it printed."""

    def __init__(self, folder: Path) -> None:
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        self._log = folder / "out.txt"
        command = [sys.executable, "-m", "gpuwatch", "demo", "--web"]
        with self._log.open("w") as out:
            self.child = subprocess.Popen(command, cwd=folder, env=env, stdout=out, stderr=out)

    def said(self, pattern: str) -> str:
        """Return the newest output of this form."""
        found = wait_for(lambda: re.findall(pattern, self._log.read_text()))
        return str(found[-1])

    @property
    def log(self) -> str:
        return self._log.read_text()


@contextmanager
def demo(folder: Path) -> Iterator[DemoRun]:
    ran = DemoRun(folder)
    try:
        yield ran
    finally:
        ran.child.kill()
        ran.child.wait()


class Walk:
    """Steps on one page: each fits the phone, and its heading is readable."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._number = 0

    def step(self, name: str, *texts: str) -> None:
        """Check that the page shows these texts, and is no wider than the phone."""
        self._number += 1
        main = self.page.get_by_role("main")
        for text in texts:
            main.get_by_text(text).first.wait_for()
        assert overflow(self.page) == 0, name
        if folder := os.environ.get("GPUWATCH_WALK"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=f"{folder}/{self._number:02d}-{name}.png", full_page=True)

    def go(self, name: str) -> None:
        """Follow the page's own link."""
        self.page.get_by_role("navigation").get_by_role("link", name=name, exact=True).click()
        self.page.get_by_role("heading", level=1, name=name).wait_for()

    def reload_until(self, text: str) -> None:
        def shown() -> bool:
            self.page.reload()
            return text in self.page.get_by_role("main").inner_text()

        wait_for(shown, every_s=0.5)


def test_a_new_owner_s_walk_on_a_phone(tmp_path: Path) -> None:
    with demo(tmp_path) as ran:
        url = ran.said(r"web page: (http://\S+)").rstrip("/")
        with started() as browser, page_at(browser, url, PHONE) as page:
            walk = Walk(page)
            look_around(walk)
            log_in(walk, ran.said(r"one-time code: ([a-z0-9-]+)"))
            launch_id = approve(walk)
            stop(walk, launch_id)
            change_a_watch(walk)
            read_what_happened(walk, launch_id)
        ran.child.send_signal(signal.SIGINT)
        assert ran.child.wait(60) == 0
        assert "Traceback" not in ran.log


def look_around(walk: Walk) -> None:
    walk.page.goto("/")
    walk.step("now", "Awaiting you", "a100-ask", "Money", "Providers")
    assert serious_findings(walk.page) == []
    assert walk.page.get_by_role("button", name="Pause renting").count() == 0  # reading needs no login, changes do
    walk.go("Market")
    walk.step("market", "$/GPU-h")


def log_in(walk: Walk, code: str) -> None:
    page = walk.page
    page.goto("/login")
    walk.step("login", "One-time code")
    page.get_by_label("One-time code").fill(code)
    page.get_by_role("main").get_by_role("button", name="Log in").click()
    page.wait_for_url("**/")
    walk.step("logged-in", "Awaiting you")


def approve(walk: Walk) -> str:
    """Confirm the alert's quote; return its launch once it runs."""
    page = walk.page
    page.get_by_role("link", name="Approve").first.click()
    walk.step("quote", "a100-ask")
    page.get_by_role("button", name="Approve").click()
    assert "Rent it for" in page.get_by_role("heading", level=1).inner_text()
    walk.step("are-you-sure", "Rent it for")
    page.get_by_role("button", name="Approve").click()
    page.wait_for_url("**/approvals/*")
    walk.step("rented", "rented")
    found = re.search(r"launch ([a-z2-7]{12})", page.get_by_role("main").inner_text())
    assert found is not None
    page.goto(f"/launches/{found[1]}")
    walk.reload_until("running")
    walk.step("running", "Cost so far", "Latest end")
    return found[1]


def stop(walk: Walk, launch_id: str) -> None:
    page = walk.page
    walk.go("Launches")
    walk.step("launches", launch_id)
    page.get_by_role("link", name=launch_id).first.click()
    page.get_by_role("button", name="Stop").click()
    walk.step("stop-it", "Stop it")
    page.get_by_role("button", name="Stop it").click()
    page.wait_for_url(f"**/launches/{launch_id}")  # a reload before that would cancel the request
    walk.reload_until("ended")
    walk.step("ended", "ended")


def change_a_watch(walk: Walk) -> None:
    page = walk.page
    walk.go("Watches")
    walk.step("watches", "a100-ask")
    page.get_by_role("link", name="a100-ask").click()
    limit = page.get_by_label("max_price", exact=False).first
    old = limit.input_value()
    new = f"{float(old) / 2:.2f}"
    limit.fill(new)
    page.get_by_role("button", name="Preview on the market").click()
    walk.step("preview", "Changes to the file", f"+max_price = {new}", "On sale now")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("button", name=re.compile("Save|Yes")).first.wait_for()
    walk.step("save-it", new)
    page.get_by_role("button", name=re.compile("Save|Yes")).first.click()
    page.get_by_role("heading", level=1, name="Watches").wait_for()
    walk.reload_until(new)
    walk.step("saved", new)


def read_what_happened(walk: Walk, launch_id: str) -> None:
    walk.go("Costs")
    walk.step("costs", "a100-ask")
    walk.page.goto("/alerts?kind=audit")
    walk.step("audit", "stopped", launch_id, "a100-ask")
