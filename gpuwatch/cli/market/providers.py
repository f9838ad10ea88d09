"""`gpuwatch providers`: all providers, their status, and how their daily rows are planned; accounts; a new provider."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command, command_actor
from gpuwatch.cli.options import json_option, provider_option, settings_option
from gpuwatch.cli.output import displayable, json_out, local, note
from gpuwatch.cli.terminal_tables import left, print_list, table, text
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.money import per_hour
from gpuwatch.errors import StoreMissing, StoreNotReady, UsageError

if TYPE_CHECKING:
    from gpuwatch.app.market.provider_status import ConfiguredProvider, PollingStatus, ProviderStatus
    from gpuwatch.domain.watches.query_plan import SharedQuery
    from gpuwatch.settings import Settings
    from gpuwatch.storage.history.queries.poll_queries import LastPoll

_NAMES_SHOWN = 6
_MINUTE_S = 60.0
_KEY_TEXTS = {True: "this one", False: "another", None: "not known"}


def _names_by_kind() -> dict[str, tuple[str, ...]]:
    from gpuwatch.providers import names

    return {"Providers": names()}


@click.command(cls=Command, examples=("gpuwatch providers list",), lists=_names_by_kind)
@json_option
@settings_option
def providers(as_json: bool, settings: Settings) -> None:
    """List all providers, enabled or not: status, prices, credentials, last answer, row quota. Sends no requests.

    Exit codes: 0 done, 2 settings are wrong, 3 there is no database yet: shows the settings only.
    """
    from gpuwatch.app.market.provider_status import configured_providers, provider_status_view, provider_statuses
    from gpuwatch.bootstrap.polling import polling_warnings

    try:
        statuses = provider_statuses(settings)
    except StoreNotReady as error:
        if not as_json:
            _print(configured_providers(settings), settings.timezone)
            for warning in polling_warnings(settings):
                note(warning)
        if isinstance(error, StoreMissing):
            note("no provider has been polled yet")
        raise
    if as_json:
        json_out([provider_status_view(status) for status in statuses])
    else:
        _print(statuses, settings.timezone)


def _print(statuses: Sequence[ConfiguredProvider], timezone: str) -> None:
    from gpuwatch.app.market.provider_status import ProviderStatus
    from gpuwatch.providers import broken

    for status in statuses:
        if status.is_on:
            for line in _configured_lines(status):
                click.echo(line)
            for line in (
                _recorded_lines(status, timezone) if isinstance(status, ProviderStatus) else _planned_lines(status)
            ):
                click.echo(line)
    if off := [status for status in statuses if not status.is_on]:
        table(_OFF_COLUMNS, off)
    for name, reason in broken().items():
        click.echo(f"{name}  not loaded: {reason}")


def _configured_lines(configured: ConfiguredProvider) -> Iterator[str]:
    from gpuwatch.installation import install_hint

    options, facts = configured.settings, (_kind_text(configured), configured.credentials, _rents(configured))
    yield f"{configured.provider}  {configured.status}; {'; '.join(facts)}"
    yield f"  at      {options.base_url}, at least {options.search_interval_s:g} s between searches"
    if configured.missing_extra is not None:
        yield f"  needs   {install_hint(configured.missing_extra)}"


def _planned_lines(configured: ConfiguredProvider) -> Iterator[str]:
    """The plan according to the settings, before anything was polled."""
    per_day = configured.settings.rows_per_day
    yield f"  rows    {f'at most {per_day} a day' if per_day else 'no quota'}"
    yield f"  hunt    every {configured.settings.poll_every_s:g} s per watch"


def _recorded_lines(status: ProviderStatus, timezone: str) -> Iterator[str]:
    plan, newest = status.plan, status.last_poll
    used = (
        f"{plan.rows_used} of {plan.rows_per_day} used, {plan.rows_left} left until {local(plan.resets_at, timezone)}"
    )
    yield f"  rows    {f'{plan.rows_used} today, no quota' if plan.rows_left is None else used}"
    matched = f"a matched watch every {plan.matched_every_s:.0f} s"
    yield f"  hunt    every {status.settings.poll_every_s:g} s per watch; {matched}"
    if plan.sweep_every_s is None:
        yield "  sweep   none before the reset: not enough rows left in the quota"
    else:
        due = "when the daemon starts" if status.next_sweep_at is None else local(status.next_sweep_at, timezone)
        yield f"  sweep   every {_rounded_duration(plan.sweep_every_s)}; next {due}"
    if status.polling is not None:
        yield from _polling_lines(status.polling, timezone)
    yield from _blind_lines(status, timezone)
    yield f"  seen    {'never' if newest is None else _seen(newest, timezone)}"
    if newest is not None and newest.skipped:
        yield f"  unread  {_not_understood(newest.skipped, status)}"
    if status.drift:
        last = status.drift[-1]
        yield (
            f"  format  changed {count_text(len(status.drift), 'time')}; last {last.text} "
            f"({local(last.first_seen_at, timezone)})"
        )


def _rounded_duration(seconds: float) -> str:
    """ "30s", "5m", "1h42m": to whole minutes from two minutes on."""
    from gpuwatch.domain.setup.durations import format_duration

    return format_duration(round(seconds) if seconds < 2 * _MINUTE_S else round(seconds / _MINUTE_S) * _MINUTE_S)


def _blind_lines(status: ProviderStatus, timezone: str) -> Iterator[str]:
    """The blind lanes, and the state of the other lane."""
    from gpuwatch.app.market.provider_status import blind_lanes

    blind = blind_lanes(status)
    for lanes, health in blind:
        since = local(health.blind_since, timezone)
        yield f"  BLIND   {lanes} since {since}: {health.last_error or 'no complete answer'}"
    if status.empty is not None:
        yield f"  EMPTY   since {local(status.empty.set_at, timezone)}: {status.empty.reason}"
    for lane, health in status.lanes.items() if blind else ():
        if health.blind_since is None and health.complete_at is not None:
            yield f"  answers {lane}: last complete answer {local(health.complete_at, timezone)}"


def _polling_lines(polling: PollingStatus, timezone: str) -> Iterator[str]:
    plan, hold = polling.plan, polling.hold
    capacity = "" if plan.available_a_minute is None else f" of {plan.available_a_minute:g} possible"
    needed = plan.hunts_a_minute + plan.sweeps_a_minute
    by_lane = f"hunt {plan.hunts_a_minute:.3g}, sweep {plan.sweeps_a_minute:.3g}"
    yield f"  plan    {needed:.3g} searches a minute{capacity} ({by_lane})"
    yield f"  last h  {', '.join(f'{lane} {count}' for lane, count in polling.last_hour.items())} searches"
    if plan.watches:
        watches = count_text(len(plan.watches), "watch", "watches")
        yield f"  react   an offer for one of {watches} is seen within {plan.round_s:.0f} s"
    if plan.is_joined:
        yield from map(_shared_query_line, sorted(plan.shared_queries, key=lambda query: query.every_s))
    if plan.warning is not None:
        yield f"  SLOW    {plan.warning.removeprefix(f'{plan.provider}: ')}"
    if hold is not None:
        reset = "" if hold.quota_resets_at is None else f"; reset {local(hold.quota_resets_at, timezone)}"
        yield f"  HELD    no search before {local(hold.until, timezone)}: {hold.reason}{reset}"


def _shared_query_line(shared: SharedQuery) -> str:
    """ "  polls   every 74 s  H200, H200 NVL up to $1.88/h, some 2 rows, for h200, nvl"."""
    query = shared.query
    limit = "" if query.max_listed_usd_hour is None else f" up to {per_hour(query.max_listed_usd_hour)}"
    rows = "no rows" if not shared.rows else f"some {shared.rows:.0f} rows"
    gpus = f"{_names_text(query.gpus)}{' spot' if query.spot else ''}"
    return f"  polls   every {shared.every_s:.0f} s: {gpus}{limit}, {rows}, for {_names_text(shared.watches)}"


def _names_text(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return f"{', '.join(names[:_NAMES_SHOWN])}{more}"


def _seen(newest: LastPoll, timezone: str) -> str:
    of = f" of {newest.gpu}" if newest.gpu else ""  # one poll of several: another GPU's may have had more
    return f"{local(newest.at, timezone)}, {count_text(newest.offers, 'offer')}{of} at that poll ({newest.lane})"


def _not_understood(skipped: int, status: ProviderStatus) -> str:
    """ "7 plans not understood: 5 × a plan of an unknown type: vxg; 2 × no price"."""
    shown = list(status.not_understood.items())[:_NAMES_SHOWN]
    rest = skipped - sum(rows for _, rows in shown)
    reasons = [f"{rows} × {displayable(reason)}" for reason, rows in shown] + ([f"{rest} more"] if rest > 0 else [])
    return f"{count_text(skipped, status.info.row_name)} not understood: {'; '.join(reasons)}"


def _kind_text(configured: ConfiguredProvider) -> str:
    spot = ", spot too" if True in configured.info.spots else ""
    return " and ".join(kind.value for kind in configured.info.kinds) + f" prices{spot}"


def _rents(configured: ConfiguredProvider) -> str:
    if configured.can_launch:
        return "can rent"
    return "cannot rent without a key" if configured.info.launches else "alerts only: gpuwatch cannot rent there"


_OFF_COLUMNS = (
    left("off", "provider"),
    left("title", lambda configured: configured.info.title, drop=3),
    left("prices", _kind_text, drop=2),
    text("credentials", "credentials", drop=1),
    left("rents", lambda configured: "can rent" if configured.info.launches else "alerts only", drop=4),
    left("to enable it", lambda configured: f"[providers.{configured.provider}] enabled = true", drop=5),
)
_ACCOUNT_COLUMNS = (
    left("provider", "provider"),
    left("account", lambda view: view.account or "not known"),
    left("key", lambda view: _KEY_TEXTS[view.current]),
    left("first used", "first_seen", drop=1),
    text("active launches", lambda view: ", ".join(view.launches) or None),
)


@click.command(
    cls=Command, examples=("gpuwatch providers accounts", "gpuwatch providers accounts --same --provider vastai")
)
@click.option("--same", is_flag=True, help="Confirm that the new key belongs to the account of the active launches.")
@provider_option()
@json_option
@settings_option
def accounts(same: bool, provider: str | None, as_json: bool, settings: Settings) -> None:
    """List the accounts at providers, with the active launches under each.

    A launch can be listed and ended only with a key of its own account. If a provider does not report which account a
    key belongs to, gpuwatch treats a new key as a new account. Use --same to confirm that it is the same account.

    Exit codes: 0 done, 1 failed, 2 usage, 3 the account or the store is unavailable.
    """
    from gpuwatch.app.launches.accounts import account_view, link_accounts
    from gpuwatch.app.launches.accounts import accounts as list_accounts

    if same and as_json:
        raise UsageError("use either --same or --json")
    if same:
        joined = link_accounts(settings, provider, actor=command_actor())
        names = ", ".join(launch.launch_id for launch in joined)
        click.echo(f"this key now controls launch {names}" if joined else "no launch is active under another key")
        return
    statuses = [account_view(status) for status in list_accounts(settings) if provider in {None, status.provider}]
    empty = "no account is known yet: the daemon records it when it first lists the instances"
    print_list(statuses, _ACCOUNT_COLUMNS, empty, as_json=as_json, timezone=settings.timezone)


@click.command(
    "new-provider",
    cls=Command,
    examples=("gpuwatch providers new mycloud", "gpuwatch providers new mycloud --into src"),
)
@click.argument("name")
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    metavar="DIR",
    help="New or empty folder. Default: ./gpuwatch-NAME.",
)
@json_option
def new_provider(name: str, into: Path | None, as_json: bool) -> int:
    """Generate a package for a new provider: a module, a test double with the conformance kit, pyproject.toml.

    The generated package works and passes the kit for a fictional cloud. Each place that you must fill in has a
    failing test that names it. See: gpuwatch docs write-a-provider

    Exit codes: 0 written, 2 the name or the folder cannot be used.
    """
    from gpuwatch.app.setup.new_provider import new_package_json, write_package
    from gpuwatch.installation import package_hint

    package = write_package(name, into)
    if as_json:
        json_out(new_package_json(package))
        return Exit.DONE
    click.echo(f"{package.folder}: {', '.join(package.files)}")
    click.echo(f"{package.to_write} places to fill in; each is marked and has a failing test. Next:")
    click.echo(
        f"  cd {package.folder} && {package_hint('.[test]', '-e')} && {shlex.quote(sys.executable)} -m pytest -q"
    )
    return Exit.DONE
