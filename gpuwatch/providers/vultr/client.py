"""Vultr's HTTP client: pages by a cursor, and its errors."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from gpuwatch.errors import OfferGone, OrderError, OrderRefused, PayloadChanged, RefusalKind, RefusalScope
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Tools
from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.toolkit.api_client import ApiClient
from gpuwatch.providers.toolkit.api_launcher import ordering_errors, reading_errors
from gpuwatch.providers.toolkit.error_mapping import ErrorBody, ordering_error
from gpuwatch.providers.toolkit.validation import at, whole

PROVIDER: Final = "vultr"
_PAGE_ROWS: Final = "500"
_PAGES_MAX: Final = 50
_NOT_FOUND_MESSAGE: Final = "invalid instance id"  # source: the vendor's Terraform provider
_NO_STOCK: Final = "plan is not available in the selected region"
_NOT_ENABLED: Final = "support request for access to this product"


class VultrClient(ApiClient):
    """The HTTP client of one account."""

    def __init__(self, settings: ProviderSettings, tools: Tools) -> None:
        super().__init__(settings, tools, reading=list_error, ordering=order_error)


def all_rows(
    client: ApiClient, path: str, name: str, params: Mapping[str, str] | None = None, kind: str = "search"
) -> list[Any]:
    """Return the rows of a list from all pages, unparsed.

    Raises:
        PayloadChanged: it has an unexpected format, or is incomplete.
        ProviderError: a page is missing.
    """
    found: list[Any] = []
    query = {**(params or {}), "per_page": _PAGE_ROWS}
    for _ in range(_PAGES_MAX):
        value = client.get(path, query, kind=kind)
        page, next_cursor, total = at(value, name), at(value, "meta", "links", "next"), at(value, "meta", "total")
        if not isinstance(page, list) or not isinstance(next_cursor, str):
            raise PayloadChanged(f"{PROVIDER}: the answer is not a list of {name}, with its next page")
        found += page
        if not next_cursor:
            if (whole(total) or 0) > len(found):
                break
            return found
        query["cursor"] = next_cursor
    raise PayloadChanged(f"{PROVIDER}: the list of {name} is incomplete: it ends after {len(found)}")


def _map_order_error(name: str, body: ErrorBody, reply: HttpReply, now: datetime) -> OrderError:
    """Map the error of an order. Vultr has no codes: its sentences are quoted in public."""
    line = f"{name}: {body.summary}"
    if 400 <= reply.status < 500 and body.has(_NO_STOCK):
        return OfferGone(line)
    if 400 <= reply.status < 500 and body.has(_NOT_ENABLED):
        return OrderRefused(line, RefusalKind.OTHER, RefusalScope.ACCOUNT)
    return ordering_error(name, body, reply, now)


def _is_not_found(body: ErrorBody, reply: HttpReply) -> bool:
    return reply.status in (400, 404) and isinstance(body.value, dict) and body.has(_NOT_FOUND_MESSAGE)


list_error, order_error = reading_errors(_is_not_found), ordering_errors(_is_not_found, _map_order_error)
