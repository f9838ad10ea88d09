"""Ten tasks of an owner, done in a browser against a live daemon: `python -m docs.pictures.owner_tasks`.

Each begins on Now, logged in. A tap is a click on something by its name, as a screen reader says it; seconds are those
of the browser and the server, without a person's reading. The answer is what the page says in the end.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from docs.pictures.pages import SIZES, log_in
from tests.web.chromium import started
from tests.web.story import Story, story

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PHONE, DESKTOP = 390, 1280


class Hand:
    """Taps and types, and counts both."""

    def __init__(self, page: Page, running: Story) -> None:
        self.page, self.running = page, running
        self.taps = self.typed = 0

    def tap(self, role: str, name: str | re.Pattern[str]) -> None:
        """Click on the first visible thing of this role and name."""
        found = self.page.get_by_role(role, name=name, exact=isinstance(name, str))  # type: ignore[arg-type]
        found.filter(visible=True).first.click()
        self.taps += 1

    def menu(self, name: str) -> None:
        """Open a page of the menu."""
        self.page.locator("#menu > summary").click()
        self.taps += 1
        self.tap("link", name)

    def type(self, label: str, text: str) -> None:
        """Fill a field."""
        self.page.get_by_label(label).first.fill(text)
        self.typed += 1

    def heading(self) -> str:
        """Return the H1."""
        return self.page.get_by_role("main").get_by_role("heading", level=1).first.inner_text()

    def answer(self) -> str:
        """Return the H1 and the sentence below it."""
        sentence = self.page.locator("main .answer").filter(visible=True).first.inner_text()
        return f"{self.heading()}. {sentence}"

    def banner(self) -> str:
        """Return the newest message."""
        return self.page.locator("main .banner, dialog .banner").filter(visible=True).first.inner_text()


class Task(NamedTuple):
    """A question of the owner, on a window of this width."""

    question: str
    width: int
    do: Callable[[Hand], str]


def is_it_cheap(hand: Hand) -> str:
    hand.tap("link", "Market")
    hand.tap("link", re.compile("H100 SXM"))
    return hand.answer()


def why_not_rented(hand: Hand) -> str:
    hand.tap("link", "h100-night")
    return hand.answer()


def approve(hand: Hand) -> str:
    hand.tap("link", re.compile("Review"))
    hand.tap("button", re.compile("^Approve"))
    hand.tap("button", "Rent it")
    hand.page.wait_for_url("**/approvals/*")
    return hand.banner()


def extend(hand: Hand) -> str:
    hand.tap("button", re.compile("^Extend….*(RTX 4090|H100)"))
    hand.tap("button", "Extend it")
    hand.page.wait_for_url("**/launches/*")
    return hand.banner()


def stop(hand: Hand) -> str:
    hand.tap("button", re.compile("^Stop….*RTX 4090"))
    hand.tap("button", "Stop it")
    hand.page.wait_for_url("**/launches/*")
    return hand.banner()


def month(hand: Hand) -> str:
    hand.menu("Costs")
    return hand.answer()


def job(hand: Hand) -> str:
    hand.tap("link", "Jobs")
    hand.tap("link", re.compile("llama-ft"))
    return hand.answer()


def pause(hand: Hand) -> str:
    hand.tap("link", re.compile("Pause renting"))
    hand.tap("button", "Pause")
    hand.page.wait_for_url("**/")
    return hand.banner()


def lower_limit(hand: Hand) -> str:
    hand.tap("link", re.compile("change the limit of h100-night"))
    hand.type("Limit", "1.60")
    hand.tap("button", re.compile("^Save…"))
    hand.tap("button", "Save it")
    hand.page.wait_for_url("**/watches**")
    return hand.banner()


def plan(hand: Hand) -> str:
    hand.menu("Plan")
    hand.page.locator(".presets a").first.click()
    hand.taps += 1
    return hand.answer()


TASKS = (
    Task("Is the H100 cheap now?", DESKTOP, is_it_cheap),
    Task("Why did it not rent last night?", DESKTOP, why_not_rented),
    Task("Rent the A100 that it asks for, from the phone", PHONE, approve),
    Task("What does my job do?", PHONE, job),
    Task("Give the machine more time, from the phone", PHONE, extend),
    Task("Stop the idle one from the phone", PHONE, stop),
    Task("What did this month cost?", PHONE, month),
    Task("Lower my limit to $1.60", DESKTOP, lower_limit),
    Task("Which machine fits my training, and for how much?", DESKTOP, plan),
    Task("Rent nothing for now", PHONE, pause),
)


def done(browser: Browser, running: Story, task: Task) -> str:
    """Do a task; return what is printed about it."""
    context = browser.new_context(base_url=running.url, viewport={"width": task.width, "height": SIZES[task.width]})
    context.set_default_timeout(20_000)
    page = context.new_page()
    log_in(page, running)
    hand = Hand(page, running)
    began = time.monotonic()
    try:
        text = " ".join(task.do(hand).split())
    except Exception as error:
        text = f"NOT DONE: {str(error).splitlines()[0]} at {page.url}"
    seconds = time.monotonic() - began
    context.close()
    typed = f" and {hand.typed} typed" if hand.typed else ""
    return f"{task.question}\n  {hand.taps} taps{typed}, {seconds:.1f} s on {task.width} px: {text}\n"


def main() -> None:
    """Do all of them."""
    with tempfile.TemporaryDirectory() as folder, story(Path(folder)) as running, started() as browser:
        for task in TASKS:
            sys.stdout.write(done(browser, running, task))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
