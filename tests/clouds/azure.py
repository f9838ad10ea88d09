"""Azure's retail price list on loopback: the filter's syntax, pages by link, misleading rows.

source: the vendor's page of the Retail Prices API, read 2026-11; values invented, of realistic size.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar
from urllib.parse import quote, urlencode
from zlib import crc32

from gpuwatch.emulator.answers import EmulatorReply, reply
from gpuwatch.emulator.provider_server import ProviderServer
from gpuwatch.emulator.request import EmulatorRequest

_NAMED = re.compile(r"(contains|startswith)\(armSkuName,'([^']*)'\)|(armSkuName|armRegionName) eq '([^']*)'")
_REGIONS = {"eastus": 1.0, "westus3": 1.0, "westeurope": 1.15, "uksouth": 1.2, "japaneast": 1.32}
_DOLLARS = {
    "Standard_ND96isr_H100_v5": (98.32, 39.3),
    "Standard_NC40ads_H100_v5": (6.98, 2.79),
    "Standard_NC80adis_H100_v5": (13.96, 5.58),
    "Standard_ND96isr_H200_v5": (84.8, 33.9),
    "Standard_ND128isr_NDR_GB200_v6": (108.16, None),
    "Standard_ND96isr_MI300X_v5": (48.0, 19.2),
    "Standard_ND96amsr_A100_v4": (32.77, 13.1),
    "Standard_ND96asr_v4": (27.2, 10.88),
    "Standard_NC24ads_A100_v4": (3.673, 1.47),
    "Standard_NC96ads_A100_v4": (14.692, 5.88),
    "Standard_NV6ads_A10_v5": (0.454, 0.18),
    "Standard_NV36ads_A10_v5": (3.2, 1.28),
    "Standard_NC4as_T4_v3": (0.526, 0.21),
    "Standard_NC64as_T4_v3": (4.352, 1.74),
    "Standard_NC6s_v3": (3.06, 1.22),
    "Standard_ND40rs_v2": (22.03, 8.81),
}


def price_row(sku: str, region: str, price: float, **changes: Any) -> dict[str, Any]:
    """Return one row of the price list; `changes` replace fields."""
    name = sku.removeprefix("Standard_").replace("_", " ")
    row = {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": price,
        "unitPrice": price,
        "armRegionName": region,
        "location": region,
        "effectiveStartDate": "2026-06-01T00:00:00Z",
        "meterId": f"{crc32(f'{sku} {region}'.encode()):012d}",
        "meterName": name,
        "productId": "DZH318Z0XXXX",
        "skuId": "DZH318Z0XXXX/0001",
        "productName": f"Virtual Machines {name.split()[0]} Series",
        "skuName": name,
        "serviceName": "Virtual Machines",
        "serviceId": "DZH313Z7MMC8",
        "serviceFamily": "Compute",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": sku,
    }
    return row | changes


def small_market() -> list[dict[str, Any]]:
    """Return every machine type in five regions, and one row of each kind that is not an offer."""
    rows = []
    for sku, (on_demand, spot) in _DOLLARS.items():
        name = sku.removeprefix("Standard_").replace("_", " ")
        for region, factor in _REGIONS.items():
            price = round(on_demand * factor, 4)
            rows.append(price_row(sku, region, price))
            rows.append(price_row(sku, region, round(price * 1.4, 4), productName=f"Virtual Machines {name} Windows"))
            rows.append(price_row(sku, region, price * 0.2, meterName=f"{name} Low Priority"))
            if spot is not None:
                rows.append(price_row(sku, region, round(spot * factor, 4), meterName=f"{name} Spot"))
    h100 = "Standard_ND96isr_H100_v5"
    rows += [
        price_row(h100, "ukwest", 0.01),
        price_row(h100, "northeurope", 0.0),
        price_row(h100, "eastus", 551_221.0, type="Reservation", reservationTerm="1 Year"),
        price_row(h100, "usgovvirginia", 122.9),
        price_row(h100, "eastus", 70.0, productName="Virtual Machines NDsr H100 v5 Srs Win"),
        price_row("NDasrA100v4_Type1", "eastus", 27.2, productName="NDasrA100v4 Series Dedicated Host"),
    ]
    return rows


class AzurePrices(ProviderServer):
    """The price list. `rows` can be changed; a page has `page_size` rows."""

    ROUTES: ClassVar[tuple[tuple[str, str, str], ...]] = (("GET", "/api/retail/prices", "prices"),)

    def __init__(self, rows: list[dict[str, Any]] | None = None, *, page_size: int = 1000, **stage: Any) -> None:
        super().__init__(**stage)
        self.rows = small_market() if rows is None else rows
        self.page_size = page_size

    def prices(self, request: EmulatorRequest) -> EmulatorReply:
        """Return one page of the matching rows, and the link to the next page."""
        wanted = request.params.get("$filter", "")
        found = [row for row in self.rows if _is_wanted(row, wanted)]
        skip = int(request.params.get("$skip", "0"))
        page, left = found[skip : skip + self.page_size], found[skip + self.page_size :]
        link = None
        if left:
            params = {**request.params, "$skip": str(skip + self.page_size)}
            link = f"{self.url}{request.path}?{urlencode(params, quote_via=quote)}"
        return reply(
            {
                "BillingCurrency": "USD",
                "CustomerEntityId": "Default",
                "CustomerEntityType": "Retail",
                "Items": page,
                "NextPageLink": link,
                "Count": len(page),
            }
        )


def _is_wanted(row: dict[str, Any], wanted: str) -> bool:
    """Compare values case-sensitively, like the real filter since 2023."""
    for field, name in (("serviceName", "serviceName"), ("priceType", "type")):
        asked = re.search(rf"{field} eq '([^']*)'", wanted)
        if asked and row.get(name) != asked[1]:
            return False
    skus, regions = [], []
    for word, part, field, value in _NAMED.findall(wanted):
        if field == "armRegionName":
            regions.append(row["armRegionName"] == value)
        else:
            sku = row["armSkuName"]
            skus.append(part in sku if word == "contains" else sku.startswith(part) if word else sku == value)
    return (any(skus) or not skus) and (any(regions) or not regions)
