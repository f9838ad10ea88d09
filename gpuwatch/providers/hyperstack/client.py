"""Hyperstack's HTTP client: the key has a header of its own; errors have a reason and a sentence."""

from __future__ import annotations

from typing import Any, Final

from gpuwatch.errors import PayloadChanged
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Tools
from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.toolkit.api_client import ApiClient
from gpuwatch.providers.toolkit.api_launcher import ordering_errors, reading_errors
from gpuwatch.providers.toolkit.error_mapping import ErrorBody
from gpuwatch.providers.toolkit.validation import at, whole

PROVIDER: Final = "hyperstack"
_PAGE_ROWS: Final = 100
_PAGES_MAX: Final = 50
_NOT_FOUND: Final = "not_found"
_VM_PREFIX: Final = "vm "  # "VM 123 does not exists."; a missing flavor or key is named differently


class HyperstackClient(ApiClient):
    """The HTTP client of one account."""

    def __init__(self, settings: ProviderSettings, tools: Tools) -> None:
        headers = {"api_key": settings.api_key} if settings.api_key else {}
        super().__init__(settings, tools, headers=headers, reading=list_error, ordering=order_error)


def all_rows(client: ApiClient, path: str, name: str) -> list[Any]:
    """Return the rows of a list from all pages, unparsed.

    Raises:
        PayloadChanged: it has an unexpected format, or is incomplete.
        ProviderError: a page is missing.
    """
    found: list[Any] = []
    for page in range(1, _PAGES_MAX + 1):
        value = client.get(path, {"page": str(page), "pageSize": str(_PAGE_ROWS)}, kind="instances")
        rows, total = at(value, name), whole(at(value, "count"))
        if at(value, "status") is not True or not isinstance(rows, list) or total is None:
            raise PayloadChanged(f"{PROVIDER}: the answer is not a list of {name} with their number")
        found += rows
        if len(found) >= total:
            return found
        if not rows:
            break
    raise PayloadChanged(f"{PROVIDER}: the list of {name} is incomplete: it ends after {len(found)}")


def _is_not_found(body: ErrorBody, reply: HttpReply) -> bool:
    reason = at(body.value, "error_reason")
    return reply.status == 404 and reason == _NOT_FOUND and body.sentence.lower().startswith(_VM_PREFIX)


list_error = reading_errors(_is_not_found)
order_error = ordering_errors(_is_not_found)  # the answer for no stock is not documented: the status decides
