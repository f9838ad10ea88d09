"""Caches offers by the text of their rows: between two polls few rows of a market change.

A cached row is neither searched for its end, nor decoded, nor converted. Only the value of `duration` is left out of
the comparison: the seconds until `end_date` differ in each answer, and nothing reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec

from gpuwatch.domain.market.offer import Offer

_MAX_CACHED_ROWS: Final = 11_000  # ten per cent more than the market of 2026
_EVICTED_ROWS: Final = 1_000  # rows to drop when there are too many
_MAX_KEY_BYTES: Final = 100  # 25 are usual: `{"id":48000246`
_DURATION: Final = b'"duration":'


class CachedRow(msgspec.Struct, gc=False):
    """The offer of a row, and the text of the row without the value of `duration`."""

    head_bytes: int  # before the value
    tail_bytes: int  # after it
    digest: int  # of both
    offer: Offer


RowCache = dict[bytes, CachedRow]  # by the text of a row up to its first comma, which holds an id


def split_rows(array: bytes, cache: RowCache) -> Iterator[tuple[CachedRow | None, int, int]]:
    """Split an array of rows; yield the cached row, or None, with the start and the end of each part.

    A cached row ends where its text ends. Any other part ends before the next `{` that follows `},`. Inside a text or a
    nested array such a cut is wrong, and then the parts beside it are not complete objects. If every part is one, the
    parts are the rows: JSON reads the array in no other way.
    """
    find, get, start, last = array.find, cache.get, 1, len(array) - 1
    while True:
        row = get(array[start : find(b",", start)])
        if row is not None:
            cut = start + row.head_bytes
            comma = find(b",", cut)
            rest = comma if comma >= 0 else last
            end = rest + row.tail_bytes
            is_whole = array[end - 1 : end + 2] == b"},{" or end == last
            if not is_whole or hash((array[start:cut], array[rest:end])) != row.digest:
                row = None
        if row is None:
            end = _next_end(array, start)
        yield row, start, end
        if end == last:
            return
        start = end + 1


def add_row(cache: RowCache, array: bytes, start: int, end: int, offer: Offer) -> None:
    """Cache the offer of one part, unless the part begins oddly."""
    key_end, duration = array.find(b",", start, end), array.find(_DURATION, start, end)
    if not start < key_end <= start + _MAX_KEY_BYTES:
        return
    cut = duration + len(_DURATION) if duration >= 0 else key_end  # there, nothing is left out
    comma = array.find(b",", cut, end)
    rest = comma if comma >= 0 else end
    digest = hash((array[start:cut], array[rest:end]))
    cache[array[start:key_end]] = CachedRow(cut - start, end - rest, digest, offer)


def evict_oldest(cache: RowCache, now: datetime) -> None:
    """Make room: drop the rows that were not seen for the longest time.

    Clearing the cache would rebuild the whole market beside the offers that others still hold.
    """
    if len(cache) > _MAX_CACHED_ROWS:
        by_age = sorted(cache.items(), key=lambda item: abs(now - item[1].offer.observed_at), reverse=True)
        for key, _ in by_age[: len(by_age) - _MAX_CACHED_ROWS + _EVICTED_ROWS]:
            cache.pop(key, None)


def _next_end(array: bytes, start: int) -> int:
    brace = array.find(b"{", start + 1)
    while brace >= 0 and array[brace - 2 : brace] != b"},":
        brace = array.find(b"{", brace + 1)
    return brace - 1 if brace >= 0 else len(array) - 1
