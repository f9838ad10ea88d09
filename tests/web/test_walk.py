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


def test_a_new_owner_s_walk_on_a_phone(tmp_path: Path) -> None:
    with demo(tmp_path) as ran:
        url = ran.said(r"web page: (http://\S+)").rstrip("/")
        with started() as browser, page_at(browser, url, PHONE) as page:
            walk = Walk(page)
            look_around(walk)
            log_in(walk, ran.said(r"one-time code: ([a-z0-9-]+)"))
            approve(walk)
        ran.child.send_signal(signal.SIGINT)
        assert ran.child.wait(240) == 0
        assert "Traceback" not in ran.log


def look_around(walk: Walk) -> None:
    walk.page.goto("/")
    walk.step("now", "a100-ask", "Watches", "Budgets", "Providers")
    assert serious_findings(walk.page) == []
    assert walk.page.get_by_role("link", name="Pause renting").count() == 0  # reading needs no login, changes do
    walk.page.goto("/market")
    walk.step("market", "/GPU-h")


def log_in(walk: Walk, code: str) -> None:
    page = walk.page
    page.goto("/login")
    walk.step("login", "One-time code")
    page.get_by_label("One-time code").fill(code)
    page.get_by_role("main").get_by_role("button", name="Log in").click()
    page.wait_for_url("**/")
    walk.step("logged-in", "a100-ask")


def approve(walk: Walk) -> None:
    """Confirm the quote of the demo, in the sheet; its machine then runs."""
    page = walk.page
    page.get_by_role("link", name=re.compile("^Review: approve")).first.click()
    walk.step("quote", "a100-ask")
    page.get_by_role("button", name="Approve").click()
    page.get_by_role("dialog").get_by_role("button", name="Rent it").click()
    page.get_by_text("See the machine").wait_for()
    walk.step("rented", "See the machine")
