"""Rows of nine columns: read, refused, and written so that they read back the same."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.history.price_rows import (
    COLUMNS,
    PriceRow,
    csv_cells,
    listing_of,
    machine_in_key,
    offer_key_of,
    parse_price_row,
    price_row_of,
    usd_text,
)
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.offer import Identity, OfferKind
from tests.builders import shared_gpu_names

CELLS = {
    "observed_at": "2026-02-27T13:36:32Z",
    "provider": "vastai",
    "offer_key": "10952073/spot",
    "region": "Utah, US",
    "gpu_name_raw": "RTX 4090",
    "gpu_count": "8",
    "gpu_mem_gib": "24",
    "spot": "true",
    "price_usd_hour": "2.133333",
}
LOOK = CELLS | {"offer_key": "", "region": "", "gpu_count": "", "gpu_mem_gib": "", "price_usd_hour": ""}
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), min_size=1, max_size=64)


def test_a_row_is_understood() -> None:
    row = parse_price_row(CELLS)
    assert (row.at_s, row.listed_microusd_hour, row.gpu_memory_gib) == (1772199392, 2_133_333, 24.0)
    assert listing_of(row, {}).identity == Identity("vastai", "10952073", "RTX 4090", 8, True)
    listing = listing_of(row, {})
    assert (listing.country, listing.offer_id, listing.gpu_family) == ("US", "10952073", "RTX 4090")


@pytest.mark.parametrize(
    ("region", "country", "cell"),
    [
        ("Île-de-France", "FR", "Île-de-France, FR"),
        ("us-east-1", "US", "us-east-1, US"),
        ("Utah, US", "US", "Utah, US"),
        ("US", "US", "US"),
        (None, "US", "US"),
        ("Texas", None, "Texas"),
        (None, None, None),
    ],
)
def test_a_written_row_keeps_the_country(region: str | None, country: str | None, cell: str | None) -> None:
    listing = msgspec.structs.replace(listing_of(parse_price_row(CELLS), {}), region=region, country=country)
    row = price_row_of(listing, 1772199392, 2_133_333, None)
    again = listing_of(row, {})
    assert (row.region, again.country) == (cell, country)
    assert price_row_of(again, 1772199392, 2_133_333, None) == row


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("observed_at", "yesterday"),
        ("observed_at", "2026-02-27T13:36:32"),
        ("observed_at", "1969-01-01T00:00:00Z"),
        ("observed_at", ""),
        ("provider", ""),
        ("provider", "x" * 18),
        ("offer_key", ""),
        ("offer_key", "x" * 65 + "/spot"),
        ("gpu_name_raw", ""),
        ("gpu_count", "0"),
        ("gpu_count", "-1"),
        ("gpu_count", "1.5"),
        ("gpu_count", "1025"),
        ("gpu_count", "٣"),
        ("gpu_mem_gib", "much"),
        ("gpu_mem_gib", "nan"),
        ("gpu_mem_gib", "-1"),
        ("spot", "maybe"),
        ("spot", ""),
        ("price_usd_hour", ""),
        ("price_usd_hour", "0"),
        ("price_usd_hour", "-1"),
        ("price_usd_hour", "nan"),
        ("price_usd_hour", "Infinity"),
        ("price_usd_hour", "10001"),
        ("price_usd_hour", "1,5"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_column(column: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"^{column}: expected"):
        parse_price_row(CELLS | {column: text})


def test_a_short_row_is_refused_not_understood() -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_price_row(dict.fromkeys(COLUMNS))


def test_a_price_is_exact_to_the_micro_dollar() -> None:
    assert parse_price_row(CELLS | {"price_usd_hour": "3.308444"}).listed_microusd_hour == 3_308_444
    assert parse_price_row(CELLS | {"price_usd_hour": "1e-9"}).listed_microusd_hour == 1


@given(st.integers(1, 10**10))
def test_dollars_are_written_exactly(microusd: int) -> None:
    assert parse_price_row(CELLS | {"price_usd_hour": usd_text(microusd)}).listed_microusd_hour == microusd


def test_a_seller_stands_behind_the_provider_and_a_kind_is_none() -> None:
    assert parse_price_row(CELLS | {"provider": "primeintellect:nebius"}).seller == "nebius"
    listed = parse_price_row(CELLS | {"provider": "aws:listed"})
    assert (listed.provider, listed.seller, listed.kind) == ("aws", None, OfferKind.LISTED)


def test_a_row_without_key_and_count_is_a_look() -> None:
    look = parse_price_row(LOOK)
    assert look.is_poll
    assert not parse_price_row(CELLS).is_poll
    assert parse_price_row(LOOK | {"gpu_name_raw": ""}).gpu_wire == ""
    assert parse_price_row(LOOK | {"price_usd_hour": "2.5"}).listed_microusd_hour == 2_500_000


@given(
    st.builds(
        PriceRow,
        at_s=st.integers(946_684_800, 4_102_444_799),
        provider=st.from_regex(r"[a-z0-9.-]{1,17}", fullmatch=True),
        seller=st.none() | st.from_regex(r"[a-z]{1,5}[0-9]", fullmatch=True),
        offer_key=TEXT,
        region=st.none() | TEXT.filter(lambda text: text.strip() == text),
        gpu_wire=TEXT,
        gpu_count=st.integers(1, 1024),
        gpu_memory_gib=st.none() | st.floats(0.01, 9999),
        spot=st.booleans(),
        listed_microusd_hour=st.integers(1, 10**10),
    )
)
def test_cells_read_back_to_the_same_row(row: PriceRow) -> None:
    assert parse_price_row(dict(zip(COLUMNS, csv_cells(row), strict=True))) == row


@given(TEXT, st.booleans())
def test_a_key_reads_back_to_the_machine(machine: str, spot: bool) -> None:
    key = offer_key_of(Identity("p", machine, "g", 1, spot))
    assert machine_in_key(key, spot) == machine


@pytest.mark.parametrize("key", ["10/ondemand", "A100/2x/best", "a2-highgpu-1g/us-central1/ondemand"])
def test_a_key_of_the_public_series_is_written_as_it_was(key: str) -> None:
    assert offer_key_of(Identity("p", machine_in_key(key, False), "g", 1, False)) == key


def test_every_canonical_name_stands_for_itself() -> None:
    for gpu in (*catalog().gpus(), *shared_gpu_names()):
        assert listing_of(parse_price_row(CELLS | {"gpu_name_raw": gpu.name, "gpu_mem_gib": ""}), {}).gpu == gpu.name
