"""The composition root: builds and connects the real parts. Importing it has no effect; it alone reads the clock.

Imports are inside functions: a command loads only the parts that it uses (docs/decisions/0002).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from gpuwatch.engine.setup.failpoint import pace
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.history.market_history import MarketFilter
    from gpuwatch.engine.launches.following.launch_hooks import LaunchHooks
    from gpuwatch.ports import Alert, Channel, Now
    from gpuwatch.ports.declarations import Adapter, Tools
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.ports.market import HoldStore, SearchTurns
    from gpuwatch.providers.toolkit.http.client import PooledHttpClient
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database

_ID_OF_BYTE = b"abcdefghijklmnopqrstuvwxyz234567" * 8  # each letter is used for 8 of the 256 byte values


def real_now() -> datetime:
    """The wall clock: aware, UTC."""
    return datetime.now(UTC)


def monotonic() -> float:
    """Monotonic seconds, for waits and for the spacing of requests, at the `pace` of a test."""
    return time.monotonic() * pace()


def real_monotonic() -> float:
    """Monotonic seconds at real pace."""
    return time.monotonic()


def lease_clock() -> float:
    """Monotonic seconds that pass while the machine is suspended, too: a lease ends meanwhile."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _wait(stop: threading.Event, seconds: float) -> None:
    stop.wait(seconds / pace())


class TimeSource(NamedTuple):
    """The source of time for the daemon's parts; a simulation passes its own.

    Attributes:
        now: the wall clock: aware, UTC.
        monotonic: monotonic seconds.
        wait: sleeps for the given seconds; ends early when the event is set.
    """

    now: Now
    monotonic: Callable[[], float]
    wait: Callable[[threading.Event, float], object]


REAL_TIME = TimeSource(real_now, monotonic, _wait)


def new_id() -> str:
    """12 characters of a-z and 2-7: 60 random bits."""
    return os.urandom(12).translate(_ID_OF_BYTE).decode()


def secrets_of(settings: Settings) -> list[str]:
    """Every secret in the settings, for redaction."""
    from gpuwatch.settings.external_values import secret_values

    return secret_values(settings)


def open_http(settings: Settings) -> PooledHttpClient:
    """An HTTP client; the caller closes it."""
    from gpuwatch.providers.toolkit.http.client import PooledHttpClient

    return PooledHttpClient(secrets=secrets_of(settings))


@contextmanager
def http_client(settings: Settings) -> Iterator[PooledHttpClient]:
    """An HTTP client, closed at the end."""
    http = open_http(settings)
    try:
        yield http
    finally:
        http.close()


def build_adapters(  # noqa: PLR0913 every argument has a caller
    settings: Settings,
    http: HttpClient,
    names: Iterable[str] | None = None,
    stop: threading.Event | None = None,
    time_source: TimeSource = REAL_TIME,
    *,
    is_patient: bool = True,
    holds: HoldStore | None = None,
    turns: Mapping[str, SearchTurns] | None = None,
) -> dict[str, Adapter]:
    """The adapters of providers.

    Args:
        names: None: all enabled providers; one whose extra is not installed is skipped and logged.
        stop: ends waits for the next request.
        is_patient: False: a person is waiting; an unreachable server is tried only once.
        holds: current holds of providers; None: the stored holds, read only.
        turns: by provider, of searches with an account that other processes may use, too.

    Raises:
        UsageError: a named provider requires an extra that is not installed.
    """
    from gpuwatch import providers

    provider_names = _with_installed_extras(settings.providers) if names is None else list(names)
    for name in provider_names:
        if missing := missing_extra_hint(name):
            raise UsageError(missing)
    holds = command_holds(settings) if holds is None else holds
    tools = _tools(http, stop or threading.Event(), time_source, holds, turns or {}, is_patient=is_patient)
    return {name: providers.build_with(settings.providers[name].revealed(), tools) for name in provider_names}


def _tools(
    http: HttpClient,
    stop: threading.Event,
    time_source: TimeSource,
    holds: HoldStore,
    turns: Mapping[str, SearchTurns],
    *,
    is_patient: bool,
) -> Tools:
    from gpuwatch.ports.declarations import Tools

    def sleep(seconds: float) -> None:
        time_source.wait(stop, seconds)

    return Tools(
        http=http,
        now=time_source.now,
        monotonic=time_source.monotonic,
        sleep=sleep,
        stop=stop,
        is_patient=is_patient,
        holds=holds,
        turns=turns,
    )


def command_holds(settings: Settings, may_write: bool = False) -> HoldStore:
    """The stored holds for a command; the store is opened only when needed. `may_write`: may also write them."""
    from gpuwatch.storage.market.provider_holds import CommandHolds

    return CommandHolds(settings.database_url, may_write)


def missing_extra_hint(name: str) -> str | None:
    """One line: what to install before a provider can be used; None: nothing."""
    from gpuwatch import providers

    if providers.info(name).extra is None:
        return None
    from gpuwatch.bootstrap.provider_access import missing_extra

    extra = missing_extra(name)
    if extra is None:
        return None
    from gpuwatch.installation import install_hint

    return f"{name}: a required extra is not installed: {install_hint(extra)}"


def _with_installed_extras(names: Iterable[str]) -> list[str]:
    import logging

    installed = []
    for name in names:
        if missing := missing_extra_hint(name):
            logging.getLogger(__name__).error("%s; not polling it", missing, extra={"provider": name})
        else:
            installed.append(name)
    return installed


def build_channels(settings: Settings, http: HttpClient) -> dict[str, Channel]:
    """The configured alert channels, by name."""
    from gpuwatch import notifiers

    return {name: notifiers.build(channel.revealed(), http) for name, channel in settings.channels.items()}


def log_alert(alert: Alert) -> None:
    """Log an alert completely, whatever channels there are: its headline as the message, all details below it."""
    import logging

    from gpuwatch.notifiers.toolkit import lines, plain
    from gpuwatch.ports import AlertKind, Severity

    details = [text for line in lines(alert)[1:] if (text := plain(line))]
    fields = {"alert_id": alert.alert_id, "kind": alert.kind.value, "subject": alert.subject, "details": details}
    levels = {Severity.INFO: logging.INFO, Severity.WARNING: logging.WARNING, Severity.CRITICAL: logging.CRITICAL}
    level = levels[alert.severity]
    if alert.kind is AlertKind.BLIND:  # blindness is urgent in every log, whatever its severity
        level = max(level, logging.ERROR)
    logging.getLogger("gpuwatch.alerts").log(level, "%s", alert.headline, extra=fields)


@contextmanager
def open_store(settings: Settings, prepare: Callable[[Database], object] | None = None) -> Iterator[Database]:
    """The store for a command that writes: created if missing, closed at the end.

    Args:
        prepare: called first. None: an older schema is an error, because a daemon of an older version may be using it;
            `run`, `import` and `demo` upgrade it (docs/decisions/0004).

    Raises:
        StoreNotReady: its schema is older; the message says what to run.
        StoreError: it cannot be opened, or a newer gpuwatch wrote it.
    """
    from gpuwatch.storage.setup.database import open_database
    from gpuwatch.storage.setup.migrate import create_or_require_head

    database = open_database(settings.database_url)
    database.owner = settings.owner
    try:
        (prepare or create_or_require_head)(database)
        yield database
    finally:
        database.close()


@contextmanager
def open_store_read_only(settings: Settings) -> Iterator[Database]:
    """The store for a command that only reads: never creates, upgrades or writes; closed at the end.

    Raises:
        StoreNotReady: there is no database, or its schema is older; the message names the command to run.
        StoreError: it cannot be read, or a newer gpuwatch wrote it.
    """
    from gpuwatch.storage.setup.migrate import open_read_only

    if _SHARED.stores is not None:
        database = _SHARED.stores.open(settings.database_url)
        database.owner = settings.owner
        yield database
        return
    with open_read_only(settings.database_url) as store:
        store.owner = settings.owner
        yield store


@contextmanager
def open_history(
    settings: Settings, scope: MarketFilter, since: datetime, until: datetime, *, needs_prices: bool = True
) -> Iterator[Database]:
    """The store for a question about prices, with what it has dropped of this part of the market from the lake.

    Args:
        needs_prices: False: the question is about hourly prices and polls alone.

    Raises:
        UsageError: the lake is needed, and its extra is not installed.
        StoreError: as `open_store_read_only`, or the lake cannot be read.
    """
    with open_store_read_only(settings) as store:
        if not settings.history.lake:
            yield store
            return
        from gpuwatch.storage.history.lake.lake_reader import open_with_lake

        with open_with_lake(store, settings.history.lake, scope, since, until, needs_prices=needs_prices) as history:
            yield history


class OpenStores:
    """The stores of a process that serves pages: each is opened once.

    Between requests it keeps the compiled statements, which take longer to compile than to run, and no connection: one
    that is kept would hold a file that was replaced, and count among those of the server.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._databases: dict[str, Database] = {}
        self._uses: dict[str, int] = {}

    @contextmanager
    def use(self, url: str) -> Iterator[Database]:
        """Read a store as it is at one moment. Raises StoreNotReady and StoreError as `migrate.open_read_only`."""
        from gpuwatch.storage.setup.database import open_database
        from gpuwatch.storage.setup.migrate import require_head

        with self._lock:
            if url not in self._databases:
                self._databases[url] = open_database(url, read_only=True)
            database = self._databases[url]
            self._uses[url] = self._uses.get(url, 0) + 1
        try:
            with database.one_moment():
                require_head(database)  # another process may have upgraded it, or put another file in its place
                yield database
        finally:
            with self._lock:
                self._uses[url] -= 1
                if not self._uses[url]:
                    database.close()


class _SharedStores:
    """Stores that `open_store_read_only` opened in a block of `share_open_stores`, by address."""

    def __init__(self, opened: OpenStores, stack: ExitStack) -> None:
        self._opened = opened
        self._stack = stack
        self._databases: dict[str, Database] = {}

    def open(self, url: str) -> Database:
        if url not in self._databases:
            self._databases[url] = self._stack.enter_context(self._opened.use(url))
        return self._databases[url]


class _OfThread(threading.local):
    """What a thread shares: a reading that it begins on another thread opens the store itself."""

    stores: _SharedStores | None = None


_SHARED = _OfThread()


@contextmanager
def share_open_stores(opened: OpenStores) -> Iterator[None]:
    """Within the block, on this thread, a store is opened for reading only once, and read in one transaction.

    For pages that combine several use cases: opening, checking the schema and compiling the same queries took
    longer than reading, and the figures of a page belong together.

    Args:
        opened: the stores of the process.
    """
    with ExitStack() as stack:
        before, _SHARED.stores = _SHARED.stores, _SharedStores(opened, stack)
        try:
            yield
        finally:
            _SHARED.stores = before


def build_hooks(
    settings: Settings,
    store: Database,
    http: HttpClient,
    stopping: threading.Event,
    time_source: TimeSource = REAL_TIME,
) -> LaunchHooks:
    """The hooks of launches over an open store.

    Args:
        stopping: when set, running hooks end and no other starts.
    """
    from gpuwatch.engine.launches.following.launch_hooks import LaunchHooks
    from gpuwatch.hooks.owner_hooks import HookRunner
    from gpuwatch.storage.launches.hook_runs import SqlHookQueue

    return LaunchHooks(
        SqlHookQueue(store),
        HookRunner(http, stopping),
        watches={watch.name: watch for watch in settings.watches},
        new_id=new_id,
        clock=time_source.now,
        monotonic=time_source.monotonic,
        stopping=stopping,
    )
