"""The site of the documentation: built strictly, loading nothing from elsewhere; its search answers a stranger."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from gpuwatch.testing.suite import case
from tests.checkout import ROOT
from tests.web.chromium import needs_browser, overflow, page_at, serious_findings, started
from tools.docs_site import SOURCE, indented, site_link, whole_options

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

QUESTIONS = tomllib.loads((ROOT / "tests/documents/questions.toml").read_text(encoding="utf-8"))["question"]
FIRST = 5  # lines of the search's answer that a reader sees without scrolling
SHOWN = ("", "settings/", "sources/", "tutorial-rent/", "ru/start/", "providers/aws/")
_LOADED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=["']?(https?://[^"'> ]+)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `make docs` builds it: a broken link or a page that no menu names fails the build."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = dict(os.environ) | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_the_site_is_whole_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = {path.parent.relative_to(site).as_posix(): path for path in site.rglob("index.html")}
    for source in (ROOT / "docs").rglob("*.md"):
        name = source.relative_to(ROOT / "docs").with_suffix("").as_posix().replace("/README", "")
        assert name in pages, source
    assert {".", "ru", "contributing", "changes", "security", "decisions"} <= pages.keys()
    texts = [path.read_text(encoding="utf-8") for path in [*pages.values(), *site.rglob("*.css")]]
    assert {url for text in texts for url in _LOADED.findall(text)} == set()
    assert not any(re.search(r"@import|url\(\W?https?:", text) for text in texts[len(pages) :])


def test_links_out_of_the_documents_hold_on_the_site() -> None:
    assert site_link("../CONTRIBUTING.md", "architecture.md") == "contributing.md"
    assert site_link("docs/ru/start.md", "ru/index.md") == "start.md"
    assert site_link("docs/providers/README.md", "index.md") == "providers/README.md"
    assert site_link("docs/decisions/", "contributing.md") == "decisions/index.md"
    assert site_link("../../CONTRIBUTING.md", "decisions/0001-x.md") == "../contributing.md"
    assert site_link("../tests/recorded", "data.md") == f"{SOURCE}/tree/main/tests/recorded"
    assert site_link("LICENSE", "index.md") == f"{SOURCE}/blob/main/LICENSE"


def test_what_belongs_to_an_item_of_a_list_is_indented_as_the_site_asks_for() -> None:
    page = ["1. Stop:", "", "   ```sh", "   gpuwatch upgrade  # - no item", "     more", "   ```", "", "   - inner"]
    page += ["     goes on", "", "Text", "", "- item", "  on", ""]
    four = [
        "1. Stop:",
        "",
        "    ```sh",
        "    gpuwatch upgrade  # - no item",
        "      more",
        "    ```",
        "",
        "    - inner",
    ]
    four += ["        goes on", "", "Text", "", "- item", "    on", ""]
    assert indented("\n".join(page)).split("\n") == four
    assert indented("    code\n\n```\n- x\n  y\n```\n") == "    code\n\n```\n- x\n  y\n```\n"


def test_an_option_is_not_broken_after_its_dashes() -> None:
    span = '<span class="option">{}</span>'.format
    assert whole_options("<code>gpuwatch use --for 1h -v</code>") == (
        f"<code>gpuwatch use {span('--for')} 1h {span('-v')}</code>"
    )
    for kept in ("<code>pip-args=x</code>", "<code>a - b</code>", "<code>2026-11</code>"):
        assert whole_options(kept) == kept


@needs_browser
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_newcomer_finds_the_answer_in_two_clicks(site: Path, address: str) -> None:
    """The first lines of the search lead to a section that has it: one click opens it, two if its page is folded."""
    found = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))["docs"]
    texts = {one["location"]: unescape(re.sub(r"<[^>]+>", "", one["text"])).lower() for one in found}
    assert len(QUESTIONS) >= 20
    with started() as browser, page_at(browser, address) as page:
        page.goto("/", timeout=300_000)  # once: the site makes its index at each visit, slowly on a busy machine
        for question in QUESTIONS:
            having = [place for place, text in texts.items() if question["answer"].lower() in text]
            with case(question["ask"]):
                shown = _searched(page, question["ask"], address, having)
                assert set(shown) & set(having), shown


def _searched(page: Page, ask: str, address: str, wanted: list[str]) -> list[str]:
    """The first lines of the site's own search, as soon as one is wanted. Its index takes a moment to be there: what is
    typed before is lost, and typed again.
    """
    field, shown = page.locator(".md-search__input"), page.locator(".md-search-result__link")
    places: list[str] = []
    for again in range(150):
        if again % 15 == 0:
            _typed(field, "")
            shown.first.wait_for(state="detached")  # the lines of the question before
            _typed(field, ask)
        page.wait_for_timeout(200)
        links = shown.evaluate_all("all => all.map(one => one.href)")
        places = [re.sub(r"\?h=[^#]*", "", link).removeprefix(address) for link in links][:FIRST]
        if set(places) & set(wanted):
            break
    return places


def _typed(field: Locator, text: str) -> None:
    field.fill(text)
    field.press("Shift")  # the page listens to keys


@needs_browser
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_page_fits_a_phone_and_can_be_read_by_everybody(address: str) -> None:
    """By axe-core: contrast, names, links that more than their colour shows."""
    with started() as browser:
        for scheme, places in (("light", SHOWN), ("dark", SHOWN[1:3])):
            with page_at(browser, address, (390, 844), color_scheme=scheme) as page:
                for place in places:
                    with case(f"{place or 'home'}, {scheme}"):
                        page.goto(f"/{place}")
                        assert overflow(page) <= 0
                        found = serious_findings(page)  # browsers themselves let keys reach a wide table
                        of_the_theme = ("scrollable-region-focusable", "landmark-unique")
                        assert [one for one in found if not one.startswith(of_the_theme)] == []
