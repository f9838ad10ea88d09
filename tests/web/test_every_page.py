"""Every page, at every width, light and dark, in every language: what a person's browser would complain about.

All findings of all pages are in one message.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.checkout import ROOT
from tests.web import outlines
from tests.web.chromium import needs_browser, serious_findings
from tests.web.every_page import Site, enter, every_site, fetch, open_page, tab, too_wide, unfold, weight
from tests.web.page_texts import english_words_in, words_for_programs

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [needs_browser, pytest.mark.slow, pytest.mark.timeout(1200)]
WIDTHS = (360, 390, 768, 1280)
LANGUAGES = ("en", "ru")
MOST_BYTES = 150_000
FOR_PROGRAMS = {"settings": "shows each key beside its name", "log": "shows records as gpuwatch writes them"}
STATIC = ROOT / "gpuwatch/web/static"


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Site]]:
    with every_site(tmp_path_factory.mktemp("pages")) as found:
        yield found


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_page_overflows_or_has_a_finding_or_an_error(sites: list[Site], browser: Browser, language: str) -> None:
    found: list[str] = []
    with tab(browser, language) as (page, said):
        for site in sites:
            enter(page.context, site)
            for visit in site.visits:
                page.emulate_media(color_scheme="light")
                wrong = [open_page(page, site, visit)]
                wrong += _judged(page, visit.name if language == "en" else None)
                wrong += [one for one in said if visit.status == 200 or f"status of {visit.status}" not in one]
                said.clear()
                found += [f"{language} {visit.name} {visit.path}: {one}" for one in wrong if one]
    assert not found, "\n".join(["", *found])


def _judged(page: Page, name: str | None) -> Iterator[str]:
    """What is wrong with the page that is shown: in the light with its details closed, in the dark with them open.

    In the dark nothing but colours differs (test_pages.py).

    Args:
        name: of the page; None: without axe and the stored pictures, which read no words.
    """
    phone, *others, desktop = WIDTHS
    for width in (desktop, *others, phone):
        yield from (f"at {width}: {one}" for one in too_wide(page, width))
        if name and width in outlines.WIDTHS:
            yield from outlines.changed(page, name, width)
    if name:
        yield from (f"at {phone}: {one}" for one in serious_findings(page))
    unfold(page)
    yield from (f"at {phone}, with details open: {one}" for one in too_wide(page, phone))
    if name is None:
        return
    page.emulate_media(color_scheme="dark")
    yield from (f"at {phone}, in the dark: {one}" for one in serious_findings(page, "color-contrast"))
    yield from (f"at {desktop}, with details open: {one}" for one in too_wide(page, desktop))
    yield from (f"at {desktop}, in the dark, with details open: {one}" for one in serious_findings(page))
    if name in outlines.IN_THE_DARK:
        yield from outlines.changed(page, name, desktop, "dark")


def test_a_stored_picture_tells_looks_from_fonts_and_prices(sites: list[Site], browser: Browser) -> None:
    story, desktop = sites[0], WIDTHS[-1]
    with tab(browser, "en", viewport={"width": desktop, "height": 800}) as (page, _said):
        enter(page.context, story)
        open_page(page, story, story.visits[0])
        page.route("**/*", lambda asked: asked.abort())  # a live update would repair what is broken

        def is_changed(does: str = "() => {}", by: object = None) -> bool:
            page.evaluate(does, by)
            return bool(outlines.changed(page, "now", desktop))

        for other in (_OTHER_TEXTS, _OTHER_FONT):
            assert not is_changed(other), other
        for scheme, expected in (("dark", True), ("light", False)):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            assert is_changed() is expected, scheme
        for worse, bad, good in (_NO_STYLES, _MIRRORED, _LARGER):
            assert is_changed(worse, bad), worse
            assert not is_changed(worse, good), worse
        assert is_changed(_MOVED)
        assert not is_changed(_MOVED)
        assert is_changed("() => document.querySelector('#budgets').remove()")


_OTHER_TEXTS = (
    """() => document.querySelectorAll("main .price b, main time").forEach(one => one.textContent = "12.345")"""
)
_OTHER_FONT = """() => document.documentElement.style.setProperty("--font", "DejaVu Serif, serif")"""
# each with what breaks the page, and what repairs it
_NO_STYLES = "isOff => [...document.styleSheets].forEach(one => one.disabled = isOff)", True, False
_MIRRORED = "way => document.querySelector('main .cols').style.direction = way", "rtl", ""
_LARGER = "size => document.querySelector('#spent').style.fontSize = size", "24px", ""
# the second panel of the column becomes the first
_MOVED = """() => {
  const column = document.querySelector("#budgets").parentElement;
  column.prepend(column.lastElementChild);
}"""


def test_no_page_weighs_more_than_promised(sites: list[Site]) -> None:
    weights = {
        f"{language} {visit.name}": weight(site, visit, language, STATIC)
        for language in LANGUAGES
        for site in sites
        for visit in site.visits
    }
    assert {name: size for name, size in weights.items() if size > MOST_BYTES} == {}


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_page_shows_a_key_a_flag_or_an_id(sites: list[Site], language: str) -> None:
    found = [
        f"{visit.name}: {one}"
        for site in sites
        for visit in site.visits
        if visit.name not in FOR_PROGRAMS
        for one in dict.fromkeys(words_for_programs(fetch(site.url, visit.path, site.cookies, language).text))
    ]
    assert not found, "\n".join(["", *found])


def test_no_page_in_russian_has_an_english_word(sites: list[Site]) -> None:
    found = [
        f"{visit.name}: {one}"
        for site in sites
        for visit in site.visits
        if visit.name not in FOR_PROGRAMS
        for one in dict.fromkeys(english_words_in(fetch(site.url, visit.path, site.cookies, "ru").text))
    ]
    assert not found, "\n".join(["", *found])


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_decision_is_taken_with_one_thumb(sites: list[Site], browser: Browser, language: str) -> None:
    """Approve and Deny stand side by side above the bar, and every fact above them."""
    story, asked = sites[0], next(visit for visit in sites[0].visits if visit.name == "approval")
    with tab(browser, language, viewport={"width": 390, "height": 844}) as (page, _said):
        enter(page.context, story)
        open_page(page, story, asked)
        deny, approve = (one.bounding_box() for one in page.locator(".decide-dock button").all())
        facts, bar = page.locator(".decide").bounding_box(), page.locator(".tabs").bounding_box()
    assert deny and approve and facts and bar  # noqa: PT018 for mypy
    assert deny["y"] == approve["y"]
    assert deny["x"] + deny["width"] < approve["x"] < approve["x"] + approve["width"] <= 390
    assert facts["y"] + facts["height"] <= approve["y"] < approve["y"] + approve["height"] <= bar["y"]


_FOCUSED = """() => {
  const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
  const ring = one.closest(".unit, .tokens") ?? one;
  return {
    name: (one.getAttribute("aria-label") ?? one.textContent).replace(/\\s+/g, " ").trim(),
    isRinged: style.outlineStyle !== "none" || getComputedStyle(ring).outlineStyle !== "none",
    isShown: box.bottom > 0 && box.top < innerHeight && box.width > 0,
  };
}"""


def _tab_to(page: Page, name: str, key: str = "Tab") -> None:
    """Move the focus until it is on what has this name; wherever it is, it can be seen."""
    for _step in range(120):
        page.keyboard.press(key)
        found = page.evaluate(_FOCUSED)
        assert found["isRinged"], found
        assert found["isShown"], found
        if found["name"].startswith(name):
            return
    raise AssertionError(f"no {name} within 120 steps")


def test_an_owner_walks_by_keyboard_alone(sites: list[Site], browser: Browser) -> None:
    story = sites[0]
    with tab(browser, "en", viewport={"width": 1280, "height": 800}) as (page, said):
        enter(page.context, story)
        open_page(page, story, story.visits[0])
        _tab_to(page, "Skip to content")
        _tab_to(page, "More pages")
        page.keyboard.press("Enter")
        menu = page.locator("#menu")
        assert menu.evaluate("one => one.open")
        page.keyboard.press("Tab")
        page.keyboard.press("Escape")
        assert not menu.evaluate("one => one.open")
        assert page.evaluate(_FOCUSED)["name"] == "More pages"
        _tab_to(page, "h100-night")
        page.keyboard.press("Enter")
        page.wait_for_url("**/watches/h100-night")
        _tab_to(page, "Pause…")
        page.keyboard.press("Enter")
        page.get_by_role("dialog").wait_for()
        page.keyboard.press("Escape")
        page.get_by_role("dialog").wait_for(state="hidden")
        page.goto(story.url + next(visit.path for visit in story.visits if visit.name == "launch"))
        _tab_to(page, "Stop…")
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("heading").wait_for()
        assert page.evaluate(_FOCUSED)["name"] == "Back"
        page.keyboard.press("Enter")
        dialog.wait_for(state="detached")
        assert said == []


def test_without_javascript_every_page_has_its_answer_and_its_ways_on(sites: list[Site]) -> None:
    found, links = [], set()
    for site in sites:
        for visit in site.visits:
            answer = fetch(site.url, visit.path, site.cookies)
            main = answer.text.partition("<main")[2].partition("</main>")[0]
            wrong = [] if answer.status_code == visit.status else [f"answers {answer.status_code}"]
            if main.count("<h1") != 1 or not re.search('class="(answer|decide)', main):
                wrong.append("has no heading with its answer")
            if re.search(r"<button(?![^>]*\bhidden\b)[^>]*type=\"button\"|href=\"#\"| on\w+=", main):
                wrong.append("has a control that needs a script")
            found += [f"{visit.name}: {one}" for one in wrong]
            links |= {(site.url, html.unescape(link)) for link in re.findall(r'<a[^>]* href="(/[^"]*)"', answer.text)}
    for url, link in sorted(links):
        site = next(one for one in sites if one.url == url and one.cookies)
        status = fetch(url, link, site.cookies).status_code
        found += [] if status in {200, 303} else [f"{link} answers {status}"]
    assert not found, "\n".join(["", *found])
