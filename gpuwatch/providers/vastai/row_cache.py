"""Caches offers by the text of their rows: between two polls few rows of a market change.

A cached row is neither decoded nor converted. Only `duration` is left out of the comparison: the seconds until
`end_date` differ in each answer, and nothing reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from gpuwatch.domain.market.offer import Offer

_MAX_CACHED_ROWS: Final = 11_000  # ten per cent more than the market of 2026
_EVICTED_ROWS: Final = 1_000  # rows to drop when there are too many
_DURATION: Final = b'"duration":'

RowCache = dict[int, Offer]  # by the digest of the row's text; those not seen for the longest time first


def split_rows(array: bytes) -> Iterator[tuple[int, int, int]]:
    """Split an array of rows before each `{` that follows `},`; yield the digest, the start and the end of each part.

    Inside a text or a nested array such a cut is wrong, and then the parts beside it are not complete objects. If every
    part is one, the parts are the rows: JSON reads the array in no other way.
    """
    find, start, last = array.find, 1, len(array) - 1
    brace = find(b"{", start + 1)
    while True:
        while brace >= 0 and array[brace - 2 : brace] != b"},":
            brace = find(b"{", brace + 1)
        end = brace - 1 if brace >= 0 else last
        duration = find(_DURATION, start, end)
        cut = duration if duration >= 0 else end
        comma = find(b",", cut, end)
        rest = comma if comma >= 0 else end
        yield hash((array[start:cut], array[rest:end])), start, end
        if brace < 0:
            return
        start, brace = brace, find(b"{", brace + 1)


def evict_oldest(rows: RowCache) -> None:
    """Make room. Clearing the cache would rebuild the whole market beside the offers that others still hold."""
    if len(rows) > _MAX_CACHED_ROWS:
        for digest in list(islice(rows, len(rows) - _MAX_CACHED_ROWS + _EVICTED_ROWS)):
            rows.pop(digest, None)
