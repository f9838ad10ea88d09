"""`gpuwatch offers`: the markets now, all at once: filtered, sorted by GPU price, or summed up by group."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command
from gpuwatch.cli.options import Between, completes, config_option, duration_option, json_option

if TYPE_CHECKING:
    from gpuwatch.cli.offer_list import OfferListLayout
    from gpuwatch.engine.browse import ProviderOffers

TIMEOUT_S = 30.0


@click.command(
    cls=Command,
    examples=(
        "gpuwatch offers --gpu H100 --max-price 3",
        "gpuwatch offers --gpu 'RTX 4090' --count 4 --spot any --provider vastai",
        "gpuwatch offers --group-by gpu",
    ),
)
@click.option(
    "--gpu",
    multiple=True,
    help="A GPU family or model; may be repeated. Default: all.",
    shell_complete=completes("gpus"),
)
@click.option("--count", default=None, help="How many GPUs; a number or MIN-MAX.")
@click.option("--max-price", default=None, help="USD per GPU-hour, commission included.")
@click.option("--spot", type=click.Choice(["no", "only", "any"]), default="no", help="Interruptible offers.")
@click.option(
    "--kind",
    type=click.Choice(["live", "listed", "all"]),
    default="all",
    show_default=True,
    help="live: rentable now; listed: list prices, without proof of stock.",
)
@click.option("--disk-gb", type=Between(min=1), default=None, help="Price this disk in.")
@click.option("--verified", is_flag=True, help="Verified hosts only.")
@click.option(
    "--provider", multiple=True, help="Ask only this provider; may be repeated.", shell_complete=completes("providers")
)
@click.option(
    "--sort",
    type=click.Choice(["gpu-price", "price", "provider", "reliability"]),
    default="gpu-price",
    show_default=True,
    help="What comes first.",
)
@click.option(
    "--group-by",
    type=click.Choice(["gpu", "provider", "region"]),
    default=None,
    help="Of each group the cheapest, the number and the median.",
)
@click.option("--limit", type=click.IntRange(1, 5000), default=20, show_default=True, help="Offers shown.")
@duration_option("--timeout", "timeout_s", "How long to wait for all of them, such as 20s; default 30s.")
@json_option
@config_option
def offers(
    gpu: tuple[str, ...],
    count: str | None,
    max_price: str | None,
    spot: str,
    kind: str,
    disk_gb: float | None,
    verified: bool,
    provider: tuple[str, ...],
    sort: str,
    group_by: str | None,
    limit: int,
    timeout_s: float | None,
    as_json: bool,
    config: str | None,
) -> int:
    """The markets now, cheapest GPU price first. All enabled providers are asked at once.

    Exit codes: 0 answered (also with nothing for sale), 2 usage, 3 a provider did not answer, or only in part.
    """
    from gpuwatch.app.offers import markets_now, providers_that_sell
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.cli.offer_list import OfferListLayout, print_json, print_table
    from gpuwatch.engine.browse import offer_filter

    loaded = load_settings(config)
    wanted = offer_filter(
        gpu, count=count, max_price=max_price, spot=spot, disk_gb=disk_gb, verified=verified, kind=kind
    )
    names = providers_that_sell(loaded, wanted, provider)
    needs_all = group_by is not None or sort == "reliability"  # providers cut their lists by price
    arriving = markets_now(loaded, wanted, names, None if needs_all else limit, timeout_s or TIMEOUT_S)
    shape = OfferListLayout(sort=sort, group_by=group_by, limit=limit)
    found = _all(arriving, names, shape, as_json)
    (print_json if as_json else print_table)(found, shape)
    sys.stdout.flush()
    for one in found:
        if one.error:
            click.echo(f"{one.provider}: {one.error}", err=True)
    return Exit.CANNOT_TELL if any(one.error for one in found) else Exit.DONE


def _all(
    arriving: Iterator[ProviderOffers], names: Sequence[str], shape: OfferListLayout, as_json: bool
) -> list[ProviderOffers]:
    """Everything; on a terminal what has arrived so far is shown meanwhile."""
    if as_json or not sys.stdout.isatty():
        return list(arriving)
    from gpuwatch.cli.offer_list import growing

    return growing(arriving, names, shape)
