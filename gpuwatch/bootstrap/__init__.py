"""The one place where real things are built and joined; it alone reads the clock. Importing it does nothing."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.ports import Channel
    from gpuwatch.ports.declarations import Adapter
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.providers.toolkit.http.client import HttpxClient
    from gpuwatch.settings import Settings
    from gpuwatch.storage.database import Database

_ID_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"


def real_now() -> datetime:
    """The wall clock, aware, UTC."""
    return datetime.now(UTC)


def monotonic() -> float:
    """Seconds that never go back: what a launch waits by, and what requests are spaced by."""
    return time.monotonic() * pace()


def real_monotonic() -> float:
    """Seconds that never go back, at their real pace."""
    return time.monotonic()


def pace() -> float:
    """A test makes waits pass quicker (`GPUWATCH_TEST_PACE=60`: a minute a second); nobody else sets that."""
    return float(os.environ.get("GPUWATCH_TEST_PACE") or 1)


def new_id() -> str:
    """12 characters of a-z2-7: 60 random bits."""
    return "".join(secrets.choice(_ID_LETTERS) for _ in range(12))


def secrets_of(settings: Settings) -> list[str]:
    """Every secret of the settings, for redaction."""
    from gpuwatch.settings.secrets import secret_values

    return secret_values(settings)


def open_http(settings: Settings) -> HttpxClient:
    """The door to the network; the caller closes it."""
    from gpuwatch.providers.toolkit.http.client import HttpxClient

    return HttpxClient(secrets=secrets_of(settings))


@contextmanager
def http_client(settings: Settings) -> Iterator[HttpxClient]:
    """The door to the network, closed at the end."""
    http = open_http(settings)
    try:
        yield http
    finally:
        http.close()


def build_adapters(
    settings: Settings, http: HttpClient, names: Iterable[str] | None = None, stop: threading.Event | None = None
) -> dict[str, Adapter]:
    """The providers that are named, ready to be asked; None: all that are enabled.

    Raises:
        UsageError: one that is named needs an extra that is not installed. Of all, it is left out, and logged.
    """
    from gpuwatch import providers

    wanted = _with_their_extras(settings.providers) if names is None else list(names)
    for name in wanted:
        if missing := missing_extra_hint(name):
            raise UsageError(missing)
    stop = stop or threading.Event()

    def sleep(seconds: float) -> None:
        stop.wait(seconds / pace())

    return {name: providers.build(settings.providers[name], http, real_now, monotonic, sleep, stop) for name in wanted}


def missing_extra_hint(name: str) -> str | None:
    """What has to be installed before a provider can be asked, in one line; None: nothing."""
    from gpuwatch import providers

    if providers.info(name).extra is None:
        return None
    from gpuwatch.bootstrap.provider_access import missing_extra

    extra = missing_extra(name)
    if extra is None:
        return None
    from gpuwatch.installation import install_hint

    return f"{name}: it needs an extra that is not installed: {install_hint(extra)}"


def _with_their_extras(names: Iterable[str]) -> list[str]:
    import logging

    found = []
    for name in names:
        if missing := missing_extra_hint(name):
            logging.getLogger(__name__).error("%s; it is not asked", missing, extra={"provider": name})
        else:
            found.append(name)
    return found


def build_channels(settings: Settings, http: HttpClient) -> dict[str, Channel]:
    """The configured alert channels by name."""
    from gpuwatch import notifiers

    return {name: notifiers.build(one, http) for name, one in settings.channels.items()}


@contextmanager
def open_store(settings: Settings, *, upgrade_older: bool = True) -> Iterator[Database]:
    """The store for a command that writes: created or upgraded if need be, closed at the end.

    Args:
        upgrade_older: False: an older schema is an error, as for `check`.

    Raises:
        StoreNotReady: its schema is older, and must not be upgraded.
        StoreError: it cannot be opened, or a newer gpuwatch wrote it.
    """
    from gpuwatch.storage.database import open_database
    from gpuwatch.storage.migrate import create_or_require_head, upgrade

    opened = open_database(settings.database_url)
    try:
        (upgrade if upgrade_older else create_or_require_head)(opened)
        yield opened
    finally:
        opened.close()


@contextmanager
def open_store_read_only(settings: Settings) -> Iterator[Database]:
    """The store for a command that only reads: nothing is created, upgraded or written; closed at the end.

    Raises:
        StoreNotReady: there is no database, or its schema is older; the line says what to run.
        StoreError: it cannot be read, or a newer gpuwatch wrote it.
    """
    from gpuwatch.storage.migrate import open_read_only

    with open_read_only(settings.database_url) as store:
        yield store
