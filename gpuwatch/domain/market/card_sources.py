"""Where the figures of a card are published, from the catalogue. Pure."""

from __future__ import annotations

from functools import cache
from typing import Final

import msgspec

from gpuwatch.domain.market.gpu_cards import catalog_rows, more_figures


class CardSources(msgspec.Struct, frozen=True, kw_only=True):
    """Where the figures of a card are published; empty: it has none of them. `note`: what to know about them."""

    sheet: str  # memory, rates, watts, links
    chip: str  # cores and clock
    ecc: str
    line: str  # whether it is a data center card
    released: str  # the year
    note: str


_PUBLISHED_AT: Final = "techpowerup:"
_SAME_SHEET: Final = "data sheet"


@cache
def card_sources() -> dict[str, CardSources]:
    """Return the sources of all rows by canonical name; read once."""
    more = more_figures()
    return {
        name: _sources(row, more.get(name, {}))
        for row in catalog_rows("gpu-catalog.csv")
        if (name := row["canonical_name"])
    }


def _sources(row: dict[str, str], more: dict[str, str]) -> CardSources:
    sheet = _source_text(row["source"])

    def source(column: str) -> str:
        stated = more.get(column, "")
        return sheet if stated == _SAME_SHEET else _source_text(stated)

    return CardSources(
        sheet=sheet,
        chip=source("chip_source"),
        ecc=source("ecc_source"),
        line=source("line_source"),
        released=row["release_year"],
        note=row["notes"],
    )


def _source_text(text: str) -> str:
    if text.startswith(_PUBLISHED_AT):
        return f"www.techpowerup.com/gpu-specs/{text.removeprefix(_PUBLISHED_AT)}"
    return text
