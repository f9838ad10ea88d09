"""Makes a picture of every page of a live daemon with recorded prices: `python -m docs.pictures.pages OUT`.

Each page in 1280 and 390 pixels, light and dark, English and Russian. With `--designs FOLDER` also each page beside
the picture that its design has: NAME_WIDTH_SCHEME.png. `--after 200` first waits so long, so that the machine and the
job have measurements of some minutes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from tests.web.chromium import started
from tests.web.story import PLANNED, Story, story

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SIZES = {1280: 900, 390: 844}
SCHEMES = ("light", "dark")
LANGUAGES = ("en", "ru")
# the name of a page's picture, by the design, and its path in the story
_NAMES = {
    "/": "now", "/market": "market", "/watches": "watches", "/launches": "launches", "/approvals": "approvals",
    "/jobs": "jobs", "/costs": "money", "/plan": "plan-first", PLANNED: "plan", "/alerts": "alerts",
    "/settings": "settings", "/log": "log", "/login": "login", "/no/such-page": "error",
}  # fmt: skip
_PARTS = {
    "gpu": "gpu", "watches": "watch", "launches": "launch", "approvals": "approval", "jobs": "job",
}  # fmt: skip


def name_of(path: str) -> str:
    """Return the name of the picture of a page."""
    if path in _NAMES:
        return _NAMES[path]
    return "watch-edit" if path.endswith("/edit") else _PARTS[path.split("/")[1]]


def log_in(page: object, running: Story) -> None:
    """Log this browser in with the newest code."""
    page.goto("/login")  # type: ignore[attr-defined]
    page.locator("#secret").fill(running.codes[-1])  # type: ignore[attr-defined]
    page.locator("main form button").first.click()  # type: ignore[attr-defined]
    page.wait_for_url("**/")  # type: ignore[attr-defined]


def pictures(browser: Browser, running: Story, out: Path, language: str) -> Iterator[Path]:
    """Store the pictures of every page in one language."""
    context = browser.new_context(base_url=running.url, locale=language, timezone_id="Asia/Tokyo")
    page = context.new_page()
    log_in(page, running)
    for path in running.paths:
        page.goto(path)
        if path.endswith("/edit"):
            page.locator("#preview .pair").wait_for()
        for scheme in SCHEMES:
            page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
            for width, height in SIZES.items():
                page.set_viewport_size({"width": width, "height": height})
                whole = page.evaluate("document.documentElement.scrollHeight")
                if name_of(path) != "approval":  # which must fit the screen; elsewhere the bar at the foot moves down
                    page.set_viewport_size({"width": width, "height": max(height, whole)})
                page.wait_for_timeout(150)  # charts are drawn again
                suffix = "" if language == "en" else f"_{language}"
                stored = out / f"{name_of(path)}_{width}_{scheme}{suffix}.png"
                page.screenshot(path=stored)
                yield stored
    context.close()


def side_by_side(browser: Browser, out: Path, designs: Path) -> None:
    """Store SIDE_NAME.png: the design's picture at the left, the page's at the right."""
    page = browser.new_page()
    for stored in sorted(out.glob("*_*_*.png")):
        design = designs / stored.name
        if not design.is_file() or stored.name.startswith("side"):
            continue
        width = int(stored.stem.split("_")[1])
        page.set_viewport_size({"width": 2 * width + 48, "height": 900})
        frame = f'<figure style="margin:0 8px"><figcaption>{{}}</figcaption><img width="{width}" src="{{}}"></figure>'
        beside = out / "side.html"
        beside.write_text(
            '<body style="display:flex;align-items:start;font:14px sans-serif">'
            + frame.format("design", escape(design.resolve().as_uri()))
            + frame.format("page", escape(stored.resolve().as_uri()))
        )
        page.goto(beside.resolve().as_uri())
        page.screenshot(path=out / f"side_{stored.name}", full_page=True)
    page.close()


def main() -> None:
    """Make them all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("out", type=Path)
    parser.add_argument("--designs", type=Path)
    parser.add_argument("--language", choices=LANGUAGES, action="append")
    parser.add_argument("--after", type=float, default=0.0, metavar="SECONDS")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, story(Path(folder)) as running, started() as browser:
        time.sleep(given.after)
        for language in given.language or LANGUAGES:
            for stored in pictures(browser, running, given.out, language):
                sys.stdout.write(f"{stored}\n")
        if given.designs:
            side_by_side(browser, given.out, given.designs)


if __name__ == "__main__":
    main()
