"""The newest alerts as an Atom feed (RFC 4287): a reader asks for it with a signed link, because it cannot log in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from xml.etree import ElementTree as ET

from gpuwatch.app.alerts.alert_days import kind_word, newest_events
from gpuwatch.domain.alerts.alert import alert_for_reading
from gpuwatch.domain.market.json_view import rfc3339
from gpuwatch.domain.market.offer import clean
from gpuwatch.language import translate as _
from gpuwatch.notifiers.toolkit import footer, lines, plain
from gpuwatch.settings import Settings
from gpuwatch.storage.alerts.alert_rows import StoredEvent

_ATOM = "http://www.w3.org/2005/Atom"
_ENTRIES = 100
_TITLE_LENGTH = 200


def alert_feed(settings: Settings, own_url: str, now: datetime) -> bytes:
    """The feed, newest first.

    Args:
        own_url: where the feed is read.

    Raises:
        StoreError: the store cannot be read.
    """
    events = newest_events(settings, _ENTRIES)
    root = ET.Element("feed", xmlns=_ATOM)
    _add(root, "id", "urn:gpuwatch:alerts")
    _add(root, "title", _("gpuwatch alerts"))
    _add(root, "updated", _moment(events[0].alert.created_at if events else now.replace(microsecond=0)))
    _add(_add(root, "author"), "name", "gpuwatch")
    _add(root, "link", rel="self", href=own_url)
    for event in events:
        _add_entry(root, event)
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode").encode()


def _add_entry(root: ET.Element, event: StoredEvent) -> None:
    alert, entry = alert_for_reading(event.alert, has_page=True), _add(root, "entry")
    _add(entry, "id", f"urn:gpuwatch:alert:{clean(alert.alert_id)}")
    _add(entry, "title", clean(alert.headline, _TITLE_LENGTH))
    _add(entry, "updated", _moment(alert.created_at))
    if alert.page_url:
        _add(entry, "link", rel="alternate", href=alert.page_url)
    _add(entry, "category", term=alert.kind.value, label=kind_word(alert.kind))
    _add(entry, "category", term=alert.severity.value)
    texts: Sequence[str] = [plain(line) for line in (*lines(alert)[1:], *footer(alert))]
    _add(entry, "content", "<br>".join(escape(clean(text, 2000)) for text in texts), type="html")


def _moment(at: datetime) -> str:
    return str(rfc3339(at.astimezone(UTC)))


def _add(parent: ET.Element, name: str, text: str = "", **attributes: str) -> ET.Element:
    element = ET.SubElement(parent, name, attributes)
    element.text = text or None
    return element
