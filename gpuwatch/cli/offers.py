"""`gpuwatch offers`: the market now, filtered, sorted by GPU price."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.options import config_option, json_option

if TYPE_CHECKING:
    from gpuwatch.watches.decide import Match


@click.command()
@click.option("--gpu", multiple=True, help="A GPU family or model; may be repeated. Default: all.")
@click.option("--count", default=None, help="How many GPUs; a number or MIN-MAX.")
@click.option("--max-price", default=None, help="USD per GPU-hour, commission included.")
@click.option("--spot", type=click.Choice(["no", "only", "any"]), default="no", help="Interruptible offers.")
@click.option("--disk-gb", type=click.FloatRange(min=1), default=None, help="Price this disk in.")
@click.option("--verified", is_flag=True, help="Verified hosts only.")
@click.option("--provider", multiple=True, help="Ask only this provider.")
@click.option("--limit", type=click.IntRange(1, 5000), default=20, show_default=True, help="Offers shown.")
@json_option
@config_option
def offers(
    gpu: tuple[str, ...],
    count: str | None,
    max_price: str | None,
    spot: str,
    disk_gb: float | None,
    verified: bool,
    provider: tuple[str, ...],
    limit: int,
    as_json: bool,
    config: str | None,
) -> int:
    """The market now, sorted by GPU price.

    Exit codes: 0 answered (also with nothing for sale), 2 usage, 3 a provider did not answer, or only in part.
    """
    from gpuwatch.engine.browse import wanted_on_market
    from gpuwatch.wiring.loading import load_settings
    from gpuwatch.wiring.oneshot import market_now

    loaded = load_settings(config)
    wanted = wanted_on_market(gpu, count=count, max_price=max_price, spot=spot, disk_gb=disk_gb, verified=verified)
    found, errors = market_now(loaded, wanted, provider, limit)
    _print(found, as_json, nothing="cannot tell" if errors else "no offer (everything was answered)")
    for name, error in errors.items():
        click.echo(f"{name}: {error}", err=True)
    if errors:
        return Exit.CANNOT_TELL
    return Exit.DONE


def _print(found: Sequence[Match], as_json: bool, nothing: str) -> None:
    from gpuwatch.wiring import real_now

    if as_json:
        from gpuwatch.cli.offer_rows import offer_json
        from gpuwatch.cli.screen import json_out

        json_out([offer_json(match.offer, match.price) for match in found])
        return
    if not found:
        click.echo(nothing)
        return
    from gpuwatch.cli.offer_rows import COLUMNS, offer_cells
    from gpuwatch.cli.screen import table

    table(COLUMNS, [offer_cells(match, real_now()) for match in found])
    sys.stdout.flush()
