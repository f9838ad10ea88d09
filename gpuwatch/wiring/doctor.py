"""What `gpuwatch doctor` looks at. Each check answers with findings: what is, and what to do about it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.errors import GpuwatchError, KeyRejected, ProviderError, StoreError
from gpuwatch.ports import Query
from gpuwatch.watches.watch import Action
from gpuwatch.wiring import adapters, channels, database, http_client, real_now
from gpuwatch.wiring.renting import renting_lines
from gpuwatch.wiring.report import standings

if TYPE_CHECKING:
    from gpuwatch.net import Http
    from gpuwatch.providers import Adapter
    from gpuwatch.settings import Settings

CLOCK_OFF_S = 5.0
_LEAST_CREDIT_USD = 1.0


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at. `state`: "ok", "note" (works, worth knowing) or "fault" (exit code 1)."""

    area: str
    state: str
    text: str
    mend: str | None = None


def examine(settings: Settings) -> Iterator[Finding]:
    """Everything that can be checked without renting or telling anybody."""
    yield from _settings(settings)
    yield from _store(settings)
    with http_client(settings) as http:
        for name, adapter in adapters(settings, http).items():
            yield from _provider(settings, name, adapter)
        yield from _rows(settings)
        for name in settings.providers:
            yield from _clock(http, settings.providers[name].base_url)
        yield from _channels(settings, http)


def _settings(settings: Settings) -> Iterator[Finding]:
    where = settings.source_file or "no settings file; environment and defaults"
    yield Finding(area="settings", state="ok", text=f"{where}: {len(settings.watches)} watches")
    if not settings.watches:
        yield Finding(
            area="settings", state="note", text="there is no [[watch]]", mend="gpuwatch init writes an example"
        )
    renting = [watch.name for watch in settings.watches if watch.action is Action.LAUNCH]
    if renting and settings.dry_run:
        names = ", ".join(renting)
        text = f"dry_run = true: {names} would rent, and does not"
        yield Finding(area="settings", state="note", text=text, mend="set dry_run = false when you mean it")
    if renting and not settings.dry_run and not any(p.api_key for p in settings.providers.values()):
        yield Finding(
            area="settings", state="fault", text="a watch rents, but no provider has a key", mend="set VAST_API_KEY"
        )


def _store(settings: Settings) -> Iterator[Finding]:
    from gpuwatch.storage.database import wal_is_safe

    try:
        with database(settings) as store:
            if store.is_sqlite:
                journal = "WAL" if wal_is_safe() else "TRUNCATE"
                text = f"SQLite {sqlite3.sqlite_version}, journal {journal}, up to date"
                mend = None if wal_is_safe() else "a newer SQLite (pip install 'gpuwatch[sqlite-new]') allows WAL"
                yield Finding(area="database", state="ok" if wal_is_safe() else "note", text=text, mend=mend)
            else:
                yield Finding(area="database", state="ok", text="PostgreSQL, up to date")
            yield from _outbox(store)
            for line in renting_lines(store, real_now(), settings.timezone):
                yield Finding(area="renting", state="note", text=line)
    except StoreError as error:
        yield Finding(
            area="database", state="fault", text=str(error), mend="check database_url, the folder and the disk"
        )


def _outbox(store: object) -> Iterator[Finding]:
    from gpuwatch.storage.outbox import Outbox

    outbox = Outbox(store)  # type: ignore[arg-type]
    for broken in outbox.broken_channels():
        yield Finding(
            area=f"alerts by {broken.channel}",
            state="fault",
            text=f"the last message was refused: {broken.error}",
            mend=f"mend [notify.{broken.channel}], then gpuwatch notify",
        )
    for waiting in outbox.pending():
        text = f"{waiting.count} waiting since {waiting.oldest_at:%Y-%m-%d %H:%M} UTC"
        yield Finding(area=f"alerts by {waiting.channel}", state="note", text=text, mend="is gpuwatch run running?")


def _provider(settings: Settings, name: str, adapter: Adapter) -> Iterator[Finding]:
    has_key = settings.providers[name].api_key is not None
    try:
        answer = adapter.market.search(Query(limit=1))
        text = f"answers in {answer.elapsed_s:.1f} s" + ("" if has_key else "; searching needs no key here")
        yield Finding(area=name, state="ok", text=text)
        for note in answer.drift:
            yield Finding(area=name, state="note", text=f"format: {note}")
    except ProviderError as error:
        yield Finding(area=name, state="fault", text=str(error), mend="check base_url, the network and the key")
    if not has_key:
        mend = f"set {adapter.info.key_names[0]} to rent there" if adapter.info.key_names else None
        yield Finding(area=name, state="note", text="no key: offers are watched, nothing can be rented", mend=mend)
    elif adapter.launcher is not None:
        yield _credit(name, adapter.launcher.credit_usd)


def _rows(settings: Settings) -> Iterator[Finding]:
    """How each provider's rows of the day are planned, and whether gpuwatch is blind there."""
    try:
        found = standings(settings)
    except StoreError:
        return  # told under "database"
    for standing in found:
        plan = standing.plan
        if plan.rows_left is not None:
            sweep = (
                "none before the reset" if plan.sweep_every_s is None else f"every {plan.sweep_every_s / 60:.0f} min"
            )
            text = f"{plan.rows_used} of {plan.rows_per_day} rows used, {plan.rows_left} left; sweep {sweep}"
            yield Finding(area=standing.provider, state="fault" if plan.spent else "ok", text=text)
        if standing.sight.blind_since is not None:
            text = f"blind since {standing.sight.blind_since:%Y-%m-%d %H:%M} UTC: {standing.sight.last_error}"
            yield Finding(area=standing.provider, state="fault", text=text, mend="see the daemon's log")


def _credit(name: str, ask: Callable[[], float | None]) -> Finding:
    try:
        credit = ask()
    except KeyRejected as error:
        return Finding(area=name, state="fault", text=f"the key does not work: {error}", mend="renew the key")
    except GpuwatchError as error:
        return Finding(area=name, state="note", text=f"the account could not be asked: {error}")
    if credit is None:
        return Finding(area=name, state="ok", text="the key works")
    state = "ok" if credit >= _LEAST_CREDIT_USD else "note"
    return Finding(area=name, state=state, text=f"the key works; credit {credit:.2f} $")


def _clock(http: Http, base_url: str) -> Iterator[Finding]:
    """The provider's own clock, by its Date header, against ours."""
    try:
        header = http.ask("GET", base_url.rstrip("/") + "/", deadline_s=10).headers.get("date")
        theirs = parsedate_to_datetime(header) if header else None
    except (GpuwatchError, ValueError):
        return
    if theirs is None or theirs.tzinfo is None:
        return
    off_s = (real_now() - theirs).total_seconds()
    if abs(off_s) > CLOCK_OFF_S:
        text = f"{off_s:+.0f} s off the provider's clock"
        yield Finding(area="clock", state="fault", text=text, mend="switch time synchronisation on (timedatectl)")
    else:
        yield Finding(area="clock", state="ok", text="agrees with the provider's")


def _channels(settings: Settings, http: Http) -> Iterator[Finding]:
    configured = channels(settings, http)
    if not configured:
        yield Finding(
            area="alerts", state="note", text="no channel is configured", mend="add [notify.telegram] or [notify.email]"
        )
    for name in configured:
        yield Finding(area=f"alerts by {name}", state="ok", text="configured; gpuwatch notify sends a test message")
