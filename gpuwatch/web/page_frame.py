"""What surrounds every page: its links, the figures at its top, the texts of its script."""

from __future__ import annotations

import msgspec

from gpuwatch.language import mark_text
from gpuwatch.language import translate as _


class PageLink(msgspec.Struct, frozen=True):
    """A link to a page.

    Attributes:
        name: in English; a template translates it.
        on_phones: whether a phone's bar has room for it; else a phone's menu has it.
    """

    name: str
    path: str
    icon: str
    on_phones: bool = True


TABS = (
    PageLink(mark_text("Now"), "/", "now"),
    PageLink(mark_text("Market"), "/market", "market", on_phones=False),
    PageLink(mark_text("Watches"), "/watches", "watches"),
    PageLink(mark_text("Launches"), "/launches", "launches"),
    PageLink(mark_text("Jobs"), "/jobs", "jobs"),
    PageLink(mark_text("Costs"), "/costs", "costs", on_phones=False),
)
MENU = (
    (
        PageLink(mark_text("Approvals"), "/approvals", "approve"),
        PageLink(mark_text("Plan"), "/plan", "plan"),
        PageLink(mark_text("Alerts"), "/alerts", "alerts"),
    ),
    (PageLink(mark_text("Settings"), "/settings", "settings"), PageLink(mark_text("Log"), "/log", "log")),
)


def links() -> tuple[PageLink, ...]:
    """Return every link of a page's frame: the tabs, then the menu."""
    return (*TABS, *(link for group in MENU for link in group))


def client_texts() -> dict[str, str]:
    """Return the texts that the script shows, in the language of the reader."""
    return {
        "ago": _("{time} ago"),
        "in": _("in {time}"),
        "s": _("{seconds} s"),
        "min_s": _("{minutes} min {seconds} s"),
        "h_min": _("{hours} h {minutes} min"),
        "d_h": _("{days} d {hours} h"),
        "live": _("Live · updated {time}"),
        "lost": _("Not connected for {time}. The figures are from {clock}."),
        "lost_said": _("The connection is lost."),
        "back_said": _("Connected again."),
        "decision_said": _("A new decision waits for you."),
        "began_said": _("A machine began."),
        "ended_said": _("A machine ended."),
        "check_said": _("A machine needs your check."),
        "copied": _("Copied"),
        "working": _("Working…"),
        "failed": _("No answer from gpuwatch. Try again."),
        "unknown": _("not polled"),
    }


def mark_current(link: PageLink, path: str) -> str:
    """Return `aria-current` of a link on the page at this path: "page", "true" on a part of that page, or ""."""
    if path == link.path:
        return "page"
    within = "/market" if path.startswith("/gpu/") else path
    return "true" if link.path != "/" and f"{within}/".startswith(f"{link.path}/") else ""


def menu_classes(path: str) -> str:
    """Return the classes of the menu: marked if it has the current page; on phones it has more of them."""
    is_on = any(mark_current(link, path) for group in MENU for link in group)
    is_on_phones = any(mark_current(link, path) for link in TABS if not link.on_phones)
    return f"menu{' on' if is_on else ''}{' on-phones' if is_on or is_on_phones else ''}"
