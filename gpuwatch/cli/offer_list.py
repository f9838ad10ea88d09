"""Offers of several providers as one list: a table that grows while answers arrive, the finished one, JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.app.offers import all_matches, groups_json, offers_json
from gpuwatch.bootstrap import real_now
from gpuwatch.cli.offer_rows import offers_table
from gpuwatch.cli.output import json_out
from gpuwatch.cli.tables import Column, left, right, table, table_lines, terminal_width, text
from gpuwatch.domain.market.marks import marks
from gpuwatch.domain.market.pricing import MICRO
from gpuwatch.engine.browse import ProviderOffers
from gpuwatch.engine.offer_groups import OfferGroup, group_offers, sorted_offers

if TYPE_CHECKING:
    from rich.console import RenderableType

_GROUPED = (
    left(""),
    right("offers", drop=3),
    right("cheapest $/GPU-h"),
    right("median", drop=2),
    left("GPU"),
    left("provider"),
    text("notes", drop=4),
    left("place", drop=5),
)
Table = tuple[Sequence[Column], list[Sequence[str]]]


class OfferListLayout(msgspec.Struct, frozen=True, kw_only=True):
    """How the list is laid out: keys of `compare.SORTS` and `compare.GROUPS`, and how many lines."""

    sort: str
    group_by: str | None
    limit: int


def print_table(found: Sequence[ProviderOffers], shape: OfferListLayout) -> None:
    """On standard output. Nothing for sale and nothing known are never the same."""
    columns, rows = _table(found, shape)
    if rows:
        table(columns, rows)
    else:
        print_nothing(found)


def print_nothing(found: Sequence[ProviderOffers]) -> None:
    """Why there is no table."""
    import click

    click.echo("cannot tell" if any(one.error for one in found) else "no offer (everything was answered)")


def print_json(found: Sequence[ProviderOffers], shape: OfferListLayout) -> None:
    """A list: of offers, or of groups."""
    if shape.group_by is not None:
        json_out(groups_json(found, shape.group_by))
    else:
        json_out(offers_json(found, shape.sort, shape.limit))


def growing(arriving: Iterable[ProviderOffers], names: Sequence[str], shape: OfferListLayout) -> list[ProviderOffers]:
    """All that arrives, shown on the terminal as it does; it is gone from there at the end."""
    from rich.live import Live

    found: list[ProviderOffers] = []
    with Live(_so_far(found, names, shape), transient=True, auto_refresh=False) as live:
        for one in arriving:
            found.append(one)
            live.update(_so_far(found, names, shape), refresh=True)
    return found


def _so_far(found: Sequence[ProviderOffers], names: Sequence[str], shape: OfferListLayout) -> RenderableType:
    from rich.console import Group as Stack
    from rich.text import Text

    waiting = [name for name in names if name not in {one.provider for one in found}]
    columns, rows = _table(found, shape)
    line = Text(f"asking {', '.join(waiting)} …" if waiting else "", style="dim")
    return Stack(Text("\n".join(table_lines(columns, rows, terminal_width())), no_wrap=True), line) if rows else line


def _table(found: Sequence[ProviderOffers], shape: OfferListLayout) -> Table:
    if shape.group_by is not None:
        groups = group_offers(all_matches(found), shape.group_by)[: shape.limit]
        return _GROUPED, [_group_cells(group) for group in groups]
    folded = sorted_offers(all_matches(found), shape.sort)[: shape.limit]
    return offers_table([one.shown for one in folded], real_now(), [one.also_text for one in folded])


def _group_cells(group: OfferGroup) -> Sequence[str]:
    match = group.cheapest.shown
    offer = match.offer
    return (
        group.name,
        str(group.offers),
        f"{match.price_microusd_gpu_hour / MICRO:.3f}",
        f"{group.median_microusd_gpu_hour / MICRO:.3f}",
        f"{offer.gpu_count}× {offer.gpu}{' spot' if offer.spot else ''}",
        offer.provider,
        ", ".join(filter(None, (*marks(offer), group.cheapest.also_text))),
        offer.place or "–",
    )
