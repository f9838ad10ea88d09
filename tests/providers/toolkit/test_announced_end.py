"""A row that is announced to end is not for sale, in whatever words the vendor announces it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gpuwatch.providers.toolkit.announced_end import is_ending, marks_an_end
from gpuwatch.testing.suite import case

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


def test_an_announced_end_is_read_from_any_usual_field() -> None:
    cases: list[Any] = [
        {"end_of_sale": True},
        {"endOfService": "true"},
        {"deprecated": True},
        {"is_deprecated": "yes"},
        {"retiring": True},
        {"deprecated": "2026-11-01"},
        {"retirementDate": "2026-11-28T11:59:59Z"},
        {"valid_until": "2026-11-27"},
        {"effectiveEndDate": "2026-11-28T12:00:00+00:00"},
        {"end_date": 1_764_000_000},
        {"expires_at": 1_764_000_000_000},
        {"status": "DEPRECATED"},
        {"lifecycle": "end_of_life"},
        {"saleStatus": "End of Sale"},
        {"labels": [{"id": 1, "label": "DEPRECATED"}]},
        {"tags": ["new", "retiring"]},
        {"deploy_warning": "This type is deprecated, use H200"},
        {"description": "1x A100 (40 GB) - Deprecated"},
        {"instance_type": {"deprecated": True}},
    ]
    for row in cases:
        with case(row):
            assert is_ending({"name": "x", "price": 1.0, **row}, NOW)


def test_what_announces_no_end_is_for_sale() -> None:
    cases: list[Any] = [
        {"end_of_sale": False},
        {"deprecated": None},
        {"deprecated": "false"},
        {"retirementDate": "2027-03-01"},
        {"deprecated": "2027-03-01T00:00:00Z"},
        {"valid_until": "9999-12-31"},
        {"valid_until": "soon"},
        {"end_date": 1e300},
        {"status": "active"},
        {"deploy_warning": "Use driver 535 or higher"},
        {"description": "Replaces the deprecated A100 machines with new ones"},
        {"labels": ["NEW"], "tags": None},
        {"region": "sunset-1", "display_name": "US, Sunset, UT"},
    ]
    for row in cases:
        with case(row):
            assert not is_ending({"name": "x", "price": 1.0, **row}, NOW)


def test_anything_else_announces_nothing() -> None:
    cases: list[Any] = [None, 1, "deprecated", ["deprecated"], {}, {1: 2}, {"deprecated": ["x"]}]
    for row in cases:
        with case(row):
            assert not is_ending(row, NOW)


def test_without_a_clock_only_flags_and_words_count() -> None:
    assert is_ending({"end_of_sale": True}, None)
    assert not is_ending({"valid_until": "2020-01-01"}, None)


def test_a_name_may_carry_the_mark() -> None:
    cases: list[Any] = [
        ("NC6s v3 - Expired", True),
        ("[Deprecated] H100", True),
        ("A100 (end of sale)", True),
        ("Expired Tires Co", True),
        ("H100", False),
        (None, False),
        ("not deprecated yet, really", False),
    ]
    for name, marked in cases:
        with case((name, marked)):
            assert marks_an_end(name) is marked
