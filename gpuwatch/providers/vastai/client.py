"""The HTTP client of vast.ai: its rate limits and its errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Tools
from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.toolkit.api_client import ApiClient
from gpuwatch.providers.vastai.error_mapping import reading_error

# Seconds between two requests of a class; the interval of searches is a setting.
# source: the vendor's generated specification (x-rateLimit), 2026-08
INTERVALS_S: Final[Mapping[str, float]] = {
    "instances": 1.0, "instance": 2.0, "create": 4.5, "destroy": 3.0, "label": 1.0, "user": 1.0, "bid": 5.5,
    "charges": 1.0, "increases": 2.0, "accept": 2.0, "reject": 2.0,
}  # fmt: skip

SEARCH_PATH: Final = "/api/v0/bundles/"
_SMALL_BYTES: Final = 2**20


class VastClient(ApiClient):
    """The client of one `[providers.vastai]`."""

    def __init__(self, settings: ProviderSettings, tools: Tools) -> None:
        super().__init__(settings, tools, intervals_s=INTERVALS_S, reading=reading_error)

    def request(
        self, method: str, path: str, *, kind: str = "search", urgent: bool = False, **options: Any
    ) -> HttpReply:
        """Like `ApiClient.request`; answers other than searches are small."""
        return super().request(method, path, kind=kind, urgent=urgent, **({"max_bytes": _SMALL_BYTES} | options))
