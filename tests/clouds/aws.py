"""Amazon's side on loopback: EC2's query API (XML) and the Pricing API (JSON), for all regions at one address.

The region is read from the signature, and so is the access key; signatures are not verified. Instances exist as long
as the stage does.
source: AWS's public API references of EC2 and the Price List Service, read 2026-11.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar
from urllib.parse import parse_qsl

from gpuwatch.emulator.answers import EmulatorReply, RefusedRequest
from gpuwatch.emulator.clock import Clock
from gpuwatch.emulator.provider_server import ProviderServer
from gpuwatch.emulator.request import EmulatorRequest
from tests.clouds.aws_account import Ec2Account
from tests.clouds.aws_account_actions import ACCOUNT_ROUTES, AccountActions
from tests.clouds.aws_capacity import CAPACITY_ROUTES, CapacityActions
from tests.clouds.aws_market import MARKET, Sold, product_texts
from tests.clouds.aws_wire import json_reply, listed, refuse, xml_reply

_NEXT = {"pending": "running", "stopping": "stopped"}
_CREDENTIAL = re.compile(r"Credential=([^/]+)/\d+/([^/]+)/([^/]+)/")


class Ec2(AccountActions, CapacityActions, ProviderServer):
    """EC2 with a small market in two regions. Requests are logged, and can be made to fail, as "POST /RunInstances".

    Args:
        page: rows per page, whatever `MaxResults` is.
        account: the contents of the account; default: an account whose prerequisites are not checked.
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
        ("POST", "/StopInstances", "stop_instances"),
        ("POST", "/StartInstances", "start_instances"),
        ("POST", "/GetProducts", "get_products"),
        ("POST", "/GetCallerIdentity", "get_caller_identity"),
        *ACCOUNT_ROUTES,
        *CAPACITY_ROUTES,
    )

    def __init__(
        self,
        *,
        port: int = 0,
        key: str = "demo-key",
        clock: Clock = time.time,
        page: int = 100,
        market: Sequence[Sold] = MARKET,
        account: Ec2Account | None = None,
    ) -> None:
        super().__init__(port=port, key=key, clock=clock)
        self.account = account or Ec2Account(strict=False)
        self.page = page
        self.knows_dry_run = True
        self.market = list(market)
        self.instances: dict[str, dict[str, Any]] = {}
        self.tokens: dict[str, tuple[str, dict[str, str]]] = {}
        self.sold_out: set[tuple[str, str]] = set()  # (zone, type)
        self.scores: dict[str, int] = {}  # zone id → spot placement score
        self.blocks: list[dict[str, Any]] = []  # capacity blocks for sale, as the wire has them
        self.types: list[dict[str, Any]] = []  # what DescribeInstanceTypes knows, as the wire has it

    # --- controls for tests -------------------------------------------------------------------------------------------
    def sell_out(self, zone: str, type_: str) -> None:
        """From now on there is no capacity for this type in this zone, although its price is still listed."""
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
        """Set an instance's state."""
        with self.lock:
            self.instances[instance_id]["state"] = state

    # --- requests -----------------------------------------------------------------------------------------------------
    def key_of(self, request: EmulatorRequest) -> str | None:
        """The access key id of the signature."""
        return self._credential(request)[0]

    def routed(self, request: EmulatorRequest) -> EmulatorReply:
        """Require a signature for every action; each service reports a wrong key in its own way."""
        if request.path == "/":
            return EmulatorReply(302, b"", headers=(("Location", "https://aws.amazon.com/ec2"),))
        if not request.keyed:
            if request.headers.get("x-amz-target"):
                said = "The security token included in the request is invalid."
                raise RefusedRequest(json_reply({"__type": "UnrecognizedClientException", "message": said}, 400))
            raise refuse("AuthFailure", "AWS was not able to validate the provided access credentials", 401)
        if request.path[1:] in self.account.rights and request.path != "/RunInstances":
            said = f"You are not authorized to perform: {request.path[1:]}"
            if request.headers.get("x-amz-target"):
                raise RefusedRequest(json_reply({"__type": "AccessDeniedException", "message": said}, 400))
            raise refuse("UnauthorizedOperation", said, 403)
        return super().routed(request)

    def no_route(self, request: EmulatorRequest) -> EmulatorReply:
        """Refuse an action that does not exist, or is not emulated."""
        message = f"The action {request.path[1:]} is not valid for this web service."
        return refuse("InvalidAction", message).reply

    def answer(self, request: EmulatorRequest) -> EmulatorReply:
        """Map all actions of one path: the action becomes the path, its values the parameters."""
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
        """STS: return the account of the credentials."""
        body = (
            '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>'
            "<Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>"
        )
        return EmulatorReply(200, body.encode(), content_type="text/xml;charset=UTF-8")

    # --- offers -------------------------------------------------------------------------------------------------------
    def describe_regions(self, request: EmulatorRequest) -> EmulatorReply:
        """Return the regions that the account has enabled."""
        names = dict.fromkeys(sold.region for sold in self.market)
        wanted = listed(request.params, "Filter.1.Value")
        everywhere = request.params.get("AllRegions") == "true"
        off = self.account.disabled_regions
        rows = [
            {"regionName": name, "optInStatus": "not-opted-in" if name in off else "opt-in-not-required"}
            for name in names
            if (everywhere or name not in off) and (not wanted or name in wanted)
        ]
        return xml_reply(request, {"regionInfo": rows})

    def describe_zones(self, request: EmulatorRequest) -> EmulatorReply:
        """Return the zones of the region."""
        zones = dict.fromkeys((sold.zone, sold.zone_id) for sold in self._here(request))
        rows = [
            {"zoneName": zone, "zoneId": zone_id, "zoneState": "available", "zoneType": "availability-zone"}
            for zone, zone_id in zones
        ]
        return xml_reply(request, {"availabilityZoneInfo": rows})

    def describe_offerings(self, request: EmulatorRequest) -> EmulatorReply:
        """Return which types are offered in which zone; the filter's values may end with a star."""
        wanted = [re.escape(value).replace(r"\*", ".*") for value in listed(request.params, "Filter.1.Value")]
        rows = [
            {"instanceType": sold.type, "locationType": "availability-zone", "location": sold.zone}
            for sold in self._here(request)
            if any(re.fullmatch(pattern, sold.type) for pattern in wanted or [".*"])
        ]
        return self._paged(request, "instanceTypeOfferingSet", rows)

    def describe_types(self, request: EmulatorRequest) -> EmulatorReply:
        """Return the hardware of a type."""
        wanted = listed(request.params, "InstanceType")
        rows = [row for row in self.types if not wanted or row["instanceType"] in wanted]
        return self._paged(request, "instanceTypeSet", rows)

    def describe_spot_prices(self, request: EmulatorRequest) -> EmulatorReply:
        """Return current spot prices and an earlier one: rows are changes."""
        wanted = listed(request.params, "InstanceType")
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
        """Return list prices: entries are JSON as text."""
        body = request.body()
        filters = {one["Field"]: one["Value"].split(",") for one in body.get("Filters", [])}
        products = product_texts(self.market, filters)
        start, end, token = self._piece(body.get("NextToken"), len(products))
        answer: dict[str, Any] = {"FormatVersion": "aws_v1", "PriceList": products[start:end]}
        return json_reply(answer | ({"NextToken": token} if token else {}))

    # --- instances ----------------------------------------------------------------------------------------------------
    def run_instances(self, request: EmulatorRequest) -> EmulatorReply:
        """Create one instance; the same client token creates no second one."""
        sent, region = request.params, self._region(request)
        if sent.get("DryRun") == "true" and self.knows_dry_run:
            self._sold(sent, region)
            raise refuse("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
        token = sent.get("ClientToken", "")
        values = {name: value for name, value in sent.items() if name not in {"Action", "Version"}}
        known = self.tokens.get(token)
        if known is not None and known[1] != values:
            raise refuse("IdempotentParameterMismatch", "Arguments on this idempotent request are inconsistent", 400)
        if known is None:
            instance_id = self._made(sent, region)
            self.tokens[token] = (instance_id, values)
        else:
            instance_id = known[0]
        return xml_reply(request, {"reservationId": "r-0", "instancesSet": [self._shown(instance_id)]})

    def _sold(self, sent: Mapping[str, str], region: str) -> Sold:
        """Check an order, including everything that EC2 also checks in a dry run."""
        zone, type_ = sent.get("Placement.AvailabilityZone", ""), sent.get("InstanceType", "")
        zone = zone or self._zone_of(sent, region, type_)
        self.account.require_run(sent, region, zone, refuse)
        sold = next((one for one in self.market if (one.region, one.zone, one.type) == (region, zone, type_)), None)
        if sold is None:
            message = (
                f"Your requested instance type ({type_}) is not supported in your requested Availability Zone ({zone})."
            )
            raise refuse("Unsupported", message)
        return sold

    def _zone_of(self, sent: Mapping[str, str], region: str, type_: str) -> str:
        """Return the zone of the subnet; without one, any zone with the type."""
        subnet = sent.get("SubnetId") or sent.get("NetworkInterface.1.SubnetId")
        zones = [one.zone for one in self.market if one.region == region and one.type == type_]
        by_subnet = [zone for zone in zones if (self.account.subnet_of(zone) or {}).get("subnetId") == subnet]
        return next(iter(by_subnet or zones), "")

    def _made(self, sent: dict[str, str], region: str) -> str:
        sold = self._sold(sent, region)
        zone, type_ = sold.zone, sold.type
        if (zone, type_) in self.sold_out:
            message = (
                f"We currently do not have sufficient {type_} capacity in the Availability Zone you requested ({zone})."
            )
            raise refuse("InsufficientInstanceCapacity", message, 500)
        spot = sent.get("InstanceMarketOptions.MarketType") == "spot"
        most = sent.get("InstanceMarketOptions.SpotOptions.MaxPrice")
        if spot and sold.spot is not None and most is not None and float(most) < float(sold.spot):
            message = (
                f"Your Spot request price of {most} is lower than the minimum required Spot request fulfillment price"
            )
            raise refuse("SpotMaxPriceTooLow", f"{message} of {sold.spot}.")
        living = [
            (instance["sold"].type, instance["sold"].vcpu, instance["spot"])
            for instance in self.instances.values()
            if instance["region"] == region and instance["state"] in ("pending", "running")
        ]
        self.account.require_quota(region, type_, sold.vcpu, spot, living, refuse)
        instance_id = f"i-{len(self.instances) + 1:017x}"
        self._attach_volume(sent, instance_id, region)
        self.instances[instance_id] = {
            "region": region, "sold": sold, "state": "pending", "spot": spot, "sent": sent, "made_at": self.clock(),
            "reason": None,
        }  # fmt: skip
        return instance_id

    def describe_instances(self, request: EmulatorRequest) -> EmulatorReply:
        """Return all instances of the region; pending ones become running."""
        region = self._region(request)
        rows = []
        asked = listed(request.params, "InstanceId")
        for instance_id in asked:
            if self.instances.get(instance_id, {}).get("region") != region:
                raise refuse("InvalidInstanceID.NotFound", f"The instance ID '{instance_id}' does not exist")
        for instance_id, instance in self.instances.items():
            if instance["region"] == region and instance_id in (asked or self.instances):
                rows.append({"reservationId": "r-0", "instancesSet": [self._shown(instance_id)]})
                instance["state"] = _NEXT.get(instance["state"], instance["state"])
        return self._paged(request, "reservationSet", rows)

    def terminate_instances(self, request: EmulatorRequest) -> EmulatorReply:
        """End them; ending one that is already gone is allowed."""
        return self._changed(request, lambda instance: "shutting-down")

    def stop_instances(self, request: EmulatorRequest) -> EmulatorReply:
        """Stop them; their disks stay. One that is spot, or just starting, cannot be stopped."""

        def stopped(instance: Mapping[str, Any]) -> str:
            if instance["spot"]:
                message = "You can't stop the Spot Instance: it is associated with a one-time Spot Instance request."
                raise refuse("UnsupportedOperation", message)
            if instance["state"] not in ("running", "stopping", "stopped"):
                raise refuse("IncorrectInstanceState", "The instance is not in a state from which it can be stopped.")
            return "stopped" if instance["state"] == "stopped" else "stopping"

        return self._changed(request, stopped)

    def start_instances(self, request: EmulatorRequest) -> EmulatorReply:
        """Start stopped ones, where there is capacity."""

        def started(instance: Mapping[str, Any]) -> str:
            sold: Sold = instance["sold"]
            if instance["state"] in ("pending", "running"):
                return str(instance["state"])
            if instance["state"] != "stopped":
                raise refuse("IncorrectInstanceState", "The instance is not in a state from which it can be started.")
            if (sold.zone, sold.type) in self.sold_out:
                message = f"We currently do not have sufficient {sold.type} capacity in {sold.zone}."
                raise refuse("InsufficientInstanceCapacity", message, 500)
            return "pending"

        return self._changed(request, started)

    def _changed(self, request: EmulatorRequest, state: Callable[[Mapping[str, Any]], str]) -> EmulatorReply:
        """Give the named instances another state; all or none."""
        found = []
        for instance_id in listed(request.params, "InstanceId"):
            instance = self.instances.get(instance_id)
            if instance is None or instance["region"] != self._region(request):
                raise refuse("InvalidInstanceID.NotFound", f"The instance ID '{instance_id}' does not exist")
            found.append((instance_id, instance, state(instance)))
        reason = {
            "code": "Client.UserInitiatedShutdown",
            "message": "Client.UserInitiatedShutdown: User initiated shutdown",
        }
        rows = []
        for instance_id, instance, after in found:
            rows.append({
                "instanceId": instance_id, "currentState": {"code": 0, "name": after},
                "previousState": {"code": 0, "name": instance["state"]},
            })  # fmt: skip
            instance |= {"state": after, "reason": None if after in ("pending", "running") else reason}
        return xml_reply(request, {"instancesSet": rows})

    def _attach_volume(self, sent: Mapping[str, str], instance_id: str, region: str) -> None:
        """Its root disk, which is deleted with it unless the order states otherwise."""
        ebs = "BlockDeviceMapping.1.Ebs."
        self.account.volumes[f"vol-{instance_id[2:]}"] = {
            "region": region, "instance": instance_id, "size": int(sent.get(ebs + "VolumeSize", 8)),
            "goes": sent.get(ebs + "DeleteOnTermination", "true") == "true",
        }  # fmt: skip

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
            "cpuOptions": {"coreCount": sold.vcpu // 2, "threadsPerCore": 2},
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
        return xml_reply(request, {name: rows[start:end], "nextToken": token})

    def _piece(self, token: str | None, count: int) -> tuple[int, int, str]:
        """Return start, end, and the token of the next page: empty on the last page, as at EC2."""
        start = int(token) if token and token.isdigit() else 0
        end = start + self.page
        return start, end, str(end) if end < count else ""


def _tags(sent: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the tags of the first specification, which is the instance's."""
    prefix = "TagSpecification.1.Tag."
    keys = [name for name in sent if name.startswith(prefix) and name.endswith(".Key")]
    return [{"key": sent[name], "value": sent.get(name[:-3] + "Value", "")} for name in keys]
