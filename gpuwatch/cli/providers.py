"""`gpuwatch providers`: who could be asked, who is, how that goes, and how each day's rows are planned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command
from gpuwatch.cli.options import json_option, settings_option
from gpuwatch.cli.output import json_out, local
from gpuwatch.cli.tables import left, table, text

if TYPE_CHECKING:
    from gpuwatch.app.provider_status import ProviderStatus
    from gpuwatch.settings import Settings

_OFF_COLUMNS = (
    left("off"),
    left("title", drop=3),
    left("prices", drop=2),
    text("credentials", drop=1),
    left("rents", drop=4),
    left("to switch it on", drop=5),
)


def _known() -> dict[str, tuple[str, ...]]:
    from gpuwatch import providers

    return {"Providers": providers.names()}


@click.command(cls=Command, examples=("gpuwatch providers",), lists=_known)
@json_option
@settings_option
def providers(as_json: bool, settings: Settings) -> int:
    """List all providers, enabled or not: status, prices, credentials, last answer, row quota. Polls none of them."""
    from gpuwatch.app.provider_status import all_provider_statuses, broken_plugins, provider_status_json

    found = all_provider_statuses(settings)
    if as_json:
        json_out([provider_status_json(standing) for standing in found])
        return Exit.DONE
    for standing in found:
        if standing.is_on:
            for line in _lines(standing, lambda moment: local(moment, settings.timezone)):
                click.echo(line)
    off = [standing for standing in found if not standing.is_on]
    if off:
        _print_off(off)
    for name, why in broken_plugins().items():
        click.echo(f"{name}  not settings: {why}")
    return Exit.DONE


def _lines(standing: ProviderStatus, shown: Callable[[datetime | None], str]) -> Iterator[str]:
    """The lines of an enabled provider; `shown` writes a time in the configured zone."""
    from gpuwatch.app.provider_status import credentials_text
    from gpuwatch.installation import install_hint

    plan, sight, settings = standing.plan, standing.health, standing.settings
    yield f"{standing.provider}  {standing.status}; {_what(standing)}; {credentials_text(standing)}; {_rents(standing)}"
    yield f"  at      {settings.base_url}, at least {settings.search_interval_s:g} s between searches"
    if standing.missing_extra is not None:
        yield f"  needs   {install_hint(standing.missing_extra)}"
    yield f"  rows    {_rows(plan.rows_used, plan.rows_per_day, plan.rows_left, shown(plan.resets_at))}"
    matched = f"a matched watch every {plan.matched_every_s:.0f} s"
    yield f"  hunt    every {settings.poll_every_s:g} s per watch; {matched}"
    if plan.sweep_every_s is None:
        yield "  sweep   none before the reset: not enough rows left"
    else:
        due = "when the daemon starts" if standing.next_sweep_at is None else shown(standing.next_sweep_at)
        yield f"  sweep   every {plan.sweep_every_s / 60:.0f} min; next {due}"
    if sight.blind_since is not None:
        yield f"  BLIND   since {shown(sight.blind_since)}: {sight.last_error or 'no complete answer'}"
    yield f"  seen    {_seen(standing, shown)}"
    if standing.drift:
        newest = standing.drift[-1]
        yield f"  format  changed {len(standing.drift)} times; last {newest.text} ({shown(newest.first_seen_at)})"


def _print_off(off: list[ProviderStatus]) -> None:
    from gpuwatch.app.provider_status import credentials_text

    rows = [
        (
            standing.provider,
            standing.info.title,
            _what(standing),
            credentials_text(standing),
            "can rent" if standing.info.launches else "alerts only",
            f"[providers.{standing.provider}] enabled = true",
        )
        for standing in off
    ]
    table(_OFF_COLUMNS, rows)


def _what(standing: ProviderStatus) -> str:
    spot = ", spot too" if True in standing.info.spots else ""
    return " and ".join(kind.value for kind in standing.info.kinds) + f" prices{spot}"


def _rents(standing: ProviderStatus) -> str:
    if standing.can_launch:
        return "can rent"
    return "cannot rent without a key" if standing.info.launches else "alerts only: gpuwatch cannot rent there"


def _rows(used: int, per_day: int, left: int | None, resets_at: str) -> str:
    return f"{used} today, no quota" if left is None else f"{used} of {per_day} used, {left} left until {resets_at}"


def _seen(standing: ProviderStatus, shown: Callable[[datetime | None], str]) -> str:

    newest = standing.last_poll
    if newest is None:
        return "never"
    skipped = f", {newest.skipped} rows not understood" if newest.skipped else ""
    of = f" of {newest.gpu}" if newest.gpu else ""  # one poll of several: another GPU's may have had more
    return f"{shown(newest.at)}, {newest.offers} offers{of} at that poll ({newest.lane}){skipped}"
