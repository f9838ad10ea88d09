"""One bad row is dropped alone; no body crashes the parser, or becomes an offer wrongly."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from vast_double import NOW, a_row

from gpuwatch.domain.market.money import MAX_USD_HOUR
from gpuwatch.domain.market.offer import NO_GPU
from gpuwatch.errors import NoRowUnderstood, PayloadChanged, ProviderDown, ProviderError
from gpuwatch.providers.vastai.answer_parser import ParsedAnswer, parse_offers
from gpuwatch.providers.vastai.rows import RowReader, gpu_filter_of
from gpuwatch.testing.suite import case
from tests.drawn import examples


def _parse(body: bytes, chunk: int | None = None, spot: bool = False, disk_gb: float = 8.0) -> ParsedAnswer:
    chunks = [body] if chunk is None else [body[at : at + chunk] for at in range(0, len(body), chunk)]
    return parse_offers(chunks, RowReader(spot, disk_gb, NOW))


def _body(*rows: Any) -> bytes:
    return json.dumps({"offers": list(rows)}).encode()


GOOD = a_row(id=99)


def test_a_bad_value_drops_that_row_with_its_reason() -> None:
    cases: list[Any] = [
        ("dph_total", 0, "dph_total: zero or less"),
        ("dph_total", -1.5, "dph_total: zero or less"),
        ("dph_total", 1e-9, "dph_total: zero or less"),
        ("dph_total", 10_001, "dph_total: too large"),
        ("dph_total", math.nan, "dph_total: not a finite number"),
        ("dph_total", math.inf, "dph_total: not a finite number"),
        ("dph_total", "0,35", "dph_total: wrong type"),
        ("dph_total", "0.35", "dph_total: wrong type"),
        ("dph_total", True, "dph_total: wrong type"),
        ("dph_total", [0.35], "dph_total: wrong type"),
        ("dph_total", None, "dph_total: missing"),
        ("num_gpus", 0, "num_gpus: out of range"),
        ("num_gpus", -1, "num_gpus: out of range"),
        ("num_gpus", 10**30, "num_gpus: out of range"),
        ("num_gpus", 1.5, "num_gpus: wrong type"),
        ("num_gpus", True, "num_gpus: wrong type"),
        ("num_gpus", None, "num_gpus: missing"),
        ("id", 0, "id: zero or empty"),
        ("id", "", "id: zero or empty"),
        ("id", None, "id: missing"),
        ("id", {}, "id: wrong type"),
        ("gpu_name", None, "gpu_name: missing"),
        ("gpu_name", 4090, "gpu_name: wrong type"),
        ("gpu_name", "  ", "gpu_name: empty"),
        ("storage_cost", "0.1", "storage_cost: wrong type"),
        ("storage_cost", -0.1, "storage_cost: out of range"),
        ("storage_total_cost", -0.1, "storage_total_cost: out of range"),
        ("rentable", "yes", "rentable: wrong type"),
    ]
    for field, value, reason in cases:
        with case((field, value, reason)):
            parsed = _parse(_body(a_row(id=1) | {field: value}, GOOD))
            assert [offer.offer_id for offer in parsed.offers] == ["99"]
            assert (parsed.skipped, parsed.rows) == ({reason: 1}, 2)


def test_what_is_no_row_is_counted() -> None:
    cases: list[Any] = [None, 7, "x", [], [[]], True, {}]
    for row in cases:
        with case(row):
            parsed = _parse(_body(row, GOOD))
            assert (len(parsed.offers), parsed.rows, sum(parsed.skipped.values())) == (1, 2, 1)


def test_if_no_row_can_be_used_the_format_has_changed() -> None:
    with pytest.raises(PayloadChanged, match=r"none of 2 rows can be used .*dph_total: missing"):
        _parse(_body(*[{"id": 1, "gpu_name": "x", "num_gpus": 1, "price": 1}] * 2))


def test_the_field_because_of_which_no_row_can_be_used_is_named() -> None:
    cases: list[Any] = [
        ({"dph_total": None}, "price field gone: dph_total"),
        ({"dph_total": "0.35"}, "price field of another type: dph_total"),
        ({"num_gpus": None}, "field gone: num_gpus"),
    ]
    for spoil, note in cases:
        with case((spoil, note)):
            with pytest.raises(NoRowUnderstood) as caught:
                _parse(_body(*[a_row() | spoil] * 3))
            assert (caught.value.rows, note in caught.value.drift) == (3, True)


def test_a_renamed_price_is_named_as_gone_and_as_new() -> None:
    renamed = {("price_total" if name == "dph_total" else name): value for name, value in a_row().items()}
    with pytest.raises(NoRowUnderstood) as caught:
        _parse(_body(*[renamed] * 3))
    assert {"price field gone: dph_total", "new field: price_total"} <= set(caught.value.drift)


def test_a_price_that_a_row_can_do_without_is_named_too() -> None:
    without = {name: value for name, value in a_row().items() if name != "storage_cost"}
    assert "price field gone: storage_cost" in _parse(_body(*[without] * 3)).drift


def test_an_odd_optional_value_is_unknown_and_the_offer_stays() -> None:
    cases: list[Any] = [
        ("inet_down", 0), ("inet_down", -1), ("inet_down", "fast"), ("inet_down", math.nan), ("bw_nvlink", 0.0),
        ("end_date", 1.8e12), ("end_date", -1), ("reliability2", 97.0), ("reliability2", "high"), ("gpu_ram", -1),
        ("verification", "blessed"), ("verification", 1), ("direct_port_count", -1), ("cuda_max_good", "12.4"),
        ("machine_id", []), ("geolocation", 5), ("hosting_type", "dc"), ("dlperf", None),
    ]  # fmt: skip
    for field, value in cases:
        with case((field, value)):
            names = {
                "inet_down": "download_mbps", "bw_nvlink": "nvlink_gbps", "end_date": "available_until",
                "gpu_ram": "gpu_memory_gib", "reliability2": "reliability", "direct_port_count": "ports",
                "cuda_max_good": "cuda_max", "geolocation": "region", "hosting_type": "datacenter",
            }  # fmt: skip
            offer = _parse(_body(a_row() | {field: value})).offers[0]
            assert getattr(offer, names.get(field, field)) is None


def test_a_row_with_the_least_is_an_offer() -> None:
    offer = _parse(_body({"id": 1, "gpu_name": "RTX 4090", "num_gpus": 2, "dph_total": 0.5})).offers[0]
    assert (offer.gpu, offer.gpu_count, offer.machine_id, offer.disk_usd_gb_month) == ("RTX 4090", 2, None, None)


def test_a_place_is_a_region_and_a_country() -> None:
    cases: list[Any] = [
        ("Washington, US", ("Washington", "US")), (", US", (None, "US")), ("Norway", ("Norway", None)),
        ("Quebec, Montreal, CA", ("Quebec, Montreal", "CA")), ("Texas, United States", ("Texas, United States", None)),
        ("", (None, None)), (None, (None, None)),
    ]  # fmt: skip
    for geolocation, expected in cases:
        with case((geolocation, expected)):
            offer = _parse(_body(a_row(geolocation=geolocation))).offers[0]
            assert (offer.region, offer.country) == expected


def test_the_quoted_disk_is_computed_back_from_its_price() -> None:
    cases: list[Any] = [
        (0.2, 0.2 * 100 / 720, 100.0, 100.0),  # as requested
        (0.2, 0.0022222222222222222, 100.0, 8.0),  # the server kept its default
        (0.2, 0.0, 100.0, 0.0),  # the quote includes no disk
        (0.0, 0.0, 100.0, 100.0),  # disk is free
        (None, None, 100.0, 100.0),
        (1 / 3, 1 / 3 * 12.5 / 720, 8.0, 12.5),
    ]
    for rate, total, asked_gb, expected_gb in cases:
        with case((rate, total, asked_gb, expected_gb)):
            row = a_row(storage_cost=rate, storage_total_cost=total)
            assert _parse(_body(row), disk_gb=asked_gb).offers[0].quoted_disk_gb == pytest.approx(expected_gb, abs=1e-9)


def test_a_bid_costs_no_less_than_the_least_bid_and_the_disk() -> None:
    row = a_row(dph_total=0.2, min_bid=0.45, storage_cost=0.9, storage_total_cost=0.01)
    assert _parse(_body(row), spot=True).offers[0].quoted_usd_hour == pytest.approx(0.46)


def test_made_up_spellings_do_not_fill_the_memory() -> None:
    names = ["x" * 10_000, *(f"GPU {number}" for number in range(2_100)), "RTX 4090"]
    body = _body(*(a_row(id=number, gpu_name=name) for number, name in enumerate(names, 1)))
    for _ in range(2):
        found = parse_offers(body, RowReader(False, 8.0, NOW, ("RTX 4090",)))
        assert (len(found.offers), found.other_gpu_rows) == (1, 2_101)
    remembered = gpu_filter_of(("RTX 4090",))
    assert len(remembered) == 2_000
    assert max(map(len, remembered)) <= 200


def test_values_that_many_offers_have_are_one_object() -> None:
    one, other = _parse(_body(a_row(id=1, cuda_max_good=12.375), a_row(id=2, cuda_max_good=12.375))).offers
    assert one.cuda_max is other.cuda_max


def test_host_text_is_cleaned_and_cut() -> None:
    row = a_row(
        gpu_name="RTX\x1b[31m 4090\u202e" + "x" * 1_000_000, geolocation="\x00\u2028Town, US", driver_version="1\n2"
    )
    offer = _parse(_body(row)).offers[0]
    assert len(offer.gpu_wire) <= 200
    for text in (offer.gpu, offer.gpu_wire, offer.region or "", offer.driver or ""):
        assert text.isprintable()
    assert offer.country == "US"


def test_a_bid_that_cannot_be_is_not_reported() -> None:
    cases: list[Any] = [-1.0, 0.0, 1e308, MAX_USD_HOUR * 2]
    for bid in cases:
        with case(bid):
            [found] = _parse(_body(a_row(min_bid=bid))).offers
            assert found.min_bid_usd_hour is None


def test_an_identifier_that_is_none_is_not_kept() -> None:
    """The store has 64 characters for it."""
    cases: list[Any] = [" ", "", "x" * 65, 0]
    for odd in cases:
        with case(odd):
            [found] = _parse(_body(a_row(machine_id=odd, host_id=odd))).offers
            assert (found.machine_id, found.host_id) == (None, None)
            parsed = _parse(_body(a_row(id=odd), GOOD))
            assert [offer.offer_id for offer in parsed.offers] == ["99"]


def test_a_lone_surrogate_costs_no_more_than_its_row() -> None:
    body = (
        b'{"offers": ['
        + json.dumps(a_row(id=1, geolocation="\ud800, US")).encode()
        + b","
        + json.dumps(GOOD).encode()
        + b"]}"
    )
    parsed = _parse(body)
    assert "99" in [offer.offer_id for offer in parsed.offers]
    assert parsed.rows == 2


@pytest.mark.parametrize("open_end", [False, True])
@pytest.mark.parametrize("inside", ["body", "row", "field"])
def test_200_000_nested_lists_are_an_error_and_no_crash(inside: str, open_end: bool) -> None:
    nest = b"[" * 200_000 + (b"" if open_end else b"]" * 200_000)
    head = {"body": b"", "row": b'{"offers": [', "field": b'{"offers": [{"id": 1, "x": '}[inside]
    with pytest.raises((PayloadChanged, ProviderDown)):
        _parse(head + nest)


# --- pieces ------------------------------------------------------------------------------------------------------

TRICKY = [
    a_row(id=1, gpu_name='RTX 4090"},{"id":7,"gpu_name":"evil'),
    a_row(id=2, geolocation='\\\\",{[}]\\u007d', machine_id="a},{b"),
    a_row(id=3, gpu_ids=[{"x": 1}, {"y": [{"z": 2}, {}]}], search={"a": {"b": 1}}),
    a_row(id=4, mobo_name="]}"),
    a_row(id=5),
]


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" , ", " : ")])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("chunk", [1, 7, 100, 10_000])
@pytest.mark.parametrize("nan", [False, True])
def test_however_the_body_is_cut_into_pieces_it_means_the_same(
    separators: tuple[str, str], indent: int | None, chunk: int, nan: bool
) -> None:
    rows = TRICKY + ([a_row(id=6, dph_total=math.nan)] if nan else [])
    body = json.dumps({"success": True, "offers": rows, "more": [1, {"a": "]}"}]}, separators=separators, indent=indent)
    parsed = _parse(body.encode(), chunk)
    assert [offer.offer_id for offer in parsed.offers] == ["1", "2", "3", "4", "5"]
    assert parsed.rows == len(rows)


def test_pieces_of_any_size_give_all_rows() -> None:
    cases: list[Any] = [0, 1, 2, 300]
    for count in cases:
        with case(count):
            body = _body(*[a_row(id=n + 1) for n in range(count)])
            for chunk in (3, 1000, 65536):
                assert len(_parse(body, chunk).offers) == count


@pytest.mark.parametrize("tail", [b"", b"]", b"]}}", b"]} x", b",]}", b"}]", b"]]}"])
def test_a_wrong_end_is_not_taken_for_a_whole(tail: bytes) -> None:
    body = b'{"offers":[' + json.dumps(a_row()).encode() + tail
    if tail == b",]}":
        assert sum(_parse(body).skipped.values()) == 1
        return
    with pytest.raises((PayloadChanged, ProviderDown)):
        _parse(body)


def test_a_list_of_nothing_but_commas_is_no_empty_market() -> None:
    with pytest.raises(PayloadChanged):
        _parse(b'{"offers": [,,]}')


def test_a_refusal_with_an_empty_list_is_no_empty_market() -> None:
    cases: list[Any] = [
        b'{"offers": [], "error": "maintenance"}',
        b'{"error": "maintenance", "offers": []}',
        b'{"success": false, "offers": []}',
    ]
    for body in cases:
        with case(body):
            with pytest.raises(PayloadChanged, match=r"is an error or not JSON: .*(maintenance|false)"):
                _parse(body)
            assert _parse(b'{"success": true, "error": null, "offers": []}').rows == 0


# --- fuzz --------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
ODD_ROW = st.dictionaries(
    st.sampled_from(sorted(a_row() | {"end_date": 1, "host_id": 1, "dlperf": 1})), JSON, max_size=6
).map(lambda changes: a_row() | changes)


def _check(parsed: ParsedAnswer) -> None:
    for offer in parsed.offers:
        assert 0 < offer.quoted_usd_hour <= MAX_USD_HOUR
        assert 1 <= offer.gpu_count <= 1024
        assert offer.offer_id
        assert offer.gpu
        assert all(mark.isprintable() or mark.isspace() for mark in offer.gpu_wire)  # a no-break space is harmless
        assert not set(offer.gpu_wire) & set("\t\r\n\x0b\x0c\x85\u2028\u2029")
        assert math.isfinite(offer.quoted_disk_gb)
        assert offer.quoted_disk_gb >= 0
        assert offer.disk_usd_gb_month is None or 0 <= offer.disk_usd_gb_month <= MAX_USD_HOUR
        assert offer.reliability is None or 0 <= offer.reliability <= 1
    assert parsed.rows == len(parsed.offers) + sum(parsed.skipped.values())


@pytest.mark.slow
@settings(max_examples=examples(100, explore=1500), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(ODD_ROW | JSON, max_size=4), st.integers(1, 400), st.booleans())
@example([a_row() | {"gpu_name": "RTX\u00a04090\u2003D"}], 400, False)
def test_odd_rows_give_a_typed_error_or_valid_offers(rows: list[Any], chunk: int, spot: bool) -> None:
    with suppress(ProviderError):
        _check(_parse(_body(*rows), chunk, spot))


@settings(max_examples=examples(100, explore=500), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(ODD_ROW, min_size=1, max_size=7))
@example([*(a_row(id=n) | {"inner": [{}, {}, {}], f"field {n}": n} for n in range(1, 7)), a_row(id=7)])
def test_the_names_found_without_reading_every_row_are_those_of_its_ends(rows: list[Any]) -> None:
    """With blanks between the rows, no truncation is assumed, and all are read."""
    with suppress(NoRowUnderstood):
        compact = json.dumps({"offers": rows}, separators=(",", ":")).encode()
        assert _parse(compact).drift == _parse(_body(*rows)).drift


@settings(max_examples=examples(100, explore=1500), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_damaged_bodies_give_a_typed_error_or_valid_offers(data: st.DataObject) -> None:
    body = bytearray(_body(*TRICKY))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        length = data.draw(st.integers(0, 20))
        body[at : at + length] = data.draw(
            st.binary(max_size=20) | st.sampled_from([b"},{", b'"', b"]", b"}", b"\\", b"[", b"null"])
        )
        if not body:
            break
    with suppress(ProviderError):
        _check(_parse(bytes(body), data.draw(st.integers(1, 500))))


@settings(max_examples=examples(100, explore=1500), deadline=None)
@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_other_body_is_a_typed_error(body: bytes) -> None:
    with suppress(ProviderError):
        _check(_parse(body))


@given(
    st.lists(
        st.fixed_dictionaries(
            {"num_gpus": st.integers(-1, 3), "gpu_name": st.sampled_from([None, "", "none", "RTX 4090"])},
            optional={"dph_total": st.floats(0.001, 1.0), "cpu_ram": st.none() | st.integers(-1, 2**40)},
        ),
        max_size=5,
    )
)
@settings(max_examples=examples(50))
def test_an_offer_without_gpus_is_none_in_other_searches_and_no_other_is_one(rows: list[dict[str, Any]]) -> None:
    drawn = [a_row(id=number + 1, **row) for number, row in enumerate(rows)]
    for gpus in ((NO_GPU,), ("RTX 4090",), ()):
        with suppress(NoRowUnderstood):
            parsed = parse_offers(_body(*drawn), RowReader(False, 8.0, NOW, gpus))
            counts = {int(offer.offer_id): offer.gpu_count for offer in parsed.offers}
            wanted = {row["id"]: row["num_gpus"] for row in drawn if (row["num_gpus"] == 0) is (gpus == (NO_GPU,))}
            assert counts.items() <= wanted.items()
            assert all((offer.gpu == NO_GPU) is (gpus == (NO_GPU,)) for offer in parsed.offers)
            assert parsed.rows == len(drawn)
