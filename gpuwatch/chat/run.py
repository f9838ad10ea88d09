"""Chats beside a running daemon: one folder a messenger, named as its channel, found by that name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec

from gpuwatch.bootstrap.service import Service
from gpuwatch.daemon.task_progress import TaskProgress
from gpuwatch.ports.buttons import ButtonChannel


@contextmanager
def chat_interface(service: Service, _progress: TaskProgress) -> Iterator[None]:
    """Take commands and presses while the block runs (see `daemon.process.Interface`).

    A folder's `chat.py` holds `open_chat(settings, store, channel)`, a context manager.
    """
    with ExitStack() as chats:
        for name, channel in service.channels.items():
            if isinstance(channel, ButtonChannel) and channel.users and find_spec(f"{__package__}.{name}"):
                messenger = import_module(f"{__package__}.{name}.chat")
                chats.enter_context(messenger.open_chat(service.settings, service.store, channel))
        yield
