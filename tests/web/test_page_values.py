"""The values in the address of a page."""

from __future__ import annotations

import pytest

from tests.web.served import PAGE, Served


@pytest.mark.parametrize(
    "address",
    [
        "/costs?month=2026-99", "/costs?month=%00", "/costs?by=nonsense", "/alerts?page=0", "/alerts?kind=x",
        "/alerts?severity=loud", "/log?level=deep", "/market?spot=maybe", "/market?sort=x", "/market?group=x",
        "/market?verified=1", "/market?provider=nowhere", "/gpu/H100?since=1y", "/gpu/H100?spot=1",
    ],
)  # fmt: skip
def test_a_value_that_a_page_does_not_know_is_refused_and_not_ignored(web: Served, address: str) -> None:
    answer = web.client.get(address, headers=PAGE)
    assert answer.status_code == 422
    assert "expected" in answer.text
