"""AWS's official client (boto3) with our EC2: it parses our answers, and takes our refusals for AWS's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clouds.aws import Ec2
from tests.clouds.aws_market import MARKET
from tests.late import LateModule

boto3, config, exceptions = LateModule("boto3"), LateModule("botocore.config"), LateModule("botocore.exceptions")


@pytest.fixture
def place() -> Iterator[Ec2]:
    with Ec2(page=4) as place:
        yield place


def _client(place: Ec2, service: str = "ec2", region: str = "us-east-1", key: str = "demo-key") -> Any:
    return boto3.client(
        service,
        region_name=region,
        endpoint_url=place.url,
        aws_access_key_id=key,
        aws_secret_access_key="demo-secret",
        config=config.Config(retries={"total_max_attempts": 1}, proxies={}),
    )


def _code(caught: pytest.ExceptionInfo[Any]) -> tuple[str, int]:
    response = caught.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


def test_the_official_paginator_reads_all_spot_prices(place: Ec2) -> None:
    pages = _client(place).get_paginator("describe_spot_price_history").paginate(ProductDescriptions=["Linux/UNIX"])
    rows = [row for page in pages for row in page["SpotPriceHistory"]]
    sold = [one for one in MARKET if one.region == "us-east-1" and one.spot is not None]
    assert len(rows) == 2 * len(sold)  # one in force, one before
    assert {(row["InstanceType"], row["AvailabilityZoneId"]) for row in rows} == {(o.type, o.zone_id) for o in sold}


def test_the_official_paginator_reads_all_offerings(place: Ec2) -> None:
    pages = (
        _client(place)
        .get_paginator("describe_instance_type_offerings")
        .paginate(LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": ["g5*"]}])
    )
    rows = {(row["InstanceType"], row["Location"]) for page in pages for row in page["InstanceTypeOfferings"]}
    assert rows == {(t, z) for t in ("g5.xlarge", "g5g.xlarge") for z in ("us-east-1a", "us-east-1b")}


def test_list_prices_are_json_in_texts(place: Ec2) -> None:
    pages = (
        _client(place, "pricing")
        .get_paginator("get_products")
        .paginate(
            ServiceCode="AmazonEC2",
            Filters=[
                {"Type": "TERM_MATCH", "Field": "regionCode", "Value": "us-west-2"},
                {"Type": "ANY_OF", "Field": "instanceType", "Value": "g5.xlarge,p5.48xlarge"},
            ],
        )
    )
    products = [json.loads(text)["product"]["attributes"] for page in pages for text in page["PriceList"]]
    assert {(product["instanceType"], product["tenancy"]) for product in products} == {
        (name, tenancy) for name in ("g5.xlarge", "p5.48xlarge") for tenancy in ("Shared", "Dedicated")
    }


def test_regions_and_zones_are_reported(place: Ec2) -> None:
    client = _client(place, region="us-west-2")
    assert [region["RegionName"] for region in client.describe_regions()["Regions"]] == ["us-east-1", "us-west-2"]
    zones = client.describe_availability_zones()["AvailabilityZones"]
    assert [(zone["ZoneName"], zone["ZoneId"]) for zone in zones] == [("us-west-2a", "usw2-az2")]


def _run(client: Any, **values: Any) -> Any:
    plain = {
        "InstanceType": "g5.xlarge", "ImageId": "ami-0123456789abcdef0", "MinCount": 1, "MaxCount": 1,
        "Placement": {"AvailabilityZone": "us-east-1a"}, "ClientToken": "token",
    }  # fmt: skip
    return client.run_instances(**(plain | values))["Instances"][0]


def test_an_instance_lives_as_the_official_client_sees_it(place: Ec2) -> None:
    client = _client(place)
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": "<mine> & yours"}]}]
    made = _run(client, TagSpecifications=tags)
    assert (made["State"]["Name"], made["Tags"]) == ("pending", [{"Key": "Name", "Value": "<mine> & yours"}])
    states = [client.describe_instances()["Reservations"][0]["Instances"][0]["State"]["Name"] for _ in range(2)]
    assert states == ["pending", "running"]
    ended = client.terminate_instances(InstanceIds=[made["InstanceId"]])["TerminatingInstances"]
    assert [one["CurrentState"]["Name"] for one in ended] == ["shutting-down"]
    assert _client(place, region="us-west-2").describe_instances()["Reservations"] == []


def test_a_token_makes_one_instance_and_takes_no_other_values(place: Ec2) -> None:
    client = _client(place)
    assert _run(client)["InstanceId"] == _run(client)["InstanceId"]
    with pytest.raises(exceptions.ClientError) as caught:
        _run(client, InstanceType="g6.xlarge")
    assert _code(caught) == ("IdempotentParameterMismatch", 400)
    assert len(place.instances) == 1


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"InstanceType": "p5.48xlarge", "Placement": {"AvailabilityZone": "us-east-1b"}}, ("Unsupported", 400)),
        ({"InstanceType": "g6.xlarge"}, ("InsufficientInstanceCapacity", 500)),
        (
            {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"MaxPrice": "0.2"}}},
            ("SpotMaxPriceTooLow", 400),
        ),
    ],
)
def test_refusals_are_aws_refusals(place: Ec2, values: dict[str, Any], code: tuple[str, int]) -> None:
    place.sell_out("us-east-1a", "g6.xlarge")
    with pytest.raises(exceptions.ClientError) as caught:
        _run(_client(place), **values)
    assert _code(caught) == code
    assert place.instances == {}


def test_a_wrong_key_is_refused_by_both_services(place: Ec2) -> None:
    with pytest.raises(exceptions.ClientError) as caught:
        _client(place, key="other").describe_instances()
    assert _code(caught) == ("AuthFailure", 401)
    with pytest.raises(exceptions.ClientError) as caught:
        _client(place, "pricing", key="other").get_products(ServiceCode="AmazonEC2")
    assert _code(caught) == ("UnrecognizedClientException", 400)


def test_an_action_that_there_is_not_is_refused(place: Ec2) -> None:
    with pytest.raises(exceptions.ClientError) as caught:
        _client(place).describe_vpcs()
    assert _code(caught) == ("InvalidAction", 400)
