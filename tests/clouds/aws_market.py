"""The offers of the emulated EC2: a few types in two regions, with list and spot prices as text, like AWS's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Sold(NamedTuple):
    """One instance type in one zone. Prices are USD an hour; `spot` None: not sold as spot there."""

    region: str
    zone: str
    zone_id: str
    type: str
    on_demand: str
    spot: str | None
    spot_before: str
    vcpu: int
    memory: str


_SIZES = {
    # on demand, spot, vCPUs, memory. Made up, in the order of size of 2026.
    "p5.48xlarge": ("55.0400000000", "21.341200", 192, "2048 GiB"),
    "p5.4xlarge": ("6.8800000000", None, 16, "256 GiB"),
    "p4d.24xlarge": ("21.9600000000", "9.105400", 96, "1152 GiB"),
    "g6e.12xlarge": ("10.4900000000", "4.201500", 48, "384 GiB"),
    "g6.xlarge": ("0.8048000000", "0.291300", 4, "16 GiB"),
    "g6f.xlarge": ("0.2420000000", "0.096800", 4, "16 GiB"),
    "g5.xlarge": ("1.0060000000", "0.401200", 4, "16 GiB"),
    "g5g.xlarge": ("0.4200000000", "0.168000", 4, "8 GiB"),
    "g4dn.xlarge": ("0.5260000000", "0.201400", 4, "16 GiB"),
    "g4dn.12xlarge": ("3.9120000000", "1.512300", 48, "192 GiB"),
    "m7i.2xlarge": ("0.4032000000", "0.161200", 8, "32 GiB"),
    "c7a.4xlarge": ("0.8211200000", "0.329800", 16, "32 GiB"),
}
_ZONES = (
    ("us-east-1", "us-east-1a", "use1-az4", 1.0),
    ("us-east-1", "us-east-1b", "use1-az6", 1.02),
    ("us-west-2", "us-west-2a", "usw2-az2", 1.1),
)
_DISK_USD = {"us-east-1": "0.0800000000", "us-west-2": "0.0800000000"}

MARKET: tuple[Sold, ...] = tuple(
    Sold(
        region, zone, zone_id, name, on_demand,
        None if spot is None else f"{float(spot) * factor:.6f}",
        "" if spot is None else f"{float(spot) * factor * 0.5:.6f}",
        vcpu, memory,
    )
    for region, zone, zone_id, factor in _ZONES
    for name, (on_demand, spot, vcpu, memory) in _SIZES.items()
    if not (name.startswith("p5.") and zone == "us-east-1b")
)  # fmt: skip


CPU_TYPES = frozenset({"m7i.2xlarge", "c7a.4xlarge"})  # without GPUs


def product_texts(market: Iterable[Sold], filters: Mapping[str, list[str]]) -> list[str]:
    """Return the matching entries of `PriceList`: machines, dedicated ones among them, and disks."""
    machines = {(sold.region, sold.type): sold for sold in market}
    products = [_machine(sold, tenancy) for sold in machines.values() for tenancy in ("Shared", "Dedicated")]
    products += [_disk(region, usd) for region, usd in _DISK_USD.items()]
    return [json.dumps(product) for product in products if _passes(product, filters)]


def _passes(product: Mapping[str, Any], filters: Mapping[str, list[str]]) -> bool:
    said = product["product"]["attributes"] | {"productFamily": product["product"]["productFamily"]}
    return all(said.get(field) in values for field, values in filters.items())


def _machine(sold: Sold, tenancy: str) -> dict[str, Any]:
    attributes = {
        "instanceType": sold.type, "regionCode": sold.region, "operatingSystem": "Linux", "tenancy": tenancy,
        "preInstalledSw": "NA", "capacitystatus": "Used", "marketoption": "OnDemand", "vcpu": str(sold.vcpu),
        "memory": sold.memory, "servicecode": "AmazonEC2",
    }  # fmt: skip
    usd = sold.on_demand if tenancy == "Shared" else f"{float(sold.on_demand) * 1.1:.10f}"
    sku = f"{sold.region}-{sold.type}-{tenancy}"
    return _product(sku, "Compute Instance", attributes, "Hrs", usd)


def _disk(region: str, usd: str) -> dict[str, Any]:
    attributes = {"regionCode": region, "volumeApiName": "gp3", "volumeType": "General Purpose"}
    return _product(f"{region}-gp3", "Storage", attributes, "GB-Mo", usd)


def _product(sku: str, family: str, attributes: Mapping[str, str], unit: str, usd: str) -> dict[str, Any]:
    dimension = {"unit": unit, "beginRange": "0", "endRange": "Inf", "pricePerUnit": {"USD": usd}}
    term = {"sku": sku, "offerTermCode": "JRTCKXETXF", "priceDimensions": {f"{sku}.JRTCKXETXF.6YS6EN2CT7": dimension}}
    return {
        "product": {"sku": sku, "productFamily": family, "attributes": dict(attributes)},
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {f"{sku}.JRTCKXETXF": term}},
    }
