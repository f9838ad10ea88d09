"""Rows that a query rejects do not become offers, and nothing else of the answer changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vast_double import NOW, a_row

from gpuwatch.errors import ProviderError
from gpuwatch.ports import Query
from gpuwatch.providers.toolkit.post_processing import matching
from gpuwatch.providers.vastai.answer_parser import ParsedAnswer, parse_offers
from gpuwatch.providers.vastai.raw_rows import RowConditions
from gpuwatch.providers.vastai.rows import RowReader
from tests.drawn import examples


def _parse(rows: Sequence[Any], query: Query, page_rows: int | None) -> ParsedAnswer:
    conditions = None if page_rows is None else RowConditions(query, page_rows)
    body = json.dumps({"offers": rows}, separators=(",", ":")).encode()
    return parse_offers(body, RowReader(query.spot, query.disk_gb or 8.0, NOW, query.gpus, conditions))


REJECTED = [
    ({"num_gpus": 2}, Query(count_max=1)),
    ({"num_gpus": 2}, Query(count_min=4)),
    ({"dph_total": 0.51}, Query(max_listed_usd_hour=0.5)),
    ({"rentable": False}, Query()),
    ({"verification": "unverified"}, Query(verified=True)),
    ({"verification": None}, Query(verified=True)),
    ({"verification": "verified"}, Query(verified=False)),
    ({"verification": "blessed"}, Query(verified=False)),
    ({"reliability2": 0.97}, Query(min_reliability=0.98)),
    ({"reliability2": 1.5}, Query(min_reliability=0.98)),
    ({"reliability2": None}, Query(min_reliability=0.98)),
    ({"reliability2": None, "reliability": 0.97}, Query(min_reliability=0.98)),
]


@pytest.mark.parametrize(("values", "query"), REJECTED)
def test_a_row_that_fails_a_condition_becomes_no_offer(values: dict[str, Any], query: Query) -> None:
    found = _parse([a_row(id=1, **values), a_row(id=2, **values)], query, page_rows=0)
    assert (found.offers, found.rejected_rows, found.rows) == ([], 2, 2)


@pytest.mark.parametrize(("values", "query"), REJECTED)
def test_a_page_as_long_as_requested_becomes_offers(values: dict[str, Any], query: Query) -> None:
    """They show which filters the server ignored, and up to which price the page is complete."""
    found = _parse([a_row(id=1, **values), a_row(id=2, **values)], query, page_rows=2)
    assert (len(found.offers), found.rejected_rows) == (2, 0)


def test_a_price_that_depends_on_the_disk_is_not_compared() -> None:
    query = Query(max_listed_usd_hour=0.5, disk_gb=1.0)
    row = a_row(dph_total=0.6, storage_cost=36.0, storage_total_cost=0.4)  # without 7 of its 8 GB: 0.25
    found = _parse([row], query, page_rows=0)
    assert matching(found.offers, query) == found.offers != []


def test_a_rejected_row_that_is_no_offer_is_skipped_with_its_reason() -> None:
    found = _parse([a_row(id=1, num_gpus=2), a_row(id=2, num_gpus=2, storage_cost=-1)], Query(count_max=1), 0)
    assert (found.rejected_rows, found.skipped) == (1, {"storage_cost: out of range": 1})


_numbers = st.sampled_from([None, 0, -1, 1, 2, 4, 0.3, 0.5, 0.500001, 0.98, 1.0, 1.5, 20_000, "1"])
_values = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from([0, "", "x", "x" * 70, None]),
        "gpu_name": st.sampled_from(["H100 SXM", "RTX 4090", "", " ", 7]),
        "verification": st.sampled_from(["verified", "unverified", "deverified", "blessed", "", None]),
        "rentable": st.sampled_from([True, False, None, "yes"]),
        **dict.fromkeys(
            ["num_gpus", "dph_total", "min_bid", "storage_cost", "storage_total_cost", "reliability", "reliability2"],
            _numbers,
        ),
    },
)
_queries = st.builds(
    Query,
    gpus=st.sampled_from([(), ("RTX 4090",)]),
    count_min=st.sampled_from([1, 2]),
    count_max=st.sampled_from([None, 1, 2]),
    spot=st.booleans(),
    disk_gb=st.sampled_from([None, 1.0, 50.0]),
    max_listed_usd_hour=st.sampled_from([None, 0.0, 0.5]),
    verified=st.sampled_from([None, True, False]),
    min_reliability=st.sampled_from([None, 0.0, 0.98]),
)


def _outcome(rows: Sequence[Any], query: Query, page_rows: int | None) -> object:
    try:
        found = _parse(rows, query, page_rows)
    except ProviderError as error:
        return repr(error)
    return matching(found.offers, query), found.rows, found.skipped, found.other_gpu_rows, found.drift


@given(st.lists(_values, min_size=1, max_size=6), _queries)
@settings(max_examples=examples(300, 5_000), deadline=None)
def test_the_matching_offers_and_the_counts_stay_the_same(values: list[dict[str, Any]], query: Query) -> None:
    rows = [a_row(id=number) | value for number, value in enumerate(values, 1)]
    assert _outcome(rows, query, page_rows=0) == _outcome(rows, query, page_rows=None)
