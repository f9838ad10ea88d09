"""Signed links that end: whoever has one reads one chart, feed or calendar, and nothing else.

A link names what it shows and until when, and a signature of both. The key is in the store, so that every host of a
database accepts the links of every other one; replacing it ends all links at once.
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import msgspec

from gpuwatch.app.owner_audit import audit_event
from gpuwatch.app.watches.watch_selection import require_watch
from gpuwatch.bootstrap import open_store, open_store_read_only
from gpuwatch.domain.market.json_view import JsonView, Moment
from gpuwatch.domain.setup.durations import DAY_S
from gpuwatch.errors import UsageError
from gpuwatch.storage.alerts.share_key import SqlShareKey

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

LONGEST_S = 366 * DAY_S
_UNTIL = re.compile(r"[0-9]{1,11}")
_NOTHING_SHARED = "0" * 64  # compared as any other key, so that an empty store answers no faster


class SharedThing(StrEnum):
    """What a link shows; the values are in links."""

    GPU = "gpu"
    WATCH = "watch"
    ALERTS = "alerts"
    CALENDAR = "calendar"

    @property
    def path(self) -> str:
        """The path of its page, feed or file."""
        return _PATHS[self]

    @property
    def is_chart(self) -> bool:
        """Whether it has a name, a page and a picture."""
        return self in {SharedThing.GPU, SharedThing.WATCH}


_PATHS = {
    SharedThing.GPU: "/share/gpu",
    SharedThing.WATCH: "/share/watch",
    SharedThing.ALERTS: "/alerts.atom",
    SharedThing.CALENDAR: "/calendar.ics",
}
PICTURE = ".svg"
SHARED_PATHS = frozenset({*_PATHS.values(), *(path + PICTURE for thing, path in _PATHS.items() if thing.is_chart)})


class LinkFault(StrEnum):
    """Why a link shows nothing."""

    WRONG = "wrong"
    EXPIRED = "expired"


class ShareLink(JsonView, frozen=True, kw_only=True):
    """One link. `picture_url`: the chart as SVG, to be embedded; None: it has none."""

    shows: str
    name: str
    until: Moment
    url: str
    picture_url: str | None


def make_link(
    settings: Settings, thing: SharedThing, name: str, for_s: float, now: datetime, *, actor: str
) -> ShareLink:
    """Sign a link, and store that it was made.

    Raises:
        UsageError: no such GPU or watch, or the time is too long.
        StoreError: nothing was stored, and no link was made.
    """
    if not 0 < for_s <= LONGEST_S:
        raise UsageError("a link can be valid for at most 366 days")
    until = now.replace(microsecond=0) + timedelta(seconds=for_s)
    name = _known_name(settings, thing, name)
    what = f"{thing.value} {name}".strip()
    action = f"link to {what} made, valid until {until:%Y-%m-%d %H:%M} UTC"
    audit = audit_event(actor, action, subject=name or thing.value)
    with open_store(settings) as store:
        key = SqlShareKey(store).ensure(now, audit)
    query = _signed_query(key, thing, name, int(until.timestamp()))
    address = base_url(settings) + thing.path
    return ShareLink(
        shows=thing.value,
        name=name,
        until=until,
        url=f"{address}?{query}",
        picture_url=f"{address}{PICTURE}?{query}" if thing.is_chart else None,
    )


def revoke_links(settings: Settings, now: datetime, *, actor: str) -> None:
    """End every link that was made. Raises StoreError: none has ended."""
    with open_store(settings) as store:
        SqlShareKey(store).update_key(now, audit_event(actor, "all shared links revoked", subject="links"))


def link_fault(
    settings: Settings, thing: SharedThing, name: str, until: str, signature: str, now: datetime
) -> LinkFault | None:
    """Why a link shows nothing; None: it is valid. Raises StoreError."""
    with open_store_read_only(settings) as store:
        key = SqlShareKey(store).get()
    expected = _signature(key or _NOTHING_SHARED, thing, name, until)
    is_genuine = hmac.compare_digest(signature.encode("utf-8", "replace"), expected.encode())
    if not is_genuine or key is None or not _UNTIL.fullmatch(until):
        return LinkFault.WRONG
    return LinkFault.EXPIRED if now >= datetime.fromtimestamp(int(until), UTC) else None


def base_url(settings: Settings) -> str:
    """Where the page is opened: its public address, else where it listens."""
    return settings.web.public_url or f"http://{settings.web.listen}"


def _known_name(settings: Settings, thing: SharedThing, name: str) -> str:
    if thing is SharedThing.WATCH:
        require_watch(settings, name)
        return name
    if thing is SharedThing.GPU:
        from gpuwatch.app.history.past_prices import gpu_names_of  # noqa: PLC0415 heavy: only where a link is made
        from gpuwatch.storage.history.queries.history_queries import known_gpu_names  # noqa: PLC0415

        with open_store_read_only(settings) as store:
            gpu_names_of(name, known_gpu_names(store))
        return name
    return ""


def _signed_query(key: str, thing: SharedThing, name: str, until_s: int) -> str:
    named = {"name": name} if thing.is_chart else {}
    return urlencode({**named, "until": until_s, "key": _signature(key, thing, name, str(until_s))})


def _signature(key: str, thing: SharedThing, name: str, until: str) -> str:
    # JSON keeps the three apart, whatever a name contains
    message = msgspec.json.encode([f"gpuwatch share {thing.value}", name, until])
    return urlsafe_b64encode(hmac.digest(bytes.fromhex(key), message, "sha256")).decode().rstrip("=")
