"""Registers paths of gpuwatch's web server to which messengers send a bot's updates, as an alternative to polling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol


class WebhookHandler(Protocol):
    """Accepts the requests of one messenger at one path.

    Attributes:
        path: of the request, such as "/telegram/8123456789".
        host: the host name by which the messenger calls this server.
    """

    path: str
    host: str

    def is_genuine(self, headers: Mapping[str, str]) -> bool:
        """Whether the request contains the messenger's secret."""

    def receive(self, body: bytes) -> None:
        """Store the update; then the messenger may delete it. Raises ValueError (no update), StoreError."""


class Webhooks:
    """The currently open paths: chats open and close them, the web server reads them. Thread-safe."""

    def __init__(self) -> None:
        self._handlers: dict[str, WebhookHandler] = {}

    def open(self, handler: WebhookHandler) -> Callable[[], None]:
        """Register the target at its path; call the returned function to remove it."""
        self._handlers = {**self._handlers, handler.path: handler}
        return lambda: self._close(handler)

    def at(self, path: str) -> WebhookHandler | None:
        """Return the target at this path, or None."""
        return self._handlers.get(path)

    def _close(self, handler: WebhookHandler) -> None:
        self._handlers = {path: registered for path, registered in self._handlers.items() if registered is not handler}
