"""Views: each key is declared once, and read from the thing itself."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import msgspec
import pytest
from msgspec import UNSET, UnsetType

from gpuwatch.domain.market.json_view import JsonView, Moment


class Thing(msgspec.Struct, frozen=True):
    name: str
    price_microusd_hour: int | None
    at: datetime
    spans: tuple[datetime, ...] = ()


class ThingView(JsonView, frozen=True, kw_only=True):
    name: str
    price_usd_hour: float | None
    at: Moment
    spans: tuple[Moment, ...]
    note: str | UnsetType = UNSET


EVENING = datetime(2026, 3, 1, 20, 0, 0, 999_999, timezone(timedelta(hours=2)))
THING = Thing("a", 1_250_000, EVENING, (EVENING,))


def test_fields_are_the_attributes_of_that_name_money_is_in_dollars_and_times_are_utc() -> None:
    assert ThingView.of(THING).json() == {
        "name": "a",
        "price_usd_hour": 1.25,
        "at": "2026-03-01T18:00:00Z",
        "spans": ("2026-03-01T18:00:00Z",),
    }
    assert ThingView.of(msgspec.structs.replace(THING, price_microusd_hour=None)).price_usd_hour is None


def test_the_first_source_with_an_attribute_counts_and_a_given_field_before_all() -> None:
    other = msgspec.structs.replace(THING, name="b")
    assert ThingView.of(None, THING, other).name == "a"
    assert ThingView.of(THING, name="c", note="said").json() | {"at": ""} == {
        **ThingView.of(THING).json(),
        "name": "c",
        "note": "said",
        "at": "",
    }


def test_a_field_that_nothing_has_is_an_error() -> None:
    with pytest.raises(TypeError, match="price_usd_hour"):
        ThingView.of(EVENING, name="a", at=EVENING, spans=())
