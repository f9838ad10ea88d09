"""Chats beside a running daemon: one folder per messenger, with the name of its channel, by which it is found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec

from gpuwatch.bootstrap.service import Service
from gpuwatch.chat.webhooks import Webhooks
from gpuwatch.daemon.task_progress import TaskProgress
from gpuwatch.ports.buttons import ButtonChannel


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
