"""The files behind AWS's price pages, on loopback: spot prices of all regions, on-demand prices of one.

source: public price trackers that read these files, 2026: AWS documents neither.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, ClassVar

from gpuwatch.emulator.answers import EmulatorReply, reply, text_reply
from gpuwatch.emulator.clock import Clock
from gpuwatch.emulator.provider_server import ProviderServer
from gpuwatch.emulator.request import EmulatorRequest
from tests.clouds.aws_market import MARKET, Sold

_LOCATIONS = {"us-east-1": "US East (N. Virginia)", "us-west-2": "US West (Oregon)"}
_OLD_NAMES = {"us-east-1": "us-east"}  # the spot page has old names of some regions


class PricePages(ProviderServer):
    """The public files, which need no key."""

    ROUTES: ClassVar[tuple[tuple[str, str, str], ...]] = (
        ("GET", "/spot.json", "spot"),
        ("GET", r"/pricing/2\.0/.*/ec2-ondemand-without-sec-sel/([^/]+)/Linux/index\.json", "on_demand"),
    )

    def __init__(self, *, port: int = 0, clock: Clock = time.time, market: Sequence[Sold] = MARKET) -> None:
        super().__init__(port=port, clock=clock)
        self.market = list(market)

    def spot(self, _request: EmulatorRequest) -> EmulatorReply:
        """Return prices by region; a type without spot sales has "N/A*"."""
        regions = [
            {
                "region": _OLD_NAMES.get(region, region),
                "instanceTypes": [{"type": "gpuInstances", "sizes": [_size(sold) for sold in self._types(region)]}],
            }
            for region in _LOCATIONS
        ]
        return reply({"vers": 0.01, "config": {"rate": "perhr", "currencies": ["USD"], "regions": regions}})

    def on_demand(self, _request: EmulatorRequest, location: str) -> EmulatorReply:
        """Return one region by its long name; a plain refusal for one without these pages."""
        region = next((code for code, name in _LOCATIONS.items() if name == location), None)
        if region is None:
            return text_reply("<Error><Code>AccessDenied</Code></Error>", 404, "application/xml")
        rows = {
            f"{sold.type} Linux": {
                "rateCode": sold.type, "price": sold.on_demand, "Location": location, "Instance Type": sold.type,
                "vCPU": str(sold.vcpu), "Memory": sold.memory, "plc:InstanceFamily": "GPU instance",
            }
            for sold in self._types(region)
        }  # fmt: skip
        return reply({"manifest": {"currencyCode": "USD"}, "sets": {}, "regions": {location: rows}})

    def _types(self, region: str) -> list[Sold]:
        """Return one of each type: these pages have no zones."""
        return list({sold.type: sold for sold in reversed(self.market) if sold.region == region}.values())


def _size(sold: Sold) -> dict[str, Any]:
    columns = [
        {"name": "linux", "prices": {"USD": sold.spot or "N/A*"}},
        {"name": "mswin", "prices": {"USD": "99.0000"}},
    ]
    return {"size": sold.type, "valueColumns": columns}
