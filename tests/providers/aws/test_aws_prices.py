"""List prices and spot prices: which of AWS's answers count."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuwatch.errors import NoRowUnderstood
from gpuwatch.providers.aws.catalog import (
    ListPrice,
    PriceList,
    SpotKey,
    disk_filters,
    drop_placeholders,
    drop_price_jumps,
    machine_filters,
    parse_disk,
    parse_machines,
    parse_spot,
)
from gpuwatch.providers.aws.offers import RegionZones, offer_in_zone, table
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped
from gpuwatch.testing.suite import case

HERE, NOW = "us-east-1", datetime(2026, 11, 21, 12, tzinfo=UTC)
ATTRIBUTES = {
    "instanceType": "p5.48xlarge", "regionCode": HERE, "operatingSystem": "Linux", "tenancy": "Shared",
    "preInstalledSw": "NA", "capacitystatus": "Used", "vcpu": "192", "memory": "2,048 GiB",
}  # fmt: skip
SPOT = {
    "InstanceType": "p5.48xlarge", "AvailabilityZone": "us-east-1a", "AvailabilityZoneId": "use1-az4",
    "ProductDescription": "Linux/UNIX", "SpotPrice": "21.341200", "Timestamp": datetime(2026, 11, 21, 9, tzinfo=UTC),
}  # fmt: skip


def _product(usd: Any = "55.0400000000", unit: str = "Hrs", terms: Any = None, **attributes: Any) -> str:
    dimension = {"unit": unit, "pricePerUnit": {"USD": usd}}
    plain = {"OnDemand": {"SKU.JRTCKXETXF": {"priceDimensions": {"SKU.JRTCKXETXF.6YS6EN2CT7": dimension}}}}
    return json.dumps({
        "product": {"attributes": ATTRIBUTES | attributes}, "terms": plain if terms is None else terms,
    })  # fmt: skip


def test_a_list_price_is_read_with_the_machines_size() -> None:
    found = parse_machines([_product()], HERE)
    assert found.types == {"p5.48xlarge": ListPrice(55.04, 192.0, 2048.0)}
    assert found.skipped == {}


def test_rows_that_were_not_asked_for_or_make_no_sense_are_counted() -> None:
    cases: list[Any] = [
        ({"tenancy": "Dedicated"}, "a list price of another kind"),
        ({"operatingSystem": "Windows"}, "a list price of another kind"),
        ({"preInstalledSw": "SQL Std"}, "a list price of another kind"),
        ({"capacitystatus": "AllocatedCapacityReservation"}, "a list price of another kind"),
        ({"regionCode": "us-west-2"}, "a list price of another kind"),
        ({"usd": "0.0000000000"}, "a list price without a price"),
        ({"usd": "-1"}, "a list price without a price"),
        ({"usd": "NaN"}, "a list price without a price"),
        ({"usd": "1e9"}, "a list price without a price"),
        ({"usd": None}, "a list price without a price"),
        ({"unit": "Quantity"}, "a list price without a price"),
        ({"terms": {}}, "a list price without a price"),
        ({"terms": {"OnDemand": []}}, "a list price without a price"),
        ({"instanceType": 17}, "a list price without a price"),
    ]
    for attributes, reason in cases:
        with case((attributes, reason)):
            found = parse_machines([_product(**attributes), _product(instanceType="g5.xlarge", usd="1.006")], HERE)
            assert list(found.types) == ["g5.xlarge"]
            assert found.skipped == {reason: 1}


def test_what_is_no_product_is_counted() -> None:
    cases: list[Any] = [None, 17, "", "{", "[]", '"x"', "[" * 200_000, '{"product": 1}', "\ud800"]
    for product in cases:
        with case(product):
            found = parse_machines([product], HERE)
            assert (found.types, found.skipped) == ({}, {"a list price that is not understood": 1})


def test_of_two_prices_for_one_type_neither_is_believed() -> None:
    found = parse_machines([_product("55.04"), _product("98.32"), _product("1.006", instanceType="g5.xlarge")], HERE)
    assert list(found.types) == ["g5.xlarge"]
    assert found.skipped == {"several list prices for one instance type": 1}


def test_the_same_price_twice_is_one_price() -> None:
    assert parse_machines([_product(), _product()], HERE).types["p5.48xlarge"].usd_hour == 55.04


def test_a_price_far_under_that_of_other_regions_is_a_placeholder() -> None:
    prices = {"a": 10.0, "b": 11.0, "c": 1.9, "d": 10.0}
    lists = {region: PriceList(types={"p5": ListPrice(usd), "g5": ListPrice(1.0)}) for region, usd in prices.items()}
    drop_placeholders(lists)
    assert [region for region, one in lists.items() if "p5" in one.types] == ["a", "b", "d"]
    assert lists["c"].skipped == {"a list price far under that of other regions": 1}
    assert all("g5" in one.types for one in lists.values())


def test_two_regions_are_no_median() -> None:
    lists = {"a": PriceList(types={"p5": ListPrice(10.0)}), "b": PriceList(types={"p5": ListPrice(1.0)})}
    drop_placeholders(lists)
    assert all("p5" in one.types for one in lists.values())


def test_a_price_that_changes_threefold_is_believed_at_the_second_sight() -> None:
    before = PriceList(types={"p5": ListPrice(10.0), "g5": ListPrice(1.0), "g6": ListPrice(1.0), "p4": ListPrice(9.0)})
    leapt = {"p5": ListPrice(31.0), "g5": ListPrice(0.33), "g6": ListPrice(2.9), "g7": ListPrice(5.0)}
    first = PriceList(types=dict(leapt))
    drop_price_jumps(first, before)
    assert set(first.types) == {"g6", "g7"}
    assert first.skipped == {"a list price that changed threefold at once": 2}
    second = PriceList(types=dict(leapt))
    drop_price_jumps(second, first)
    assert second.types == leapt
    drop_price_jumps(second, None)
    assert second.types == leapt


def test_the_price_of_disks_is_read() -> None:
    disk = _product("0.08", "GB-Mo", volumeApiName="gp3")
    assert parse_disk([disk, _product("0.125", "GB-Mo", volumeApiName="io2")], HERE) == 0.08


def test_a_disks_price_that_is_not_sure_is_none() -> None:
    cases: list[Any] = [
        [],
        [None, "{"],
        [_product("0.08", "GB-Mo", volumeApiName="gp3"), _product("0.09", "GB-Mo", volumeApiName="gp3")],
        [_product("0.005", "IOPS-Mo", volumeApiName="gp3")],
        [_product("0.08", "GB-Mo", volumeApiName="gp3", regionCode="eu-west-1")],
    ]
    for products in cases:
        with case(products):
            assert parse_disk(products, HERE) is None


def test_of_several_changes_the_newest_is_the_price_in_force() -> None:
    older = SPOT | {"SpotPrice": "9.9", "Timestamp": datetime(2026, 11, 20, tzinfo=UTC)}
    result = ParseResult()
    found = parse_spot([older, SPOT, older], result, NOW)
    assert {key: price.usd_hour for key, price in found.items()} == {SpotKey("p5.48xlarge", "us-east-1a"): 21.3412}
    assert result.skipped == {}


def test_old_accounts_name_the_product_otherwise() -> None:
    assert len(parse_spot([SPOT | {"ProductDescription": "Linux/UNIX (Amazon VPC)"}], ParseResult(), NOW)) == 1


def test_odd_spot_rows_are_counted_and_alone_no_answer() -> None:
    cases: list[Any] = [
        (SPOT | {"ProductDescription": "Windows"}, "a spot price of another product"),
        (None, "a spot price of another product"),
        (SPOT | {"SpotPrice": "0.0"}, "a spot price that is not understood"),
        (SPOT | {"SpotPrice": "N/A*"}, "a spot price that is not understood"),
        (SPOT | {"SpotPrice": "inf"}, "a spot price that is not understood"),
        (SPOT | {"InstanceType": None}, "a spot price that is not understood"),
        (SPOT | {"AvailabilityZone": ""}, "a spot price that is not understood"),
        (SPOT | {"Timestamp": "2026-11-21"}, "a spot price that is not understood"),
        (SPOT | {"Timestamp": datetime(2026, 11, 21)}, "a spot price that is not understood"),
        (SPOT | {"Timestamp": NOW + timedelta(hours=1)}, "a spot price of the future"),
    ]
    for row, reason in cases:
        with case((row, reason)):
            result = ParseResult(rows=1)
            assert len(parse_spot([row, SPOT], result, NOW)) == 1
            assert (result.rows, result.skipped) == (3, {reason: 1})
            with pytest.raises(NoRowUnderstood, match="none of 2 spot prices can be used"):
                parse_spot([row, row], result, NOW)
            assert parse_spot([], result, NOW) == {}  # not sold as spot


def test_a_placeholder_is_no_price_of_a_machine() -> None:
    place, machine = RegionZones(HERE, {}, NOW), table()["p5.48xlarge"]
    with pytest.raises(RowSkipped, match="placeholder"):
        offer_in_zone(place, "us-east-1a", machine, ListPrice(0.00001), 0.08)
    with pytest.raises(RowSkipped, match="placeholder"):
        offer_in_zone(place, "us-east-1a", machine, ListPrice(9999.0), 0.08, spot=True)


def test_plain_linux_machines_on_shared_hardware_are_asked_for() -> None:
    asked = {
        machine_filter["Field"]: (machine_filter["Type"], machine_filter["Value"])
        for machine_filter in machine_filters(HERE, ["g5.xlarge", "p5.48xlarge"])
    }
    assert asked["instanceType"] == ("ANY_OF", "g5.xlarge,p5.48xlarge")
    assert asked["tenancy"] == ("TERM_MATCH", "Shared")
    assert asked["marketoption"] == ("TERM_MATCH", "OnDemand")
    assert {disk_filter["Field"] for disk_filter in disk_filters(HERE)} == {
        "regionCode",
        "productFamily",
        "volumeApiName",
    }
