"""A row of an earlier answer is taken from the cache only if nothing of it but `duration` has changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vast_double import NOW, a_row

from gpuwatch.errors import PayloadChanged
from gpuwatch.providers.vastai.answer_parser import ParsedAnswer, parse_offers
from gpuwatch.providers.vastai.row_cache import CachedRow, RowCache, evict_oldest, split_rows
from gpuwatch.providers.vastai.rows import RowReader
from tests.builders import changed

ROW = a_row(id=1, duration=3600.5, end_date=1.8e9, min_bid=0.45, storage_cost=0.9, storage_total_cost=0.01)
LAST = {name: value for name, value in ROW.items() if name != "duration"} | {"duration": 3600.5}
NEW = {"gpu_name": "H100 SXM", "verification": "deverified", "geolocation": "Utah, US", "rentable": False}
FLOATS = {name for name, value in ROW.items() if isinstance(value, float)}
OTHER = a_row(id=2, duration=7200.5)


def _parse(
    rows: Sequence[dict[str, Any]], cache: RowCache | None = None, gpus: Sequence[str] = (), later_s: int = 0
) -> ParsedAnswer:
    body = json.dumps({"offers": rows}, separators=(",", ":")).encode()
    return parse_offers(body, RowReader(True, 8.0, NOW + timedelta(seconds=later_s), gpus), row_cache=cache)


@pytest.mark.parametrize("row", [ROW, LAST])
def test_a_row_with_another_duration_alone_is_not_read_again(row: dict[str, Any]) -> None:
    """Its values are the very objects of the earlier offer."""
    cache: RowCache = {}
    [first, _] = _parse([row, OTHER], cache).offers
    [second, _] = _parse([row | {"duration": 3540.25}, OTHER], cache, later_s=60).offers
    assert second.quoted_usd_hour is first.quoted_usd_hour
    assert second == changed(first, observed_at=NOW + timedelta(seconds=60))
    assert first.observed_at == NOW


@pytest.mark.parametrize("row", [ROW, LAST])
@pytest.mark.parametrize("field", sorted(ROW.keys() - {"duration"}))
def test_a_change_of_any_other_field_is_seen(row: dict[str, Any], field: str) -> None:
    cache: RowCache = {}
    _parse([row, OTHER], cache)
    rows = [row | {field: NEW[field] if field in NEW else row[field] / 2 if field in FLOATS else 5}, OTHER]
    found = _parse(rows, cache)
    assert found == _parse(rows)
    assert found != _parse([row, OTHER])


@pytest.mark.parametrize("field", ["dph_total", "min_bid", "storage_cost", "storage_total_cost"])
def test_a_row_with_another_price_of_the_same_hash_is_read_again(field: str) -> None:
    cache: RowCache = {}
    for price in (ROW[field] * 2.0**-61, ROW[field], ROW[field] * 2.0**61):
        assert hash(price) == hash(ROW[field])
        rows = [ROW | {field: price}, OTHER]
        assert _parse(rows, cache) == _parse(rows)


@pytest.mark.parametrize("piece", [1, 500, 100_000])
def test_rows_are_cached_once_so_much_has_arrived_in_pieces_of_any_length(piece: int) -> None:
    body = json.dumps({"offers": [ROW, OTHER]}, separators=(",", ":")).encode()
    for from_bytes, cached in ((len(body) + 1, 0), (len(body), 1 if piece < len(body) else 2), (1, 2)):
        cache: RowCache = {}
        pieces = [body[start : start + piece] for start in range(0, len(body), piece)]
        answer = parse_offers(pieces, RowReader(True, 8.0, NOW, ()), row_cache=cache, cached_from_bytes=from_bytes)
        assert (len(answer.offers), len(cache)) == (2, cached)


def test_a_row_that_is_no_offer_is_counted_each_time() -> None:
    cache: RowCache = {}
    rows = [ROW, a_row(id=3, dph_total=0), OTHER]
    for _ in range(3):
        assert _parse(rows, cache) == _parse(rows)


def test_cached_rows_of_other_gpus_are_counted_alone() -> None:
    """Queries share the cache; a server may ignore their filters."""
    cache: RowCache = {}
    rows = [ROW, a_row(id=2, gpu_name="H100 SXM"), a_row(id=3, gpu_name="H100 SXM", dph_total=0)]
    for gpus in ((), ("H100 SXM",), ("RTX 4090",), ("H100 SXM",)):
        assert _parse(rows, cache, gpus) == _parse(rows, gpus=gpus)
    assert _parse(rows, cache, ("RTX 4090",)).other_gpu_rows == 2


def test_rows_are_split_where_a_brace_follows_a_brace_and_a_comma() -> None:
    rows = b'[{"a":{"b":1},"c":2},{"d":3}]'
    assert [rows[start:end] for _, start, end in split_rows(rows, {})] == [b'{"a":{"b":1},"c":2}', b'{"d":3}']
    assert [rows[start:end] for _, start, end in split_rows(b"[]", {})] == [b""]


@pytest.mark.parametrize("later_s", [60, -60])
def test_what_was_not_seen_for_the_longest_time_is_forgotten_first(later_s: int) -> None:
    """Forgetting everything would build a whole market again. A clock that is set back changes nothing."""
    cache: RowCache = {}
    _parse([ROW, OTHER], cache)
    _, seen_once = cache
    [offer] = _parse([ROW], cache, later_s=later_s).offers
    cache |= {b"%d" % number: CachedRow(1, 1, 1, offer) for number in range(10_998)}
    evict_oldest(cache, offer.observed_at)
    assert len(cache) == 11_000
    cache |= {b"another": CachedRow(1, 1, 1, offer)}
    evict_oldest(cache, offer.observed_at)
    assert len(cache) == 10_000
    assert seen_once not in cache


def test_a_row_that_begins_with_a_long_text_is_not_cached() -> None:
    """The beginnings of rows would fill the memory."""
    cache: RowCache = {}
    rows = [{"text": "x" * 100} | ROW, OTHER]
    assert _parse(rows, cache) == _parse(rows)
    assert len(cache) == 1


_FACTS = st.fixed_dictionaries(
    {"id": st.integers(1, 4), "machine_id": st.integers(1, 2), "dph_total": st.sampled_from([0.0, 0.5, 0.75])},
    optional={
        "gpu_name": st.sampled_from(["H100 SXM", '"},{"', 'a,"duration":1']),
        "duration": st.sampled_from([1.5, 60, None, "a,b", "},{", [{"a": 1}, {"b": 2}], {"duration": 1}]),
        "search": st.sampled_from([{"duration": 2}, [{"a": 1}, {"b": 2}]]),
        "end_date": st.sampled_from([1.8e9, 1.9e9]),
    },
)
_ROWS = st.builds(
    lambda facts, names: {name: facts[name] for name in (*names, *facts)},
    _FACTS.map(lambda facts: a_row(**facts)),
    st.permutations(["id", "gpu_name", "machine_id"]),
)


@given(st.lists(st.tuples(st.lists(_ROWS, max_size=5), st.sampled_from([7, 150, 10_000])), min_size=2, max_size=5))
def test_a_cache_never_changes_an_answer(polls: list[tuple[list[dict[str, Any]], int]]) -> None:
    """Rows vanish, come back, change and share ids; texts look like ends of rows."""
    cache: RowCache = {}
    for number, (rows, piece) in enumerate(polls):
        body = json.dumps({"offers": rows}, separators=(",", ":")).encode()
        pieces = [body[start : start + piece] for start in range(0, len(body), piece)]
        cached, uncached = (
            _outcome(pieces, RowReader(True, 8.0, NOW + timedelta(seconds=number), ()), rows_cache)
            for rows_cache in (cache, None)
        )
        assert cached == uncached


def test_a_cached_row_without_its_end_is_no_row() -> None:
    body = json.dumps({"offers": [LAST, OTHER]}, separators=(",", ":")).encode()
    cut_off = body.replace(b"3600.5},", b"3600.5,")
    assert cut_off != body
    cache: RowCache = {}
    _outcome([body], RowReader(True, 8.0, NOW), cache)
    outcomes = [_outcome([cut_off], RowReader(True, 8.0, NOW), rows) for rows in (cache, None)]
    assert outcomes[0] == outcomes[1]


def _outcome(pieces: list[bytes], reader: RowReader, cache: RowCache | None) -> ParsedAnswer | str:
    try:
        return parse_offers(pieces, reader, row_cache=cache)
    except PayloadChanged as error:
        return str(error)
