"""The definition of a page: an address, a template, a function that reads, and the actions of its forms; all pages.

Each `Page` is at the top of a module named `…_page` or `…_pages`; it is registered nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import msgspec

from gpuwatch import web
from gpuwatch.app.history.recent_readings import RecentReadings
from gpuwatch.app.watches.matching_prices import RecentMatchingPrices
from gpuwatch.bootstrap import OpenStores
from gpuwatch.chat.interface import Webhooks
from gpuwatch.daemon.log_records import RecentLog
from gpuwatch.errors import UsageError
from gpuwatch.settings import Settings

_MINUTE = timedelta(minutes=1)


class ServingProcess(msgspec.Struct, frozen=True, kw_only=True):
    """The process that serves the pages: the daemon, or `gpuwatch web`.

    Attributes:
        config: the settings file as named at the start; None: searched in the usual places.
        reload: reloads the settings.
        recent_log: the newest log records; None: the daemon is another process.
        webhooks: receive the updates of messengers for their bots.
        stores: what it reads.
        prices: what it lately read of the watches' past.
        gpu_pasts: what it read of the GPUs' past within two minutes.
    """

    config: str | None = None
    reload: Callable[[], None] = lambda: None
    recent_log: RecentLog | None = None
    webhooks: Webhooks = Webhooks()
    stores: OpenStores = msgspec.field(default_factory=OpenStores)
    prices: RecentMatchingPrices = msgspec.field(default_factory=RecentMatchingPrices)
    gpu_pasts: RecentReadings[Any] = msgspec.field(
        default_factory=lambda: RecentReadings(timedelta(minutes=1), most=50)
    )

    @property
    def is_daemon(self) -> bool:
        """Whether the daemon runs in this process."""
        return self.recent_log is not None


class View(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a page. Pages are plain functions and run in a thread pool.

    Attributes:
        query: the query of the address, with the first value of each key.
        path: the parts in braces of the page's address.
        form: the posted values, without the CSRF token; empty for a GET.
        actor: who posted it, for the audit event.
        owner: what the process that serves the page can do in addition to reading.
        settings_read_at: since when these settings are in use; None: unknown.
    """

    settings: Settings
    now: datetime
    query: Mapping[str, str]
    path: Mapping[str, str]
    form: Mapping[str, str] = {}
    actor: str = ""
    owner: ServingProcess = ServingProcess()
    settings_read_at: datetime | None = None

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        """Return a value of the query; empty or missing: the default. Raises UsageError: it is not a choice."""
        value = self.query.get(name, "") or default
        if value != default and value not in choices:
            raise UsageError(f"{name} {value[:40]!r}: expected one of {', '.join(choices)}")
        return value


class Moved(Exception):
    """The page has moved to another address of this server."""

    def __init__(self, to: str) -> None:
        super().__init__(to)
        self.to = to


class Redirect(msgspec.Struct, frozen=True, kw_only=True):
    """A form succeeded: the browser is redirected to `to`, which shows `text` once."""

    text: str
    to: str
    is_error: bool = False


class Confirm(msgspec.Struct, frozen=True, kw_only=True):
    """A form needs confirmation: it is shown again, and posted with `confirmed=yes`.

    Attributes:
        question: the pending action, with the money involved.
        facts: label → value.
        ends_something: the button is red.
        fields: posted in addition to those of the form.
    """

    question: str
    button: str
    back: str
    facts: tuple[tuple[str, str], ...] = ()
    ends_something: bool = False
    fields: Mapping[str, str] = {}


class Rerender(msgspec.Struct, frozen=True, kw_only=True):
    """A form shows the page again with other values, such as a preview."""

    values: Mapping[str, Any]


FormResult = Redirect | Confirm | Rerender


class FormAction(msgspec.Struct, frozen=True, kw_only=True):
    """The action of a form that posts to `path`."""

    path: str
    scope: str  # read | approve | manage
    run: Callable[[View], FormResult]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page.

    Attributes:
        name: of the page, as a heading.
        path: such as "/launches" or "/gpu/{name}".
        show: returns the values of the template. Raises Moved, UsageError (404, 422), StoreError (503).
        order: its route is tried before those of higher ones: "/watches/new" before "/watches/{name}".
        scripts: files in static/ that only this page needs.
        shared_s: how long a reading is shared by all clients (`RecentReadings`): each reads its page every 15 s, and
            all at once after an event, before which readings are forgotten, as after a form.
    """

    name: str
    path: str
    template: str
    show: Callable[[View], Mapping[str, Any]]
    order: int
    actions: tuple[FormAction, ...] = ()
    scripts: tuple[str, ...] = ()
    shared_s: float = 0.0


SHARED_S = 2.0  # of the pages that many keep open
PERCENT = (0, 100)  # the axis of a share, so that a steady one is not drawn as a cliff


def is_confirmed(view: View) -> bool:
    """Whether the person has confirmed the question."""
    return view.form.get("confirmed") == "yes"


@cache
def pages() -> tuple[Page, ...]:
    """Return every page, in their order."""
    names = [info.name for info in walk_packages(web.__path__, f"{web.__name__}.")]
    modules = [import_module(name) for name in names if name.endswith(("_page", "_pages"))]
    found = {value.path: value for module in modules for value in vars(module).values() if isinstance(value, Page)}
    return tuple(sorted(found.values(), key=lambda page: page.order))
