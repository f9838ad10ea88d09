"""Chats beside a running daemon: one folder per messenger, with the name of its channel, by which it is found.

A messenger that sends updates to gpuwatch's web server, instead of being polled, gets a path of its own there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from gpuwatch.ports.alerts import ButtonChannel

if TYPE_CHECKING:
    from gpuwatch.bootstrap.service import Service
    from gpuwatch.daemon.task_progress import TaskProgress


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
    """The paths of gpuwatch's web server to which messengers send updates: chats open and close them. Thread-safe."""

    def __init__(self) -> None:
        self._handlers: dict[str, WebhookHandler] = {}

    def open(self, handler: WebhookHandler) -> Callable[[], None]:
        """Register a handler at its path; call the returned function to remove it."""
        self._handlers = {**self._handlers, handler.path: handler}
        return lambda: self._close(handler)

    def at(self, path: str) -> WebhookHandler | None:
        """Return the handler of this path, or None."""
        return self._handlers.get(path)

    def _close(self, handler: WebhookHandler) -> None:
        self._handlers = {path: registered for path, registered in self._handlers.items() if registered is not handler}


class ChatInterface:
    """Accepts commands and presses while a service runs (see `daemon.process.Interface`).

    A folder's `chat.py` holds `open_chat(settings, store, channel)`, a context manager.

    Args:
        webhooks: served by the web server beside the same daemon.
    """

    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks

    @contextmanager
    def __call__(self, service: Service, _progress: TaskProgress) -> Iterator[None]:
        """Run the chats while the service runs."""
        webhooks = self._webhooks if service.settings.web.enabled else None
        with ExitStack() as chats:
            for name, channel in service.channels.items():
                if isinstance(channel, ButtonChannel) and channel.users and find_spec(f"{__package__}.{name}"):
                    messenger = import_module(f"{__package__}.{name}.chat")
                    chats.enter_context(
                        messenger.open_chat(service.settings, service.store, channel, webhooks=webhooks)
                    )
            yield
