"""A catalogue that gpuwatch cannot read, or that contradicts itself, is no empty market and no wrong price."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuwatch.errors import PayloadChanged
from gpuwatch.providers.hyperstack import parse_prices
from gpuwatch.providers.toolkit.post_processing import ParseResult
from gpuwatch.providers.verda import parse_stock
from gpuwatch.providers.vultr.plans import parse_plans
from gpuwatch.testing.suite import case
from tests.checkout import TESTS
from tests.providers.clouds import cloud

RECORDED = TESTS / "recorded"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def _rename(field: str, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        row[f"{field}_new"] = row.pop(field, None)


def _vultr(field: str) -> object:
    rows = json.loads((RECORDED / "vultr" / "plans-quoted.json").read_text())
    _rename(field, rows)
    return parse_plans(rows)


def _verda(field: str) -> object:
    rows = json.loads((RECORDED / "verda" / "instance-types-client-tests.json").read_text())
    _rename(field, rows)
    without_gpu = {"instance_type": "CPU.4V.16G", "gpu": {"description": "", "number_of_gpus": 0}}
    return cloud("verda").parse_offers([*rows, without_gpu], {}, 0.2, NOW)


def _hyperstack(field: str) -> object:
    value = json.loads((RECORDED / "hyperstack" / "flavors-quoted.json").read_text())
    for group in value["data"]:
        _rename(field, group["flavors"])
    value["data"].append({"flavors": [{"name": "n1-cpu-small", "gpu": "", "gpu_count": 0}]})
    return cloud("hyperstack").parse_flavors(value, {"A100-80G-PCIe": 1.35}, NOW)


def test_a_renamed_field_is_a_changed_format_and_no_empty_market() -> None:
    cases: list[Any] = [
        (_vultr, "hourly_cost"), (_vultr, "type"), (_verda, "price_per_hour"), (_verda, "instance_type"),
        (_hyperstack, "stock_available"), (_hyperstack, "name"),
    ]  # fmt: skip
    for parse, field in cases:
        with case((parse, field)), pytest.raises(PayloadChanged, match="none of"):
            parse(field)


def test_places_own_prices_of_another_format_are_no_reason_to_show_the_plans_price() -> None:
    cases: list[Any] = [[{"region": "ewr", "hourly_cost": 3.5}], [3.5], "3.50", 3.5]
    for costs in cases:
        with case(costs):
            [plan, *_] = json.loads((RECORDED / "vultr" / "plans-quoted.json").read_text())
            parsed, plans = parse_plans([plan, plan | {"location_cost": costs}])
            assert (len(plans), parsed.skipped) == (1, {"places' own prices that cannot be read": 1})


def test_a_plan_without_own_prices_of_places_costs_its_price_everywhere() -> None:
    cases: list[Any] = [None, [], {}]
    for costs in cases:
        with case(costs):
            row = json.loads((RECORDED / "vultr" / "plans-quoted.json").read_text())[0]
            [plan] = parse_plans([row | {"location_cost": costs}])[1]
            assert plan.price_at("ewr") == 1.671


def test_no_plan_at_all_is_a_changed_format_because_sold_out_plans_stay_listed() -> None:
    with pytest.raises(PayloadChanged, match="vultr: the list of instance types is empty"):
        parse_plans([])


def test_stock_of_verda_that_cannot_be_read_is_no_sold_out_market() -> None:
    with pytest.raises(PayloadChanged):
        parse_stock([{"location_code": "FIN-01", "availabilities": [{"type": "8V100.48M"}]}], ParseResult())


def test_verda_is_sold_out_if_a_place_is_listed_and_has_nothing() -> None:
    """A list of no place at all may be a rental type that nobody offers; both lists are empty only by mistake."""
    cases: list[Any] = [
        ({}, {}, True),
        ({"FIN-01": []}, {}, False),
        ({}, {"FIN-01": []}, False),
        ({"FIN-01": []}, {"FIN-01": []}, False),
    ]
    for on_demand, spot, is_partial in cases:
        with case((on_demand, spot, is_partial)):
            types = json.loads((RECORDED / "verda" / "instance-types-client-tests.json").read_text())
            result = cloud("verda").parse_offers(types, {False: on_demand, True: spot}, 0.2, NOW)
            assert result.offers == []
            assert bool(result.missing) == is_partial


def test_a_place_that_verda_lists_twice_has_the_stock_of_both() -> None:
    rows = [{"location_code": "FIN-01", "availabilities": names} for names in (["1H100"], ["8V100.48M"], [])]
    assert parse_stock(rows, ParseResult()) == {"FIN-01": ["1H100", "8V100.48M"]}


def test_a_type_of_verda_with_two_numbers_of_gpus_is_skipped() -> None:
    [row] = json.loads((RECORDED / "verda" / "instance-types-client-tests.json").read_text())
    odd = row | {"gpu": {"description": "1x NVidia Tesla V100", "number_of_gpus": 8}}
    result = cloud("verda").parse_offers([row, odd], {False: {"FIN-01": [row["instance_type"]]}}, 0.2, NOW)
    assert (len(result.offers), result.skipped) == (1, {"two different numbers of its GPUs": 1})


@pytest.mark.parametrize("other", [0.9, None])
def test_a_gpu_with_two_prices_at_hyperstack_has_none(other: float | None) -> None:
    rows = [{"name": "L40", "value": 1.0}, *({"name": "A100", "value": value} for value in (1.35, other, 1.35))]
    assert parse_prices(rows) == {"L40": 1.0}
