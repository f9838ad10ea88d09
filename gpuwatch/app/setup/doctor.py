"""The checks of `gpuwatch doctor`. Each yields findings: the state, and what to do about it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import tzinfo
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from gpuwatch.app.launches.budget_uses import uses_of_budgets
from gpuwatch.app.market.provider_status import blind_lanes, provider_statuses
from gpuwatch.app.setup.doctor_account import KnownLaunches, account_findings, image_findings, rented_findings
from gpuwatch.app.setup.doctor_adapters import channel_findings, own_checks, prerequisite_findings
from gpuwatch.app.watches.checklist import unticked_watches
from gpuwatch.app.watches.pauses import pause_lines
from gpuwatch.bootstrap import build_adapters, http_client, missing_extra_hint, open_store_read_only, real_now
from gpuwatch.bootstrap.keeper_building import obligation_file
from gpuwatch.bootstrap.polling import polling_warnings
from gpuwatch.bootstrap.provider_access import (
    can_rent,
    has_credentials,
    orchestrator,
    providers_to_follow,
    resolve_provider,
)
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.money import dollars, usd
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.domain.watches.owner_names import owner_of, plain_name
from gpuwatch.domain.watches.watch import Action
from gpuwatch.errors import GpuwatchError, ProviderError, StoreError, StoreMissing, StoreNotReady
from gpuwatch.installation import install_hint
from gpuwatch.ports import Query
from gpuwatch.ports.findings import Finding
from gpuwatch.ports.market import SelfChecking
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.alerts.pauses import SqlPauseRepository
from gpuwatch.storage.history.store_growth import undecided_keep
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.database import wal_is_safe
from gpuwatch.storage.setup.migrate import require_writable
from gpuwatch.storage.setup.sqlite_driver import sqlite_driver

if TYPE_CHECKING:
    from gpuwatch.ports.declarations import Adapter
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database

CLOCK_OFF_S = 5.0
_NEARLY_PERCENT = 80


def run_checks(settings: Settings, provider: str | None = None) -> Iterator[Finding]:
    """Run all checks that neither rent nor send a message. Providers and channels add their own checks.

    Args:
        provider: check only this one, including its prerequisites for the first rental.

    Raises:
        UsageError: it is not enabled.
    """
    if provider is not None:
        yield from _one_provider(settings, resolve_provider(settings, provider))
        return
    yield from _settings(settings)
    yield from _state_folder(settings)
    yield from _store(settings)
    launches = _known_launches(settings)
    yield from _budgets(settings, launches)
    yield from _missing_extras(settings)
    yield from _polling(settings)
    yield from _orchestrator(settings)
    with http_client(settings) as http:
        yield from _unmanaged(settings, launches, http)
        for name, adapter in build_adapters(settings, http).items():
            yield from _provider(settings, name, adapter, launches)
            if (doctor := adapter.info.doctor) is not None:
                yield from own_checks(name, partial(doctor, settings.providers[name].revealed(), http))
        yield from _rows(settings)
        for name in settings.providers:
            yield from _clock(http, settings.providers[name].base_url)
        yield from channel_findings(settings, http)


def _orchestrator(settings: Settings) -> Iterator[Finding]:
    engine = orchestrator(settings)
    if engine is None:
        return
    try:
        yield Finding(area=engine.name, state="ok", text=f"it answers, project {engine.account_id()}")
    except ProviderError as error:
        yield Finding(area=engine.name, state="fault", text=str(error), mend="multi-node jobs wait until it answers")


def _one_provider(settings: Settings, name: str) -> Iterator[Finding]:
    if lack := missing_extra_hint(name):
        yield Finding(area=name, state="fault", text=lack.removeprefix(f"{name}: "))
        return
    with http_client(settings) as http:
        adapter = build_adapters(settings, http, [name])[name]
        yield from _provider(settings, name, adapter, _known_launches(settings))
        if (doctor := adapter.info.doctor) is not None:
            yield from own_checks(name, partial(doctor, settings.providers[name].revealed(), http))
        yield from prerequisite_findings(settings, adapter)


def _settings(settings: Settings) -> Iterator[Finding]:
    source = settings.source_file or "no settings file; using environment and defaults"
    count = count_text(len(settings.watches), "watch", "watches")
    yield Finding(area="settings", state="ok", text=f"{source}: {count}")
    if not settings.watches:
        mend = "add one; see: gpuwatch docs settings" if settings.source_file else "set up the first: gpuwatch init"
        yield Finding(area="settings", state="note", text="no [[watch]] is defined", mend=mend)
    yield from _commands(settings)
    renting = [watch.name for watch in settings.watches if watch.action is Action.LAUNCH]
    if renting and settings.dry_run:
        names = ", ".join(renting)
        text = f"dry_run = true: {names} would rent, but does not"
        yield Finding(area="settings", state="note", text=text, mend="set dry_run = false to rent")
    if renting and not settings.dry_run and not any(map(can_rent, settings.providers.values())):
        text = "a watch rents, but no provider where gpuwatch can rent has a key"
        yield Finding(area="settings", state="fault", text=text, mend="set VAST_API_KEY, or another provider's key")


def _commands(settings: Settings) -> Iterator[Finding]:
    """Whether the programs of `action = "command"` exist, for the user who runs doctor."""
    for watch in settings.watches:
        if watch.action is not Action.COMMAND:
            continue
        executable = shutil.which(watch.command[0])
        if executable is None:
            text = f"watch {watch.name}: no executable program {watch.command[0]!r}"
            mend = "use its full path, or add its folder to the PATH of gpuwatch run"
            yield Finding(area="command", state="fault", text=text, mend=mend)
        else:
            dry_run_text = "; dry_run = true: it does not run" if settings.dry_run else ""
            yield Finding(area="command", state="ok", text=f"watch {watch.name}: {executable}{dry_run_text}")


def _missing_extras(settings: Settings) -> Iterator[Finding]:
    for name in settings.providers:
        if lack := missing_extra_hint(name):
            text, _, mend = lack.removeprefix(f"{name}: ").partition(": ")
            yield Finding(area=name, state="fault", text=text, mend=mend)


def _polling(settings: Settings) -> Iterator[Finding]:
    try:
        with open_store_read_only(settings) as store:
            warnings = list(polling_warnings(settings, store))
    except StoreError:  # `_store` reports it
        warnings = list(polling_warnings(settings))
    for warning in warnings:
        name, _, warning_text = warning.partition(": ")
        text, _, mend = warning_text.partition(". ")
        yield Finding(area=name, state="note", text=text, mend=mend)


def _store(settings: Settings) -> Iterator[Finding]:
    try:
        require_writable(settings.database_url)
        with open_store_read_only(settings) as store:
            if store.is_sqlite:
                journal = "WAL" if wal_is_safe() else "TRUNCATE"
                text = f"SQLite {sqlite_driver().sqlite_version}, journal {journal}, up to date"
                mend = None if wal_is_safe() else f"install a newer SQLite to use WAL: {install_hint('sqlite-new')}"
                yield Finding(area="database", state="ok" if wal_is_safe() else "note", text=text, mend=mend)
            else:
                yield Finding(area="database", state="ok", text="PostgreSQL, up to date")
            if settings.history.keep is None and (undecided := undecided_keep(store, real_now())) is not None:
                text, _, mend = undecided.line.partition(": copy ")
                yield Finding(area="database", state="note", text=text, mend=f"copy {mend}")
            yield from _outbox(store, ZoneInfo(settings.timezone))
            paused = pause_lines(SqlPauseRepository(store).load(), real_now(), settings.timezone)
            for line in [*paused, *unticked_watches(settings, store)]:
                yield Finding(area="renting", state="note", text=line)
    except StoreMissing as error:
        yield Finding(area="database", state="note", text=str(error))
        for line in unticked_watches(settings, None):
            yield Finding(area="renting", state="note", text=line)
    except StoreNotReady as error:
        yield Finding(
            area="database", state="note", text=str(error), mend="run gpuwatch store upgrade, or gpuwatch run"
        )
    except StoreError as error:
        yield Finding(
            area="database", state="fault", text=str(error), mend="check database_url, the folder and the disk"
        )


def _state_folder(settings: Settings) -> Iterator[Finding]:
    """Whether the keeper's file can be written: without it, the daemon does not start."""
    try:
        obligation_file(settings).require_writable()
    except StoreError as error:
        text, _, mend = str(error).partition("; ")
        yield Finding(area="state folder", state="fault", text=text, mend=mend)


def _outbox(store: Database, zone: tzinfo) -> Iterator[Finding]:
    outbox = Outbox(store)
    for channel in outbox.broken_channels():
        yield Finding(
            area=f"alerts by {channel.channel}",
            state="fault",
            text=f"the last message was rejected: {channel.error}",
            mend=f"fix [notify.{plain_name(channel.channel)}], then run gpuwatch alerts test",
        )
    for waiting in outbox.pending():
        text = f"{waiting.count} waiting since {format_moment(waiting.oldest_at, zone)}"
        yield Finding(
            area=f"alerts by {waiting.channel}", state="note", text=text, mend="check that gpuwatch run is running"
        )


def _known_launches(settings: Settings) -> KnownLaunches:
    """Every launch; none if the store cannot be read, which `_store` reports."""
    try:
        with open_store_read_only(settings) as store:
            ledger = SqlLaunchRepository(store)
            foreign = {name: ledger.known_foreign_instances(name) for name in settings.providers}
            return KnownLaunches(launches=ledger.all(), foreign_instances=foreign)
    except StoreError:
        return KnownLaunches()


def _budgets(settings: Settings, launches: KnownLaunches) -> Iterator[Finding]:
    """The used part of each limit. A limit that is reached prevents new launches."""
    for use in uses_of_budgets(settings, launches.launches, {}, None, real_now()):
        percent = use.percent(use.used) or 0.0
        text = f"{use.limit_name}: {dollars(usd(use.used))} of {dollars(usd(use.limit))} used, {percent:.0f} %"
        mend = "gpuwatch rents nothing beyond it; see: gpuwatch launches costs" if percent >= _NEARLY_PERCENT else None
        yield Finding(area=_budget_name(use.watch), state="note" if mend else "ok", text=text, mend=mend)
    scopes: list[tuple[str | None, Budget]] = [(None, settings.budget), *((w.name, w.budget) for w in settings.watches)]
    own = [launch for launch in launches.launches if owner_of(launch.watch) == settings.owner]
    alive = [launch for launch in own if not launch.is_over]
    for watch, budget in scopes:
        if budget.max_instances is not None:
            count = sum(launch.promised.machines for launch in alive if watch in (None, launch.watch))
            state = "ok" if count < budget.max_instances else "note"
            text = f"max_instances: {count} of {budget.max_instances} active"
            yield Finding(area=_budget_name(watch), state=state, text=text)


def _budget_name(watch: str | None) -> str:
    return "budget" if watch is None else f"budget of {watch}"


def _unmanaged(settings: Settings, launches: KnownLaunches, http: HttpClient) -> Iterator[Finding]:
    """Active launches at providers that cannot be managed."""
    alive = dict.fromkeys(
        launch.provider
        for launch in launches.launches
        if not launch.is_over and not launch.is_by_command and owner_of(launch.watch) == settings.owner
    )
    followed = providers_to_follow(settings, http, alive)
    for name in alive:
        if name in followed:
            continue
        ids = ", ".join(launch.launch_id for launch in launches.alive(name))
        reason = f"{name} is not configured, has no key, or cannot rent with these settings"
        text = f"{reason}: gpuwatch cannot manage the launches there ({ids})"
        mend = f"restore [providers.{name}] and its key, or end them at the provider; see: gpuwatch launches"
        yield Finding(area=name, state="fault", text=text, mend=mend)
        yield from rented_findings(name, None, launches)


def _provider(settings: Settings, name: str, adapter: Adapter, launches: KnownLaunches) -> Iterator[Finding]:
    has_key = has_credentials(settings.providers[name])
    try:
        answer = adapter.market.search(Query(limit=1))
        text = f"answers in {answer.elapsed_s:.1f} s" + ("" if has_key else "; searching requires no key here")
        yield Finding(area=name, state="ok", text=text)
        for note in answer.drift:
            yield Finding(area=name, state="note", text=f"format: {note}")
    except ProviderError as error:
        text = str(error).removeprefix(f"{name}: ")
        yield Finding(area=name, state="fault", text=text, mend="check base_url, the network and the key")
    if isinstance(adapter.market, SelfChecking):
        yield from own_checks(name, adapter.market.findings)
    if not adapter.info.launches:
        yield Finding(area=name, state="note", text="offers are polled; gpuwatch cannot rent there")
    elif not has_key:
        mend = f"set {adapter.info.key_names[0]} to rent there" if adapter.info.key_names else None
        seen = "gpuwatch polls offers, but cannot rent"
        text = f"no key: {seen if adapter.info.searches_without_key else 'gpuwatch can neither poll nor rent'}"
        yield Finding(area=name, state="note", text=text, mend=mend)
    elif adapter.launcher is not None:
        yield from image_findings(settings, name)
        yield from account_findings(settings, name, adapter.launcher, adapter.info.key_rights, launches)


def _rows(settings: Settings) -> Iterator[Finding]:
    """The row quota of each provider, and whether it answers."""
    try:
        statuses = provider_statuses(settings)
    except StoreError:
        return  # `_store` reports it
    for status in statuses:
        if not status.is_on:
            continue
        plan = status.plan
        if plan.rows_left is not None:
            sweep = (
                "none before the reset" if plan.sweep_every_s is None else f"every {plan.sweep_every_s / 60:.0f} min"
            )
            used = f"{plan.rows_used:,} of {count_text(plan.rows_per_day, 'row')} used, {plan.rows_left:,} left"
            yield Finding(area=status.provider, state="fault" if plan.spent else "ok", text=f"{used}; sweep {sweep}")
        if status.polling is not None and status.polling.hold is not None:
            until = format_moment(status.polling.hold.until, ZoneInfo(settings.timezone))
            text = f"no search before {until}: {status.polling.hold.reason}"
            yield Finding(area=status.provider, state="note", text=text)
        for lanes, health in blind_lanes(status):
            since = format_moment(health.blind_since or real_now(), ZoneInfo(settings.timezone))
            text = f"blind since {since} ({lanes}): {health.last_error}"
            yield Finding(area=status.provider, state="fault", text=text, mend="see the daemon's log")
        if status.empty is not None:
            text = f"since {format_moment(status.empty.set_at, ZoneInfo(settings.timezone))}: {status.empty.reason}"
            yield Finding(area=status.provider, state="fault", text=text, mend="compare with the provider's own page")


def _clock(http: HttpClient, base_url: str) -> Iterator[Finding]:
    """The provider's clock, from its Date header, compared with ours."""
    try:
        header = http.ask("GET", base_url.rstrip("/") + "/", deadline_s=10).headers.get("date")
        server_time = parsedate_to_datetime(header) if header else None
    except (GpuwatchError, ValueError):
        return
    if server_time is None or server_time.tzinfo is None:
        return
    off_s = (real_now() - server_time).total_seconds()
    if abs(off_s) > CLOCK_OFF_S:
        text = f"{off_s:+.0f} s off the provider's clock"
        yield Finding(area="clock", state="fault", text=text, mend="enable time synchronisation (timedatectl)")
    else:
        yield Finding(area="clock", state="ok", text="agrees with the provider's clock")
