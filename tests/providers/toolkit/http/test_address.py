"""A URL is sent as httpx would send it, and errors show only its host."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.providers.toolkit.http.address import Address, parse_address

TEXT = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=20)


@given(st.dictionaries(TEXT, TEXT, min_size=1, max_size=3))
def test_a_query_is_written_as_httpx_writes_it(params: dict[str, str]) -> None:
    ours = Address("https://market.example/api/v0/bundles/", params).url
    assert ours.target == httpx.URL("https://market.example/api/v0/bundles/", params=params).raw_path


@pytest.mark.parametrize(
    "url",
    [
        "https://market.example",
        "https://market.example:443/a/b/?q=1&r=a%20b",
        "http://127.0.0.1:8642/x?a=b#part",
        "http://[::1]:80/bot1:abc/getMe",
        "https://MARKET.example/a b/\u00fc/[1]",
        "https://b\u00fccher.example/",
    ],
)
def test_an_address_is_read_as_httpx_reads_it(url: str) -> None:
    ours, theirs = Address(url), httpx.URL(url)
    raw = (ours.url.scheme, ours.url.host, ours.url.port, ours.url.target)
    assert raw == (theirs.raw_scheme, theirs.raw_host, theirs.port, theirs.raw_path)
    assert ours.headers["host"] == httpx.Request("GET", url).headers["host"]


def test_the_user_that_an_address_names_is_sent_and_never_shown() -> None:
    address = Address("https://me:t%C3%B6p@market.example/x?key=secret")
    assert address.headers["authorization"] == "Basic bWU6dMO2cA=="
    assert str(address) == "https://market.example/x"


@pytest.mark.parametrize(
    "url", ["", "market.example", "ftp://market.example/", "http://", "http://[::1/", "http://a:x/"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Address(url)


def test_an_address_with_control_characters_is_refused() -> None:
    with pytest.raises(ValueError, match="control characters"):
        Address("http://market.example/a\x00b")


def test_a_long_question_is_taken_apart_once() -> None:
    assert parse_address("http://a.example/", {"q": "1"}) is parse_address("http://a.example/", {"q": "1"})
