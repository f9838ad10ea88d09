"""`gpuwatch providers`: who is asked, and how each day's rows are planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.options import config_option, json_option

if TYPE_CHECKING:
    from gpuwatch.wiring.report import ProviderStanding


@click.command()
@json_option
@config_option
def providers(as_json: bool, config: str | None) -> int:
    """The enabled providers: key, interval, rows used and left today, next sweep. Asks no provider anything."""
    from gpuwatch.wiring.loading import load_settings
    from gpuwatch.wiring.report import standings

    found = standings(load_settings(config))
    if as_json:
        from gpuwatch.cli.screen import json_out

        json_out([_json(standing) for standing in found])
    else:
        for standing in found:
            _print(standing)
    return Exit.DONE


def _json(standing: ProviderStanding) -> dict[str, object]:
    from gpuwatch.cli.screen import rfc3339

    plan, sight = standing.plan, standing.sight
    return {
        "provider": standing.provider,
        "base_url": standing.base_url,
        "has_key": standing.has_key,
        "can_launch": standing.can_launch,
        "poll_every_s": standing.poll_every_s,
        "rows_per_day": plan.rows_per_day,
        "rows_used": plan.rows_used,
        "rows_left": plan.rows_left,
        "resets_at": rfc3339(plan.resets_at),
        "sweep_every_s": None if plan.sweep_every_s is None else round(plan.sweep_every_s),
        "last_sweep_at": rfc3339(standing.swept_at),
        "next_sweep_at": rfc3339(standing.next_sweep_at),
        "complete_at": rfc3339(sight.complete_at),
        "blind_since": rfc3339(sight.blind_since),
        "last_error": sight.last_error,
    }


def _print(standing: ProviderStanding) -> None:
    from gpuwatch.cli.screen import rfc3339

    plan, sight = standing.plan, standing.sight
    key = "with a key" if standing.has_key else "without a key (searching only)"
    click.echo(f"{standing.provider}  {standing.base_url}, {key}")
    if plan.rows_left is None:
        click.echo(f"  rows    {plan.rows_used} today, no quota")
    else:
        used = f"{plan.rows_used} of {plan.rows_per_day} used"
        click.echo(f"  rows    {used}, {plan.rows_left} left until {rfc3339(plan.resets_at)}")
    matched = f"one that stays matched every {plan.matched_every_s:.0f} s"
    click.echo(f"  hunt    every {standing.poll_every_s:g} s per watch; {matched}")
    if plan.sweep_every_s is None:
        click.echo("  sweep   none before the reset: the rows do not reach")
    else:
        due = rfc3339(standing.next_sweep_at) or "at the daemon's start"
        click.echo(f"  sweep   every {plan.sweep_every_s / 60:.0f} min; next {due}")
    if sight.blind_since is not None:
        click.echo(f"  BLIND   since {rfc3339(sight.blind_since)}: {sight.last_error or 'no complete answer'}")
    else:
        click.echo(f"  seen    {rfc3339(sight.complete_at) or 'never yet'}")
