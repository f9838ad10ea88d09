"""Shared by all launchers: missing features of a provider, orders that are not sent, odd answers."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Any

import pytest

from gpuwatch.errors import OrderRefused, OutcomeUnknown, PayloadChanged, RefusalKind
from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.toolkit.basic_launcher import (
    BasicLauncher,
    created_instance,
    decoded_order,
    id_and_status,
    instance_rows,
    refuse,
)
from gpuwatch.providers.toolkit.validation import parse_utc, time_from_unix
from gpuwatch.testing.suite import case


class Acme(BasicLauncher):
    name = "acme"


def test_what_there_is_not_is_not_reported() -> None:
    assert Acme().credit_usd() is None
    assert Acme().charges(date(2026, 11, 1), date(2026, 11, 2)) is None
    assert list(Acme().price_increases()) == []


def test_what_cannot_be_done_is_refused_in_one_line_that_names_the_provider() -> None:
    for do in (lambda: Acme().change_bid("1", 2.0), lambda: Acme().answer_increase("1", True)):
        with pytest.raises(OrderRefused, match=r"^acme: [^\n]+$") as refused:
            do()
        assert refused.value.kind is RefusalKind.BAD_ORDER


def test_an_order_is_refused_for_the_first_reason_that_holds() -> None:
    refuse("acme", {"no bids": False, "no volumes": None})
    with pytest.raises(OrderRefused, match=r"^acme: nothing was sent: no volumes$") as refused:
        refuse("acme", {"no bids": False, "no volumes": "a volume", "no ports": True})
    assert refused.value.kind is RefusalKind.BAD_ORDER


def test_an_unreadable_answer_to_an_order_leaves_its_outcome_unknown() -> None:
    cases: list[Any] = [b"", b"<html>", b"{"]
    for body in cases:
        with case(body):
            with pytest.raises(OutcomeUnknown) as unknown:
                decoded_order(HttpReply(200, {}, body), "acme", "i-1")
            assert unknown.value.instance_id == "i-1"


def test_a_create_that_names_no_instance_may_have_made_one() -> None:
    cases: list[Any] = [None, 7, "", "a b", ["i-1"]]
    for odd in cases:
        with case(odd):
            with pytest.raises(OutcomeUnknown, match="acme"):
                created_instance(odd, re.compile(r"[a-z0-9-]+"), "acme")
            assert created_instance("i-1", re.compile(r"[a-z0-9-]+"), "acme").instance_id == "i-1"


def test_a_list_with_a_gap_is_no_list() -> None:
    cases: list[Any] = [
        {},
        {"rows": None},
        {"rows": {}},
        {"rows": [{}, "odd"]},
        {"rows": [{}], "next": "2"},
        {"rows": [{}], "total": 2},
    ]
    for around in cases:
        with case(around):
            with pytest.raises(PayloadChanged, match=r"^acme: "):
                instance_rows(around, around.get("rows"), "acme")
            assert instance_rows({"rows": [{"id": "1"}]}, [{"id": "1"}], "acme") == [{"id": "1"}]


def test_an_instance_without_id_or_status_makes_the_list_unreadable() -> None:
    cases: list[Any] = [{}, {"id": "1"}, {"status": "up"}, {"id": 1, "status": "up"}, {"id": " "}]
    for row in cases:
        with case(row):
            with pytest.raises(PayloadChanged, match=r"^acme: "):
                id_and_status(row, "acme")
            assert id_and_status({"id": "1", "status": "up"}, "acme") == ("1", "up")


def test_a_moment_needs_its_zone() -> None:
    cases: list[Any] = [
        ("2026-11-23T12:00:00+01:00", datetime(2026, 11, 23, 11, tzinfo=UTC)),
        ("2026-11-23T12:00:00", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("soon", None),
        (1_700_000_000, None),
    ]
    for text, expected in cases:
        with case((text, expected)):
            assert parse_utc(text) == expected


def test_seconds_of_another_unit_are_no_moment() -> None:
    cases: list[Any] = [None, 0.0, -1.0, 1.7e12]
    for seconds in cases:
        with case(seconds):
            assert time_from_unix(seconds) is None
            assert time_from_unix(1.7e9) == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
