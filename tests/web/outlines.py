"""Pictures of pages drawn from their boxes: what follows what, in which column, how wide, in which colours and sizes.

Photographs would differ with each machine's fonts and each hour's prices. `python -m tests.web.outlines` draws
tests/web/pictures anew, a file for each page, its widths side by side: look at what changed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from tests.web.chromium import started
from tests.web.every_page import enter, every_site, open_page, tab

if TYPE_CHECKING:
    from playwright.sync_api import Page

FOLDER = Path(__file__).parent / "pictures"
WIDTHS = (1280, 390)
IN_THE_DARK = ("now", "watch")  # the colours of all pages are the same tokens
_UNSTEADY = {"job"}  # its parts come with its measurements; those of one that is done are stored ones
_NEAR = 1 / 16  # of the window's width: what other fonts and figures may move
_SIZE_PX, _SHADE = 1, 12
_GAP = 40
# without what is in details, which may be open or closed, what a script fills in, what depends on offers and the hour
_BOXES = """() => {
  const kinds = [
    ".top", ".tabs", "main", "h1", ".answer", ".decide", ".kpis", ".panel", ".sheet", ".preview", "h2",
  ], found = [];
  const day = ".panel[aria-labelledby^=day-]", left = "details *, dialog *, #preview *, .hide";
  const live = `[data-live=cheaper], ${day} ~ ${day}`;
  for (const one of document.querySelectorAll(kinds.join())) {
    const box = one.getBoundingClientRect(), style = getComputedStyle(one), has = one.dataset.live ?? one.id;
    if (!box.width || !one.checkVisibility() || one.matches(left) || one.closest(live)) continue;
    const name = (has || one.getAttribute("aria-labelledby") || "").replace(/-?[0-9].*/, "");
    const kind = kinds.find(kind => one.matches(kind)).replace(".", "");
    const called = [...new Set([kind, name])].join(" ").trim();
    const area = [box.left, box.top + scrollY, box.width, box.height].map(Math.round);
    found.push([called, ...area, style.backgroundColor, style.color, style.fontSize]);
  }
  return found;
}"""
_GROUP = re.compile(r'<g id="(.+?)".*?>\n(.+?)</g>', re.DOTALL)
_BOX = re.compile(
    r'<rect x="(.+?)" y="(.+?)" width="(.+?)" height="(.+?)" fill="(.+?)".*\n<text .+ fill="(.+?)" font-size="(.+?)">'
    "(.+?)</text>"
)


class OutlineBox(NamedTuple):
    """One part of a page, in CSS pixels. `ground`: its own background, `none` without one; `size`: of its text."""

    name: str
    x: int
    y: int
    width: int
    height: int
    ground: str
    ink: str
    size: float


def boxes(page: Page) -> list[OutlineBox]:
    """Return those of the page that is shown, in its order."""
    return [
        OutlineBox(name, x, y, width, height, _hex(ground), _hex(ink), float(size.removesuffix("px")))
        for name, x, y, width, height, ground, ink, size in page.evaluate(_BOXES)
    ]


def _hex(colour: str) -> str:
    red, green, blue, *opacity = re.findall(r"[\d.]+", colour)
    return "none" if opacity == ["0"] else f"#{int(red):02x}{int(green):02x}{int(blue):02x}"


def as_svg(views: dict[str, Sequence[OutlineBox]]) -> str:
    """Return the picture: the views side by side, each box with its name in its colours.

    Args:
        views: by their names (`view_of`), each with the boxes of the page.
    """
    widths = [int(view.split("-")[0]) + _GAP for view in views]
    height = max(one.y + one.height for drawn in views.values() for one in drawn)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {sum(widths) - _GAP} {height}" font-family="sans-serif">'
    ]
    for (view, drawn), left in zip(views.items(), accumulate(widths, initial=0), strict=False):
        lines.append(f'<g id="{view}" transform="translate({left})" stroke="#888">')
        for one in drawn:
            lines.append(
                f'<rect x="{one.x}" y="{one.y}" width="{one.width}" height="{one.height}" fill="{one.ground}"/>'
            )
            place = f'x="{one.x}" y="{round(one.y + one.size)}" stroke="none"'
            lines.append(f'<text {place} fill="{one.ink}" font-size="{one.size:g}">{escape(one.name)}</text>')
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


def read(picture: str) -> dict[str, list[OutlineBox]]:
    """Return the views of a picture with their boxes."""
    return {
        view: [
            OutlineBox(name, int(x), int(y), int(width), int(height), ground, ink, float(size))
            for x, y, width, height, ground, ink, size, name in _BOX.findall(drawn)
        ]
        for view, drawn in _GROUP.findall(picture)
    }


def view_of(width: int, scheme: str = "light") -> str:
    """Return the name of what a picture shows of its page."""
    return f"{width}-{scheme}"


def changed(page: Page, name: str, width: int, scheme: str = "light") -> list[str]:
    """Return how the page that is shown differs from its stored picture, beyond what fonts and prices make."""
    if name in _UNSTEADY:
        return []
    path = FOLDER / f"{name}.svg"
    stored = read(path.read_text("utf-8")).get(view_of(width, scheme)) if path.is_file() else None
    if stored is None:
        return [f"has no picture at {width} in the {scheme} (python -m tests.web.outlines)"]
    found = differences(stored, boxes(page), round(width * _NEAR))
    return [f"is not as in {path.name} (python -m tests.web.outlines), in the {scheme}: {one}" for one in found]


def differences(stored: Sequence[OutlineBox], found: Sequence[OutlineBox], near: int) -> list[str]:
    """Compare names, order, columns, colours and sizes of text.

    Heights are of the fonts and the data, as is the width of a heading.

    Args:
        near: the pixels by which an edge may be elsewhere.
    """
    names, had = [one.name for one in found], [one.name for one in stored]
    if names != had:
        lost, new = Counter(had) - Counter(names), Counter(names) - Counter(had)
        parts = [f"lost {', '.join(lost)}"] * bool(lost) + [f"new {', '.join(new)}"] * bool(new)
        return ["; ".join(parts) or f"in the order {', '.join(names)}; was {', '.join(had)}"]
    return [
        f"{now.name} {place}: {part} {getattr(now, part)}, was {getattr(then, part)}"
        for place, (then, now) in enumerate(zip(stored, found, strict=True))
        for part in _unlike(then, now, near)
    ]


def _unlike(then: OutlineBox, now: OutlineBox, near: int) -> Iterator[str]:
    if abs(then.x - now.x) > near:
        yield "x"
    if now.name[:2] not in {"h1", "h2"} and abs(then.width - now.width) > near:
        yield "width"
    if abs(then.size - now.size) > _SIZE_PX:
        yield "size"
    for part in ("ground", "ink"):
        if not _is_like(getattr(then, part), getattr(now, part)):
            yield part


def _is_like(one: str, other: str) -> bool:
    if "none" in {one, other}:
        return one == other
    pairs = zip(bytes.fromhex(one[1:]), bytes.fromhex(other[1:]), strict=True)
    return all(abs(left - right) <= _SHADE for left, right in pairs)


def drawn_pages(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the picture of every page.

    Args:
        folder: for the servers' files.
    """
    with every_site(folder) as sites, started() as browser, tab(browser, "en") as (page, _said):
        for site in sites:
            enter(page.context, site)
            for visit in (one for one in site.visits if one.name not in _UNSTEADY):
                page.emulate_media(color_scheme="light")
                open_page(page, site, visit)
                views: dict[str, Sequence[OutlineBox]] = {}
                for width in reversed(WIDTHS):
                    page.set_viewport_size({"width": width, "height": 800})
                    views[view_of(width)] = boxes(page)
                if visit.name in IN_THE_DARK:
                    page.emulate_media(color_scheme="dark")
                    views[view_of(width, "dark")] = boxes(page)
                yield visit.name, as_svg(views)


def write() -> None:
    """Draw all pictures anew, and remove those of pages that no longer exist."""
    with TemporaryDirectory() as folder:
        drawn = dict(drawn_pages(Path(folder)))
    FOLDER.mkdir(exist_ok=True)
    for stale in FOLDER.glob("*.svg"):
        stale.unlink()
    for name, picture in drawn.items():
        (FOLDER / f"{name}.svg").write_text(picture, "utf-8")


if __name__ == "__main__":
    write()
