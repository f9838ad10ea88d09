"""`gpuwatch offers`: the current offers of all providers, sorted, or one line per group."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from gpuwatch.bootstrap import real_now
from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command, refuse_given
from gpuwatch.cli.options import (
    SPOT_CHOICES,
    VERIFIED,
    Between,
    as_struct,
    duration_option,
    gpu_option,
    json_option,
    provider_option,
    settings_option,
    value_option,
)
from gpuwatch.cli.output import json_out, note
from gpuwatch.cli.terminal_tables import Column, left, right, table, table_cells, table_lines, terminal_width, text
from gpuwatch.domain.market.figure_text import percent_text
from gpuwatch.domain.market.money import MICRO, dollars, per_gpu_hour, per_hour, per_unit_hour
from gpuwatch.domain.market.offer import hardware_text, marks, priced_units

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gpuwatch.domain.market.offer import Identity, Offer
    from gpuwatch.domain.market.outbid_risk import OutbidRisk
    from gpuwatch.domain.market.resold import FoldedOffer
    from gpuwatch.domain.watches.decide import Match
    from gpuwatch.engine.market.browse import ProviderOffers
    from gpuwatch.settings import Settings

_TIMEOUT_S = 30.0
_MINUTES_FROM_S = 1000  # an age is shown in seconds up to here
_GROUPED = (
    left("", "name"),
    right("offers", "offers", drop=3),
    right("cheapest", lambda group: _gpu_price(group.cheapest.primary.price_microusd_gpu_hour)),
    right("median", lambda group: _gpu_price(group.median_microusd_gpu_hour), drop=2),
    left("GPU", lambda group: gpu_text(group.cheapest.primary.offer)),
    left("provider", lambda group: group.cheapest.primary.offer.provider),
    text("notes", lambda group: _notes(group.cheapest), drop=4),
    left("place", lambda group: group.cheapest.primary.offer.place, drop=5),
)


class OfferOptions(msgspec.Struct, frozen=True):
    """Filters for the offers."""

    gpu: tuple[str, ...]
    count: str | None
    max_price: str | None
    spot: str
    kind: str
    disk_gb: float | None
    verified: bool
    when: str | None


class ListLayout(msgspec.Struct, frozen=True):
    """Order and length of the list."""

    sort: str
    group_by: str | None
    limit: int


_offer_options = as_struct(
    "wanted",
    OfferOptions,
    gpu_option("--gpu", "GPU family or model; may be repeated. Default: all.", multiple=True),
    click.option("--count", default=None, metavar="N|A-B", help="Number of GPUs in an offer."),
    click.option("--max-price", default=None, metavar="USD", help="USD per GPU-hour, commission included."),
    value_option("--spot", click.Choice(SPOT_CHOICES), "Spot (interruptible) offers.", "no"),
    value_option(
        "--kind",
        click.Choice(["live", "listed", "all"]),
        "live: rentable now; listed: list prices, without proof of stock.",
        "all",
    ),
    click.option("--disk-gb", type=Between(min=1), default=None, help="Include a disk of this size in the price."),
    VERIFIED,
    click.option("--when", default=None, metavar="TEXT", help='A condition as in a watch: "ecc and disk_bw >= 1000".'),
)
_layout_options = as_struct(
    "layout",
    ListLayout,
    value_option(
        "--sort", click.Choice(["gpu-price", "price", "provider", "reliability"]), "Order of the list.", "gpu-price"
    ),
    value_option(
        "--group-by",
        click.Choice(["gpu", "provider", "region"]),
        "One line per group: cheapest offer, number of offers, median price.",
    ),
    value_option("--limit", click.IntRange(1, 5000), "Number of offers.", 20),
)


@click.command(
    cls=Command,
    examples=(
        "gpuwatch offers --gpu H100 --max-price 3",
        "gpuwatch offers --gpu 'RTX 4090' --count 4 --spot any --provider vastai",
        "gpuwatch offers --group-by gpu",
    ),
)
@_offer_options
@provider_option("Only this provider; may be repeated.", multiple=True)
@_layout_options
@duration_option("--timeout", "timeout_s", "Longest wait for all providers. Default: 30s.")
@json_option
@settings_option
def offers(
    wanted: OfferOptions,
    provider: tuple[str, ...],
    layout: ListLayout,
    timeout_s: float | None,
    as_json: bool,
    settings: Settings,
) -> int:
    """List the offers on sale now, cheapest GPU first. Polls all enabled providers in parallel.

    Exit codes: 0 done (even without offers), 2 usage, 3 a provider did not answer, or only in part.
    """
    from gpuwatch.app.market.offers import all_matches, group_views, markets_now, offer_views, providers_that_sell
    from gpuwatch.engine.market.browse import offer_filter

    if layout.group_by is not None:
        refuse_given("orders a list: groups are sorted by their cheapest offer; omit it", "sort")
    query = offer_filter(**msgspec.structs.asdict(wanted))
    names = providers_that_sell(settings, query, provider)
    needs_all = layout.group_by is not None or layout.sort == "reliability"  # providers cut their lists by price
    arriving = markets_now(settings, query, names, None if needs_all else layout.limit, timeout_s or _TIMEOUT_S)
    if as_json:
        answers = list(arriving)
        matches = all_matches(answers)
        if layout.group_by is None:
            json_out(offer_views(settings, matches, layout.sort, layout.limit))
        else:
            json_out(group_views(matches, layout.group_by, layout.limit))
    else:
        answers = _collect_live(arriving, names, layout)
        _print(settings, answers, layout, query.gpu_names, wanted.gpu)
    sys.stdout.flush()
    for answer in answers:
        if answer.error:
            note(f"{answer.provider}: {answer.error}")
    return Exit.CANNOT_TELL if any(answer.error for answer in answers) else Exit.DONE


def _print(
    settings: Settings,
    answers: Sequence[ProviderOffers],
    layout: ListLayout,
    gpu_names: Sequence[str],
    texts: Sequence[str],
) -> None:
    """A table; "no offers", "no data" and "could not be seen" are different results."""
    from gpuwatch.app.market.outbid_risk import known_risks
    from gpuwatch.engine.market.browse import empty_text

    columns, rows = _table(answers, layout)
    if rows and layout.group_by is None:
        columns = offer_columns(real_now(), known_risks(settings, [one.primary for one in rows], real_now()))
    if rows:
        table(columns, rows)
    elif any(answer.error for answer in answers):
        click.echo("cannot tell")
    else:
        click.echo(empty_text([one.coverage for one in answers if one.coverage is not None], gpu_names, texts))


def _collect_live(arriving: Iterator[ProviderOffers], names: Sequence[str], layout: ListLayout) -> list[ProviderOffers]:
    """All answers; a terminal shows the progress."""
    if not sys.stdout.isatty():
        return list(arriving)
    from rich.live import Live

    answers: list[ProviderOffers] = []
    with Live(live_table(answers, names, layout), transient=True, auto_refresh=False) as live:
        for answer in arriving:
            answers.append(answer)
            live.update(live_table(answers, names, layout), refresh=True)
    return answers


def live_table(answers: Sequence[ProviderOffers], names: Sequence[str], layout: ListLayout) -> RenderableType:
    """The offers that have arrived, and the providers that have not answered yet."""
    from rich.console import Group as Stack
    from rich.text import Text

    waiting = [name for name in names if name not in {answer.provider for answer in answers}]
    columns, rows = table_cells(*_table(answers, layout))
    line = Text(f"polling {', '.join(waiting)} …" if waiting else "", style="dim")
    return Stack(Text("\n".join(table_lines(columns, rows, terminal_width())), no_wrap=True), line) if rows else line


def _table(answers: Sequence[ProviderOffers], layout: ListLayout) -> tuple[Sequence[Column], Sequence[Any]]:
    from gpuwatch.app.market.offers import all_matches
    from gpuwatch.engine.market.browse import group_offers, sorted_offers

    matches = all_matches(answers)
    if layout.group_by is not None:
        return _GROUPED, group_offers(matches, layout.group_by)[: layout.limit]
    return offer_columns(real_now()), sorted_offers(matches, layout.sort)[: layout.limit]


def offer_columns(now: datetime, risks: Mapping[Identity, OutbidRisk] = {}) -> tuple[Column, ...]:
    """The columns of a table of folded offers. `risks`: of being outbid at their machines, where they are known."""

    def each(microusd: str) -> Callable[[FoldedOffer[Match]], str]:
        return lambda folded: _unit_price(getattr(folded.primary.price, microusd), folded.primary.offer.gpu_count)

    def of_offer(name: str) -> Callable[[FoldedOffer[Match]], object]:
        return lambda folded: getattr(folded.primary.offer, name)

    return (
        left("GPU", lambda folded: gpu_text(folded.primary.offer)),
        right("job", lambda folded: _job_cost(folded.primary), optional=True),
        right("GPU price", each("price_microusd_hour")),
        right("listed", each("listed_microusd_hour"), drop=2),
        right("price", lambda folded: _price(folded.primary.price.price_microusd_hour), drop=3),
        right("per vCPU", lambda folded: _size_price(folded.primary, folded.primary.offer.vcpu), optional=True, drop=5),
        right(
            "per GiB", lambda folded: _size_price(folded.primary, folded.primary.offer.ram_gib), optional=True, drop=5
        ),
        left("provider", of_offer("provider")),
        text("notes", lambda folded: _notes(folded, risks.get(folded.primary.offer.identity)), drop=1, optional=True),
        left("place", of_offer("place"), drop=4),
        right("reliab.", lambda folded: _percent(folded.primary.offer.reliability), drop=6),
        left("verified", of_offer("verification"), drop=7),
        right("age", lambda folded: _age(folded.primary.offer, now), drop=8),
        right("offer", of_offer("offer_id")),
    )


def _job_cost(match: Match) -> str | None:
    return None if match.job_microusd is None else dollars(match.job_microusd / MICRO)


def _size_price(match: Match, size: float | None) -> str | None:
    """The price per hour of a vCPU or a GiB of a machine without GPUs: what such machines are compared by."""
    if match.offer.gpu_count or not size:
        return None
    return per_hour(match.price.price_microusd_hour / MICRO / size, least=4, most=4)


def _unit_price(microusd: int, gpu_count: int) -> str:
    return per_unit_hour(microusd / MICRO / priced_units(gpu_count), gpu_count, least=3, most=3)


def _gpu_price(microusd: float) -> str:
    return per_gpu_hour(microusd / MICRO, least=3, most=3)


def _price(microusd: float) -> str:
    return per_hour(microusd / MICRO, least=3, most=3)


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share * 100:.1f}%"


def _notes(folded: FoldedOffer[Match], risk: OutbidRisk | None = None) -> str:
    offer, traffic = folded.primary.offer, folded.primary.price.traffic_microusd_hour
    moved = f"traffic {_unit_price(traffic, offer.gpu_count)} of it" if traffic else None
    lost = None if risk is None else f"outbid {percent_text(risk.over_share, 0)} of the time"
    return ", ".join(filter(None, (moved, *marks(offer), lost, folded.also_text)))


def _age(offer: Offer, now: datetime) -> str:
    age_s = max(0, int((now - offer.observed_at).total_seconds()))
    return f"{age_s}s" if age_s < _MINUTES_FROM_S else f"{age_s // 60}m"


def gpu_text(offer: Offer) -> str:
    """ "4× H100 SXM spot"; of a machine without GPUs, what it has: "no GPU, 16 vCPU, 64 GiB"."""
    parts = [hardware_text(offer.gpu, offer.gpu_count)]
    if not offer.gpu_count:
        parts += [f"{offer.vcpu:g} vCPU"] if offer.vcpu else []
        parts += [f"{offer.ram_gib:.0f} GiB"] if offer.ram_gib else []
    return f"{', '.join(parts)}{' spot' if offer.spot else ''}"
