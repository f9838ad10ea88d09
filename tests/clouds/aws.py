"""Amazon's side on loopback: EC2's query API (XML) and the Pricing API (JSON), for all regions at one address.

The region is read out of the signature, as is the access key; signatures themselves are not checked. Instances live as
long as the stage does.
source: AWS's public API references of EC2 and the Price List Service, read 2026-11.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import msgspec

from gpuwatch.emulator.answers import EmulatorReply, RefusedRequest
from gpuwatch.emulator.clock import Clock
from gpuwatch.emulator.provider_server import ProviderServer
from gpuwatch.emulator.request import EmulatorRequest
from tests.clouds.aws_market import MARKET, Sold, product_texts

_CREDENTIAL = re.compile(r"Credential=([^/]+)/\d+/([^/]+)/([^/]+)/")
_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"


class Ec2(ProviderServer):
    """EC2 with a small market in two regions. Requests are logged, and made to fail, as "POST /RunInstances".

    Args:
        page: rows in a page, whatever `MaxResults` says.
    """

    ROUTES: ClassVar[tuple[tuple[str, str, str], ...]] = (
        ("POST", "/DescribeRegions", "describe_regions"),
        ("POST", "/DescribeAvailabilityZones", "describe_zones"),
        ("POST", "/DescribeInstanceTypeOfferings", "describe_offerings"),
        ("POST", "/DescribeInstanceTypes", "describe_types"),
        ("POST", "/DescribeSpotPriceHistory", "describe_spot_prices"),
        ("POST", "/DescribeInstances", "describe_instances"),
        ("POST", "/RunInstances", "run_instances"),
        ("POST", "/TerminateInstances", "terminate_instances"),
        ("POST", "/GetProducts", "get_products"),
        ("POST", "/GetCallerIdentity", "get_caller_identity"),
    )

    def __init__(
        self,
        *,
        port: int = 0,
        key: str = "demo-key",
        clock: Clock = time.time,
        page: int = 100,
        market: Sequence[Sold] = MARKET,
    ) -> None:
        super().__init__(port=port, key=key, clock=clock)
        self.page = page
        self.market = list(market)
        self.instances: dict[str, dict[str, Any]] = {}
        self.tokens: dict[str, tuple[str, dict[str, str]]] = {}
        self.sold_out: set[tuple[str, str]] = set()  # (zone, type)
        self.types: list[dict[str, Any]] = []  # what DescribeInstanceTypes knows, as the wire has it

    # --- what a test does ---------------------------------------------------------------------------------------------
    def sell_out(self, zone: str, type_: str) -> None:
        """From now on there is no capacity for this type in this zone; its price is still listed."""
        with self.lock:
            self.sold_out.add((zone, type_))

    def interrupt(self, instance_id: str) -> None:
        """Take a spot instance away: it is shutting down."""
        with self.lock:
            reason = {
                "code": "Server.SpotInstanceTermination",
                "message": "Server.SpotInstanceTermination: Spot instance termination",
            }
            self.instances[instance_id] |= {"state": "shutting-down", "reason": reason}

    def turn(self, instance_id: str, state: str) -> None:
        """Let an instance be in another state."""
        with self.lock:
            self.instances[instance_id]["state"] = state

    # --- the wire -----------------------------------------------------------------------------------------------------
    def key_of(self, request: EmulatorRequest) -> str | None:
        """The access key id of the signature."""
        return self._credential(request)[0]

    def routed(self, request: EmulatorRequest) -> EmulatorReply:
        """Every action needs a signature; each service reports a wrong key in its own way."""
        if request.path == "/":
            return EmulatorReply(302, b"", headers=(("Location", "https://aws.amazon.com/ec2"),))
        if not request.keyed:
            if request.path == "/GetProducts":
                said = "The security token included in the request is invalid."
                raise RefusedRequest(_json({"__type": "UnrecognizedClientException", "message": said}, 400))
            raise _refuse("AuthFailure", "AWS was not able to validate the provided access credentials", 401)
        return super().routed(request)

    def no_route(self, request: EmulatorRequest) -> EmulatorReply:
        """An action that there is not, or that is not played here."""
        message = f"The action {request.path[1:]} is not valid for this web service."
        return _refuse("InvalidAction", message).reply

    def answer(self, request: EmulatorRequest) -> EmulatorReply:
        """All actions go to one path: the action is made the path, its values the parameters."""
        target = request.headers.get("x-amz-target", "")
        if target:
            request.path = "/" + target.rpartition(".")[2]
        else:
            request.params = dict(parse_qsl(request.raw.decode("utf-8", "replace"), keep_blank_values=True))
            request.path = "/" + request.params.get("Action", "")
        return super().answer(request)

    def _credential(self, request: EmulatorRequest) -> tuple[str | None, str]:
        found = _CREDENTIAL.search(request.headers.get("authorization", ""))
        return (found[1], found[2]) if found else (None, "")

    def _region(self, request: EmulatorRequest) -> str:
        return self._credential(request)[1]

    def get_caller_identity(self, request: EmulatorRequest) -> EmulatorReply:
        """STS: whose credentials they are."""
        body = (
            '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>'
            "<Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>"
        )
        return EmulatorReply(200, body.encode(), content_type="text/xml;charset=UTF-8")

    # --- what is sold -------------------------------------------------------------------------------------------------
    def describe_regions(self, request: EmulatorRequest) -> EmulatorReply:
        """Regions that the account has enabled."""
        names = dict.fromkeys(sold.region for sold in self.market)
        return _xml(
            request, {"regionInfo": [{"regionName": name, "optInStatus": "opt-in-not-required"} for name in names]}
        )

    def describe_zones(self, request: EmulatorRequest) -> EmulatorReply:
        """Zones of the region."""
        zones = dict.fromkeys((sold.zone, sold.zone_id) for sold in self._here(request))
        rows = [
            {"zoneName": zone, "zoneId": zone_id, "zoneState": "available", "zoneType": "availability-zone"}
            for zone, zone_id in zones
        ]
        return _xml(request, {"availabilityZoneInfo": rows})

    def describe_offerings(self, request: EmulatorRequest) -> EmulatorReply:
        """Which types are offered in which zone; the filter's values may end in a star."""
        wanted = [re.escape(value).replace(r"\*", ".*") for value in _listed(request.params, "Filter.1.Value")]
        rows = [
            {"instanceType": sold.type, "locationType": "availability-zone", "location": sold.zone}
            for sold in self._here(request)
            if any(re.fullmatch(pattern, sold.type) for pattern in wanted or [".*"])
        ]
        return self._paged(request, "instanceTypeOfferingSet", rows)

    def describe_types(self, request: EmulatorRequest) -> EmulatorReply:
        """What a type is made of."""
        wanted = _listed(request.params, "InstanceType")
        rows = [row for row in self.types if not wanted or row["instanceType"] in wanted]
        return self._paged(request, "instanceTypeSet", rows)

    def describe_spot_prices(self, request: EmulatorRequest) -> EmulatorReply:
        """Spot prices in force, and one that was before: rows are changes."""
        wanted = _listed(request.params, "InstanceType")
        rows = []
        for sold in self._here(request):
            if sold.spot is None or (wanted and sold.type not in wanted):
                continue
            for price, since in (
                (sold.spot, "2026-11-21T09:14:03.000Z"),
                (sold.spot_before, "2026-11-20T02:00:00.000Z"),
            ):
                rows.append({
                    "instanceType": sold.type, "productDescription": "Linux/UNIX", "spotPrice": price,
                    "timestamp": since, "availabilityZone": sold.zone, "availabilityZoneId": sold.zone_id,
                })  # fmt: skip
        return self._paged(request, "spotPriceHistorySet", rows)

    def get_products(self, request: EmulatorRequest) -> EmulatorReply:
        """List prices: entries are JSON in texts."""
        body = request.body()
        filters = {one["Field"]: one["Value"].split(",") for one in body.get("Filters", [])}
        products = product_texts(self.market, filters)
        start, end, token = self._piece(body.get("NextToken"), len(products))
        answer: dict[str, Any] = {"FormatVersion": "aws_v1", "PriceList": products[start:end]}
        return _json(answer | ({"NextToken": token} if token else {}))

    # --- instances ----------------------------------------------------------------------------------------------------
    def run_instances(self, request: EmulatorRequest) -> EmulatorReply:
        """One instance; the same client token makes no second one."""
        sent, region = request.params, self._region(request)
        token = sent.get("ClientToken", "")
        values = {name: value for name, value in sent.items() if name not in {"Action", "Version"}}
        known = self.tokens.get(token)
        if known is not None and known[1] != values:
            raise _refuse("IdempotentParameterMismatch", "Arguments on this idempotent request are inconsistent", 400)
        if known is None:
            instance_id = self._made(sent, region)
            self.tokens[token] = (instance_id, values)
        else:
            instance_id = known[0]
        return _xml(request, {"reservationId": "r-0", "instancesSet": [self._shown(instance_id)]})

    def _made(self, sent: dict[str, str], region: str) -> str:
        zone, type_ = sent.get("Placement.AvailabilityZone", ""), sent.get("InstanceType", "")
        zone = zone or next((one.zone for one in self.market if one.region == region and one.type == type_), "")
        sold = next((one for one in self.market if (one.region, one.zone, one.type) == (region, zone, type_)), None)
        if sold is None:
            message = (
                f"Your requested instance type ({type_}) is not supported in your requested Availability Zone ({zone})."
            )
            raise _refuse("Unsupported", message)
        if (zone, type_) in self.sold_out:
            message = (
                f"We currently do not have sufficient {type_} capacity in the Availability Zone you requested ({zone})."
            )
            raise _refuse("InsufficientInstanceCapacity", message, 500)
        spot = sent.get("InstanceMarketOptions.MarketType") == "spot"
        most = sent.get("InstanceMarketOptions.SpotOptions.MaxPrice")
        if spot and sold.spot is not None and most is not None and float(most) < float(sold.spot):
            message = (
                f"Your Spot request price of {most} is lower than the minimum required Spot request fulfillment price"
            )
            raise _refuse("SpotMaxPriceTooLow", f"{message} of {sold.spot}.")
        instance_id = f"i-{len(self.instances) + 1:017x}"
        self.instances[instance_id] = {
            "region": region, "sold": sold, "state": "pending", "spot": spot, "sent": sent, "made_at": self.clock(),
            "reason": None,
        }  # fmt: skip
        return instance_id

    def describe_instances(self, request: EmulatorRequest) -> EmulatorReply:
        """All instances of the region; what was pending runs by now."""
        region = self._region(request)
        rows = []
        asked = _listed(request.params, "InstanceId")
        for instance_id in asked:
            if self.instances.get(instance_id, {}).get("region") != region:
                raise _refuse("InvalidInstanceID.NotFound", f"The instance ID '{instance_id}' does not exist")
        for instance_id, instance in self.instances.items():
            if instance["region"] == region and instance_id in (asked or self.instances):
                rows.append({"reservationId": "r-0", "instancesSet": [self._shown(instance_id)]})
                if instance["state"] == "pending":
                    instance["state"] = "running"
        return self._paged(request, "reservationSet", rows)

    def terminate_instances(self, request: EmulatorRequest) -> EmulatorReply:
        """End them; one that is gone already is ended again."""
        rows = []
        for instance_id in _listed(request.params, "InstanceId"):
            instance = self.instances.get(instance_id)
            if instance is None or instance["region"] != self._region(request):
                raise _refuse("InvalidInstanceID.NotFound", f"The instance ID '{instance_id}' does not exist")
            before, instance["state"] = instance["state"], "shutting-down"
            reason = {
                "code": "Client.UserInitiatedShutdown",
                "message": "Client.UserInitiatedShutdown: User initiated shutdown",
            }
            instance["reason"] = reason
            rows.append({
                "instanceId": instance_id, "currentState": {"code": 32, "name": "shutting-down"},
                "previousState": {"code": 16, "name": before},
            })  # fmt: skip
        return _xml(request, {"instancesSet": rows})

    def _shown(self, instance_id: str) -> dict[str, Any]:
        instance = self.instances[instance_id]
        sold: Sold = instance["sold"]
        runs = instance["state"] == "running"
        row: dict[str, Any] = {
            "instanceId": instance_id,
            "imageId": instance["sent"].get("ImageId", ""),
            "instanceState": {"code": 16 if runs else 0, "name": instance["state"]},
            "instanceType": sold.type,
            "launchTime": datetime.fromtimestamp(instance["made_at"], UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
            "placement": {"availabilityZone": sold.zone, "availabilityZoneId": sold.zone_id, "tenancy": "default"},
            "clientToken": instance["sent"].get("ClientToken", ""),
            "tagSet": _tags(instance["sent"]),
        }
        optional = {
            "instanceLifecycle": "spot" if instance["spot"] else None,
            "ipAddress": "192.0.2.7" if runs else None,
            "stateReason": instance["reason"],
        }
        return row | {name: value for name, value in optional.items() if value is not None}

    # --- pages --------------------------------------------------------------------------------------------------------
    def _here(self, request: EmulatorRequest) -> list[Sold]:
        region = self._region(request)
        return [sold for sold in self.market if sold.region == region]

    def _paged(self, request: EmulatorRequest, name: str, rows: list[Any]) -> EmulatorReply:
        start, end, token = self._piece(request.params.get("NextToken"), len(rows))
        return _xml(request, {name: rows[start:end], "nextToken": token})

    def _piece(self, token: str | None, count: int) -> tuple[int, int, str]:
        """From, to, and the token of the next page: empty on the last, as EC2 has it."""
        start = int(token) if token and token.isdigit() else 0
        end = start + self.page
        return start, end, str(end) if end < count else ""


def _tags(sent: Mapping[str, str]) -> list[dict[str, str]]:
    """The tags of the first specification, which is the instance's."""
    prefix = "TagSpecification.1.Tag."
    keys = [name for name in sent if name.startswith(prefix) and name.endswith(".Key")]
    return [{"key": sent[name], "value": sent.get(name[:-3] + "Value", "")} for name in keys]


def _listed(sent: Mapping[str, str], name: str) -> list[str]:
    """Values of a list on the wire: `InstanceType.1`, `InstanceType.2`, …"""
    return [value for key, value in sent.items() if re.fullmatch(re.escape(name) + r"\.\d+", key)]


def _json(value: Mapping[str, Any], status: int = 200) -> EmulatorReply:
    return EmulatorReply(status, msgspec.json.encode(value), content_type="application/x-amz-json-1.1")


def _xml(request: EmulatorRequest, value: Mapping[str, Any]) -> EmulatorReply:
    action = request.path[1:]
    body = f'<{action}Response xmlns="{_NAMESPACE}"><requestId>0</requestId>{_inner(value)}</{action}Response>'
    return EmulatorReply(
        200, f'<?xml version="1.0" encoding="UTF-8"?>\n{body}'.encode(), content_type="text/xml;charset=UTF-8"
    )


def _inner(value: Any) -> str:
    """A value as EC2 writes it: lists are `item`s."""
    if isinstance(value, Mapping):
        return "".join(f"<{name}>{_inner(one)}</{name}>" for name, one in value.items())
    if isinstance(value, list):
        return "".join(f"<item>{_inner(one)}</item>" for one in value)
    return escape(str(value).lower() if isinstance(value, bool) else str(value))


def _refuse(code: str, message: str, status: int = 400) -> RefusedRequest:
    """EC2's own envelope of a refusal."""
    error = f"<Code>{code}</Code><Message>{escape(message)}</Message>"
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Response><Errors><Error>{error}</Error></Errors>'
    return RefusedRequest(
        EmulatorReply(status, f"{body}<RequestID>0</RequestID></Response>".encode(), content_type="text/xml")
    )
