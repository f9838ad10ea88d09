"""Reports fields that are new or gone in the format of an answer.

`known-fields.txt` lists every field that offers are known to have.
source: live answers of 2022-11, 2024-07, 2026-02/03, 2026-08 and the key list of 2026-09.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

import msgspec

from gpuwatch.domain.market.offer import clean_word
from gpuwatch.providers.vastai.raw_rows import VastRow

_READ_FIELDS: Final = frozenset(field.name for field in msgspec.structs.fields(VastRow))
_PRICES: Final = frozenset({"dph_total", "min_bid", "storage_cost", "storage_total_cost"})
_REPORTED_MAX: Final = 20  # names of one kind; an answer in another format would fill a page


def drift(sampled_names: Iterable[str]) -> tuple[str, ...]:
    """Report what changed in the field names: "new field: x", and "field gone: y" for fields that gpuwatch reads.

    A missing field of the price is a "price field gone".

    Args:
        sampled_names: the names found in any of the sampled rows; empty: there was no row, so nothing is reported.
    """
    return _drift(frozenset(sampled_names))


@lru_cache(maxsize=8)  # successive answers have the same names
def _drift(names: frozenset[str]) -> tuple[str, ...]:
    if not names:
        return ()
    new = sorted(clean_word(name) for name in names - _known_fields())[:_REPORTED_MAX]
    missing = sorted(_READ_FIELDS - names)[:_REPORTED_MAX]
    return tuple([f"new field: {name}" for name in new] + [f"{_field(name)} gone: {name}" for name in missing])


def unusable_fields(skipped: Mapping[str, int], rows: int) -> tuple[str, ...]:
    """Return the fields that make every row unusable: "price field gone: x", "field of another type: x".

    Args:
        skipped: reason → rows.
        rows: number of rows of the whole answer.
    """
    notes = []
    for reason, count in skipped.items():
        name, _, fault = reason.partition(": ")
        if count == rows and fault in _FAULT_TEXTS:
            notes.append(f"{_field(name)} {_FAULT_TEXTS[fault]}: {name}")
    return tuple(notes)


def _field(name: str) -> str:
    return "price field" if name in _PRICES else "field"


_FAULT_TEXTS: Final = {"missing": "gone", "wrong type": "of another type"}


@cache
def _known_fields() -> frozenset[str]:
    return frozenset(Path(__file__).with_name("known-fields.txt").read_text("ascii").split())
