"""Google's price list on loopback: pages of SKUs, with a key; and the weekly pricing.yml, without one.

source: the vendor's page of the Cloud Billing Catalog API v1; descriptions of SKUs as public readers know them; prices
of us-central1 in 2024, other regions and newer machines invented in the right order of size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar
from zlib import crc32

from gpuwatch.emulator.answers import EmulatorReply, RefusedRequest, reply
from gpuwatch.emulator.provider_server import ProviderServer
from gpuwatch.emulator.request import EmulatorRequest

REGIONS = {"us-central1": 1.0, "europe-west4": 1.05, "asia-southeast1": 1.2}
# Part → US dollars an hour (SSD: a GiB-month) on demand and as spot; None: not available.
PARTS: dict[str, tuple[str, float | None, float | None]] = {
    "A2 Instance Core": ("h", 0.031611, 0.009483),
    "A2 Instance Ram": ("GiBy.h", 0.004237, 0.001271),
    "A3 Instance Core": ("h", 0.03, 0.0121),
    "A3 Instance Ram": ("GiBy.h", 0.0026, 0.00105),
    "A3Plus Instance Core": ("h", 0.031, 0.0125),
    "A3Plus Instance Ram": ("GiBy.h", 0.0027, 0.0011),
    "G2 Instance Core": ("h", 0.02499, 0.009),
    "G2 Instance Ram": ("GiBy.h", 0.002927, 0.00105),
    "G4 Instance Core": ("h", 0.03, 0.012),
    "G4 Instance Ram": ("GiBy.h", 0.0031, 0.0012),
    "Nvidia Tesla A100 GPU": ("h", 2.933908, 0.88),
    "Nvidia Tesla A100 80GB GPU": ("h", 3.9, 1.3),
    "Nvidia H100 80GB GPU": ("h", 9.6, 3.8),
    "Nvidia H100 80GB Mega GPU": ("h", 10.1, 4.0),
    "Nvidia L4 GPU": ("h", 0.56004, 0.22),
    "RTX 6000 96GB": ("h", 2.6, 1.05),
    "A4 Nvidia B200 (1 gpu slice)": ("h", None, 8.1),
    "SSD backed Local Storage": ("GiBy.mo", 0.08, 0.048),
}
_OTHERS = ("Commitment v1: Nvidia H100 80GB GPU in Americas for 1 Year", "Reserved A2 Instance Core in Americas")
_PAGE = 20


def sku(description: str, usage: str, regions: list[str], unit: str, dollars: float, **changes: Any) -> dict[str, Any]:
    """Return one SKU of the price list; `changes` replace fields."""
    whole, nanos = divmod(round(dollars * 1e9), 10**9)
    money = {"currencyCode": "USD", "units": str(whole), "nanos": nanos}
    family = "Storage" if "Storage" in description else "Compute"
    number = f"{crc32(f'{description} {usage} {regions}'.encode()):08X}"
    return {
        "name": f"services/6F81-5844-456A/skus/{number}",
        "skuId": number,
        "description": description,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": family,
            "resourceGroup": "GPU" if "GPU" in description else "CPU",
            "usageType": usage,
        },
        "serviceRegions": regions,
        "pricingInfo": [
            {
                "summary": "",
                "pricingExpression": {
                    "usageUnit": unit,
                    "displayQuantity": 1,
                    "tieredRates": [{"startUsageAmount": 0, "unitPrice": money}],
                },
                "currencyConversionRate": 1,
                "effectiveTime": "2026-11-21T00:00:00Z",
            }
        ],
        "serviceProviderName": "Google",
    } | changes


def price_list() -> list[dict[str, Any]]:
    """Return a small price list: every part in every region, and SKUs that are not parts."""
    skus = [sku(text, "Commit1Yr", ["us-central1"], "h", 1.0) for text in _OTHERS]
    skus.append(sku("E2 Instance Core running in Americas", "OnDemand", ["us-central1"], "h", 0.02))
    for part, (unit, on_demand, spot) in PARTS.items():
        for region, factor in REGIONS.items():
            if on_demand is not None:
                skus.append(sku(f"{part} running in {region}", "OnDemand", [region], unit, on_demand * factor))
            if spot is not None:
                skus.append(sku(_as_spot(part, region), "Preemptible", [region], unit, spot * factor))
    return skus


def _as_spot(part: str, region: str) -> str:
    attached = "GPU" in part or "96GB" in part or "Storage" in part
    if attached:
        return f"{part} attached to Spot Preemptible VMs running in {region}"
    return f"Spot Preemptible {part} running in {region}"


class GooglePrices(ProviderServer):
    """`GET /v1/services/6F81-5844-456A/skus` and `GET /pricing.yml`.

    `skus` and `weekly` can be changed; the latter maps (type, region) to (on demand, spot) dollars an hour.
    """

    ROUTES: ClassVar = (
        ("GET", r"/v1/services/6F81-5844-456A/skus", "page"),
        ("GET", r"/pricing\.yml", "file"),
    )

    def __init__(self, skus: list[dict[str, Any]] | None = None) -> None:
        super().__init__()
        self.skus = price_list() if skus is None else skus
        self.weekly: dict[tuple[str, str], tuple[float, float | None]] = {
            (name, region): (round(hour * factor, 6), round(spot * factor, 6))
            for name, hour, spot in (
                ("a2-highgpu-1g", 3.673385, 1.293355),
                ("a2-highgpu-8g", 29.38708, 10.34684),
                ("a3-highgpu-1g", 11.06125, 4.449126),
                ("a3-highgpu-8g", 88.49, 35.59301),
                ("e2-standard-4", 0.134, 0.04),
                ("g2-standard-4", 0.706832, 0.272524),
                ("g2-standard-48", 4.001665, 1.485488),
            )
            for region, factor in REGIONS.items()
        }

    def key_of(self, request: EmulatorRequest) -> str | None:
        """In a header, or in the query."""
        return request.headers.get("x-goog-api-key") or request.params.get("key")

    def page(self, request: EmulatorRequest) -> EmulatorReply:
        """Return one page of SKUs; 403 without a key, 400 with a wrong one."""
        if self.key_of(request) is None:
            raise RefusedRequest(_error(403, "PERMISSION_DENIED", "Method doesn't allow unregistered callers."))
        if not request.keyed:
            raise RefusedRequest(_error(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."))
        token = request.params.get("pageToken") or "0"
        if not (token.isascii() and token.isdigit()):
            raise RefusedRequest(_error(400, "INVALID_ARGUMENT", "Invalid page token."))
        begin = int(token)
        token = str(begin + _PAGE) if begin + _PAGE < len(self.skus) else ""
        return reply({"skus": self.skus[begin : begin + _PAGE], "nextPageToken": token})

    def file(self, _: EmulatorRequest) -> EmulatorReply:
        """Return the weekly file."""
        return EmulatorReply(200, "\n".join(self._lines()).encode())

    def _lines(self) -> Iterator[str]:
        yield from ("---", "about:", "  generated: Fri Nov 20 00:00:00 2026", "  timestamp: 1795200000")
        yield from ("compute:", "  instance:")
        for name in sorted({name for name, _ in self.weekly}):
            yield from (f"    {name}:", "      cost:")
            for (machine, region), (hour, spot) in sorted(self.weekly.items()):
                if machine == name:
                    yield from (f"        {region}:", f"          hour: {hour}")
                    yield from () if spot is None else (f"          hour_spot: {spot}",)
                    yield f"          month: {round(hour * 730, 4)}"
            yield from ("      cpu: 12", "      ram: 85")
        yield from ("  storage:", "    hdd:", "      cost:", "        us-central1:", "          month: 0.04")


def _error(code: int, status: str, message: str) -> EmulatorReply:
    return reply({"error": {"code": code, "message": message, "status": status}}, code)
