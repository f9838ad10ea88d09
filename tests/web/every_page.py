"""Every page of gpuwatch, and what is wrong with one that a browser shows.

Three servers: a daemon with two weeks of prices (tests/web/story.py), one with what has ended or waits for an answer,
and one without a watch. test_every_page.py visits them.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import httpx

from gpuwatch.app.launches.approvals import deny
from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.domain.jobs.job import JobState
from gpuwatch.domain.launches.launch import COMMAND_PLACE, Intent, LaunchState
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.settings import Settings
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from tests import loopback_client
from tests.builders import a_match, an_offer
from tests.stored_jobs import a_running_job, moved
from tests.web.launches.test_launch_pages import RENTS, stored
from tests.web.served import PAGE, Served, serving_settings, settings_in
from tests.web.story import story

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

_SLOW_MS = 300_000
_HELD, _DENIED = "b" * 12, "c" * 12
# what reaches beyond the window, except within what scrolls, or ends in an ellipsis
_TOO_WIDE = """() => {
  const width = document.documentElement.clientWidth, found = [];
  const isClipped = (one) => {
    for (let box = one.parentElement; box && box !== document.body; box = box.parentElement) {
      const style = getComputedStyle(box);
      if (["auto", "scroll"].includes(style.overflowX) || style.textOverflow === "ellipsis") return true;
      if (box.matches(".chart")) return true; // drawn anew a moment after the window has changed
    }
    return one.matches(".hide, .hide *, .skip");
  };
  const all = document.documentElement.scrollWidth;
  if (all > width) found.push(`the document is ${all} wide`);
  for (const one of document.body.querySelectorAll(":not(svg *)")) {
    const box = one.getBoundingClientRect();
    if (!box.width || (box.left > -1 && box.right < width + 1) || !one.checkVisibility() || isClipped(one)) continue;
    const name = `${one.tagName.toLowerCase()}.${one.getAttribute("class") ?? ""}`;
    found.push(`${name} reaches from ${Math.round(box.left)} to ${Math.round(box.right)}`);
  }
  return found.slice(0, 4);
}"""
_DRAWN = "() => document.querySelectorAll('[data-chart]:not([data-drawn])').length === 0"
_OPENED = """isOpen => document.querySelectorAll("details").forEach(one => {
  if (!one.matches(".menu, .filter")) one.open = isOpen;
})"""


class Visit(NamedTuple):
    """One page. `status`: of its answer."""

    name: str
    path: str
    status: int = 200


class Site(NamedTuple):
    """One server with the pages to visit. `cookies`: of a person who logged in; empty: of somebody else."""

    url: str
    visits: Sequence[Visit]
    cookies: Mapping[str, str]


@contextmanager
def every_site(folder: Path) -> Iterator[list[Site]]:
    """Run them all until the block ends."""
    for name in ("story", "over", "new"):
        (folder / name).mkdir()
    with ExitStack() as stack:
        found = stack.enter_context(story(folder / "story"))
        over = stack.enter_context(_served(folder / "over", RENTS))
        job_id = _what_is_over(over.context.settings, folder / "over")
        new = stack.enter_context(_served(folder / "new"))
        owner = _log_in(found.url, found.codes[-1])
        watch, launch, approval = (
            "/watches/h100-night",
            f"/launches/{found.launch_id}",
            f"/approvals/{found.approval_id}",
        )
        of_story = (
            Visit("now", "/"), Visit("market", "/market"), Visit("offers", "/market?view=offers&gpu=H200"),
            Visit("gpu", "/gpu/H100%20SXM"), Visit("watches", "/watches"), Visit("watch", watch),
            Visit("watch-edit", f"{watch}/edit"), Visit("watch-new", "/watches/new"),
            Visit("pause", "/pause?watch=render"), Visit("silence", f"{watch}/silence"),
            Visit("rehearse", f"{watch}/rehearse"), Visit("launches", "/launches"), Visit("launch", launch),
            Visit("extend", f"{launch}/extend"), Visit("approvals", "/approvals"), Visit("approval", approval),
            Visit("jobs", "/jobs"), Visit("job", f"/jobs/{found.job_id}"), Visit("costs", "/costs"),
            Visit("plan", "/plan"), Visit("plan-answer", _preset(found.url, owner)), Visit("alerts", "/alerts"),
            Visit("settings", "/settings"), Visit("log", "/log"), Visit("share", "/share?watch=h100-night"),
            Visit("not-found", "/no/such-page", 404),
        )  # fmt: skip
        without_login = (Visit("login", "/login"), Visit("approval-no-login", approval))
        of_over = (
            Visit("launch-ended", f"/launches/{'a' * 12}"),
            Visit("launch-held", f"/launches/{_HELD}"), Visit("exists", f"/launches/{_HELD}/exists"),
            Visit("approval-denied", f"/approvals/{_DENIED}"), Visit("job-done", f"/jobs/{job_id}"),
        )  # fmt: skip
        of_new = (Visit("first-run", "/"), Visit("watches-empty", "/watches"))
        yield [
            Site(found.url, of_story, owner),
            Site(found.url, without_login, {}),
            Site(over.url, of_over, _log_in(over.url, over.codes[-1])),
            Site(new.url, of_new, _log_in(new.url, new.codes[-1])),
        ]


def _served(folder: Path, more: str = "") -> AbstractContextManager[Served]:
    """A server that speaks the browser's language."""
    settings = settings_in(folder, f'language = "auto"\n[web]\nlisten = "127.0.0.1:0"\n{more}')
    return serving_settings(settings, folder)


def _log_in(url: str, code: str) -> dict[str, str]:
    with closing(loopback_client.client(base_url=url, timeout=_SLOW_MS / 1000)) as client:
        client.post("/api/v1/session", json={"code": code}).raise_for_status()
        return dict(client.cookies)


def _preset(url: str, cookies: Mapping[str, str]) -> str:
    """The address of a plan to start from."""
    page = fetch(url, "/plan", cookies).text
    found = re.search(r'href="(/plan\?[^"]+)"', page)
    assert found is not None, page
    return html.unescape(found[1])


def fetch(url: str, path: str, cookies: Mapping[str, str], language: str = "en") -> httpx.Response:
    """Read a page as a browser without JavaScript does."""
    with closing(loopback_client.client(base_url=url, timeout=_SLOW_MS / 1000, cookies=dict(cookies))) as client:
        return client.get(path, headers=PAGE | {"Accept-Language": language})


def _what_is_over(settings: Settings, folder: Path) -> str:
    """Store an ended and a held launch, a denied quote, a job that is done; return the job's id."""
    now = real_now()
    match = a_match(an_offer(region="Norway"))
    intent = Intent(watch=settings.watches[0], match=match, launch_id=_DENIED, dry_run=False)
    with open_store(settings) as store, SqlDecisionStore(store).open() as uow:
        uow.request_approval(intent, Budget(), now + timedelta(hours=2), now, False)
    deny(settings, _DENIED, "too dear", actor="its owner")
    stored(settings, state=LaunchState.ENDED, ended_at=now - timedelta(minutes=20), end_reason="idle: under 5 %")
    stored(settings, launch_id=_HELD, state=LaunchState.HELD, provider=COMMAND_PLACE)
    job = a_running_job(settings, folder, log="".join(f"step {number}/100 loss 0.5\n" for number in range(100)))
    return moved(settings, job, (JobState.FETCHING, JobState.DONE), now, exit_code=0).job_id


@contextmanager
def tab(browser: Browser, language: str, **wanted: object) -> Iterator[tuple[Page, list[str]]]:
    """A page with a list to which the browser's complaints are added: console, policy, failed requests."""
    context = browser.new_context(locale=language, reduced_motion="reduce", **wanted)  # type: ignore[arg-type]
    context.set_default_timeout(_SLOW_MS)
    page, said = context.new_page(), []
    page.on("pageerror", lambda error: said.append(f"script: {error}"))
    page.on("console", lambda line: said.append(f"console: {line.text}") if line.type in {"error", "warning"} else None)
    # a page that is left ends its event stream
    page.on("requestfailed", lambda one: said.append(f"failed: {one.url}") if not _is_ended(one.failure) else None)
    try:
        yield page, said
    finally:
        context.close()


def _is_ended(failure: str | None) -> bool:
    return "ERR_ABORTED" in (failure or "")


def enter(context: BrowserContext, site: Site) -> None:
    """Be the person of this site. Cookies do not know ports."""
    context.clear_cookies()
    context.add_cookies([{"name": name, "value": value, "url": site.url} for name, value in site.cookies.items()])


def open_page(page: Page, site: Site, visit: Visit) -> str | None:
    """Show it, with its charts drawn; return what is wrong with its answer."""
    answer = page.goto(site.url + visit.path)
    page.wait_for_function(_DRAWN)
    if answer is None or answer.status != visit.status:
        return f"answers {answer.status if answer else 'nothing'}"
    return None


def too_wide(page: Page, width: int, height: int = 800) -> list[str]:
    """Return what is wider than a window of this width."""
    page.set_viewport_size({"width": width, "height": height})
    return list(page.evaluate(_TOO_WIDE))


def unfold(page: Page, *, is_open: bool = True) -> None:
    """Open or close every detail, except menus, which lie over what is below them."""
    page.evaluate(_OPENED, is_open)


def weight(site: Site, visit: Visit, language: str, static: Path) -> int:
    """Return the bytes of a first visit, uncompressed: the page, and the styles, scripts and pictures that it names."""
    page = fetch(site.url, visit.path, site.cookies, language)
    return len(page.content) + sum((static / name).stat().st_size for name in static_files(page.text, static))


def static_files(page: str, static: Path) -> set[str]:
    """Return the files that a browser loads for a page. The manifest and the icon of a home screen are not."""
    names = {urlsplit(path).path for path in re.findall(r'(?:href|src)="/static/([^"]+)"', page)}
    names = {name for name in names if not name.endswith((".webmanifest", ".png"))}
    for name in [name for name in names if name.endswith(".css")]:
        found = re.findall(r'url\("([^"#]+)"\)', (static / name).read_text())
        names |= {one for one in found if (static / one).is_file()}
    return names
