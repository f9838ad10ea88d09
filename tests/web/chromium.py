"""Debian's Chromium through Playwright, like a person's browser; without one these tests are skipped with a message."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser import browser as chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

DESKTOP, PHONE = (1280, 900), (360, 780)
_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
# selectors of elements take half the time: only what is broken is named
_BROKEN = """async options => {
  const first = await axe.run({ ...options, selectors: false });
  return first.violations.length ? (await axe.run(options)).violations : [];
}"""
_COUNTED = {"moderate", "serious", "critical"}
needs_browser = pytest.mark.skipif(chromium() is None, reason="there is no Chromium: apt install chromium")


@contextmanager
def started() -> Iterator[Browser]:
    """A headless browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium(), args=list(_FLAGS), env=dict(os.environ))
        try:
            yield found
        finally:
            found.close()


@contextmanager
def page_at(browser: Browser, url: str, size: tuple[int, int] = DESKTOP, **wanted: Any) -> Iterator[Page]:
    """An empty page whose addresses begin with `url`; console errors fail the test.

    Args:
        wanted: options of the browser's context: `color_scheme="dark"`, `java_script_enabled=False`.
    """
    context = browser.new_context(base_url=url, viewport={"width": size[0], "height": size[1]}, **wanted)
    context.set_default_timeout(60_000)
    page, errors = context.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
    try:
        yield page
    finally:
        context.close()
    assert not errors, errors


def serious_findings(page: Page, *rules: str) -> list[str]:
    """Return axe-core's findings from moderate on: rule, and the elements that break it.

    Args:
        rules: the rules to check, or their tags; none: all rules.
    """
    from axe_playwright_python.base import AXE_FILE_PATH

    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_FILE_PATH.read_text(encoding="utf-8"))
    wanted = {"resultTypes": ["violations"], "preload": False} | ({"runOnly": list(rules)} if rules else {})
    found = page.evaluate(_BROKEN, wanted)
    return [
        f"{one['id']}: {', '.join(str(node['target']) for node in one['nodes'])}"
        for one in found
        if one["impact"] in _COUNTED
    ]


def overflow(page: Page) -> int:
    """Return by how many CSS pixels the page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
