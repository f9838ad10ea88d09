"""The AWS adapter's results for every recorded answer. botocore parses the XML, as in reality."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any

from gpuwatch.providers.aws.catalog import parse_disk, parse_machines, parse_spot
from gpuwatch.providers.aws.client import AwsErrorAnswer, ordering_error, reading_error
from gpuwatch.providers.aws.create import parse_created
from gpuwatch.providers.aws.launcher import parse_instances
from gpuwatch.providers.aws.offers import ListPrice, RegionZones, offer_in_zone, table
from gpuwatch.providers.toolkit.post_processing import ParseResult
from tests.checkout import TESTS
from tests.golden import shown
from tests.late import LateModule

botocore_loaders, botocore_model = LateModule("botocore.loaders"), LateModule("botocore.model")
botocore_parsers = LateModule("botocore.parsers")

RECORDED = TESTS / "recorded" / "aws"
HERE = RegionZones(
    "us-east-1", {"us-east-1a": "use1-az4", "us-east-1b": "use1-az6"}, datetime(2026, 11, 21, 12, tzinfo=UTC)
)


def replay() -> dict[str, Any]:
    return {f"{name}.json": read() for name, read in READERS.items()}


def _products() -> Any:
    texts = [json.dumps(product) for product in json.loads((RECORDED / "get_products.json").read_bytes())]
    prices, disk_usd = parse_machines(texts, HERE.region), parse_disk(texts, HERE.region)
    known = {name: price for name, price in prices.types.items() if name in table()}
    offers = [offer_in_zone(HERE, "us-east-1a", table()[name], price, disk_usd) for name, price in known.items()]
    return {"prices": prices.types, "disk_usd_gb_month": disk_usd, "skipped": prices.skipped, "offers": offers}


def _spot() -> Any:
    result = ParseResult()
    found = parse_spot(_parsed("DescribeSpotPriceHistory")["SpotPriceHistory"], result, HERE.observed_at)
    offers = [
        offer_in_zone(HERE, key.zone, table()[key.type], ListPrice(price.usd_hour), 0.08, spot=True)
        for key, price in found.items()
    ]
    return {"offers": offers, "skipped": result.skipped}


def _instances() -> Any:
    return parse_instances(_parsed("DescribeInstances")["Reservations"], HERE.region)


def _ended() -> Any:
    return [row["CurrentState"]["Name"] for row in _parsed("TerminateInstances")["TerminatingInstances"]]


def _errors() -> Any:
    return [_reported(case) for case in json.loads((RECORDED / "errors.json").read_bytes())]


READERS: dict[str, Callable[[], Any]] = {
    "get_products": _products,
    "describe_spot_price_history": _spot,
    "describe_instances": _instances,
    "run_instances": lambda: parse_created(_parsed("RunInstances"), HERE.region),
    "terminate_instances": _ended,
    "errors": _errors,
}


def _reported(case: dict[str, Any]) -> Any:
    error = AwsErrorAnswer(case["status"], case["body_text"].encode())
    return {
        "status": case["status"],
        "asking": shown(reading_error(error, HERE.region)),
        "ordering": shown(ordering_error(error, HERE.region)),
    }


@cache
def _model() -> Any:
    return botocore_model.ServiceModel(botocore_loaders.Loader().load_service_model("ec2", "service-2"))


def _parsed(operation: str) -> Any:
    words = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in operation).lstrip("_")
    body = (RECORDED / f"{words}.xml").read_bytes()
    shape = _model().operation_model(operation).output_shape
    return botocore_parsers.create_parser("ec2").parse({"body": body, "headers": {}, "status_code": 200}, shape)
