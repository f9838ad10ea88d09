"""Where messengers hand in what came for a bot, instead of being polled: addresses below gpuwatch's own web server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol


class WebhookHandler(Protocol):
    """Takes the requests of one messenger at one path.

    Attributes:
        path: of the request, such as "/telegram/8123456789".
        host: the name by which the messenger calls this server.
    """

    path: str
    host: str

    def is_genuine(self, headers: Mapping[str, str]) -> bool:
        """Whether the request bears what only the messenger knows."""

    def take(self, body: bytes) -> None:
        """Store what came; after that the messenger may forget it. Raises ValueError (no update), StoreError."""


class Webhooks:
    """The paths that are open now. Chats open and close them, the web server asks; any thread may."""

    def __init__(self) -> None:
        self._takers: dict[str, WebhookHandler] = {}

    def open(self, taker: WebhookHandler) -> Callable[[], None]:
        """From now on requests at its path are its own; call what is returned to end that."""
        self._takers = {**self._takers, taker.path: taker}
        return lambda: self._close(taker)

    def at(self, path: str) -> WebhookHandler | None:
        """Who takes requests at this path; None: nobody does."""
        return self._takers.get(path)

    def _close(self, taker: WebhookHandler) -> None:
        self._takers = {path: one for path, one in self._takers.items() if one is not taker}
