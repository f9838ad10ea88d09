"""Lambda: a cloud of virtual machines. A type has one price everywhere; only the regions with capacity change.

Its offers are types × the regions that have capacity for them now. The rows of instances contain `jupyter_token` and
`jupyter_url`, which are never read. The module's name is a Python keyword: only `importlib` can import it.

source: the vendor's OpenAPI 1.10.0 and billing page, and public clients, read 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Final

from gpuwatch.domain.market.offer import Offer
from gpuwatch.errors import (
    OfferGone,
    OrderError,
    OrderRateLimited,
    OrderRefused,
    OutcomeUnknown,
    RefusalKind,
    RefusalScope,
)
from gpuwatch.ports import Created, Instance, InstanceState, Order
from gpuwatch.ports.declarations import Billing, OptionSpec, ProviderInfo
from gpuwatch.ports.http import HttpReply
from gpuwatch.ports.prerequisites import declared
from gpuwatch.providers.toolkit.api_client import ANY
from gpuwatch.providers.toolkit.basic_launcher import decoded_order, label_among, machine_fields
from gpuwatch.providers.toolkit.error_mapping import ErrorBody, NoSuchObject, retry_after_s
from gpuwatch.providers.toolkit.first_boot import first_boot_script
from gpuwatch.providers.toolkit.instance_status import StatusWords
from gpuwatch.providers.toolkit.machine_cloud import MachineCloud
from gpuwatch.providers.toolkit.machine_type import MachineType, fields_of_instance
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped, if_readable, stated
from gpuwatch.providers.toolkit.validation import at, matched, number, objects, usd_hour, whole, word

PROVIDER: Final = "lambda"
INFO = ProviderInfo(
    name=PROVIDER,
    title="Lambda",
    base_url="https://cloud.lambda.ai/api/v1",
    key_names=("LAMBDA_API_KEY",),
    launches=True,
    no_kept_disk="its API can only terminate a machine",
    runs_images=False,
    billing=Billing(step_s=60.0),
    options=(
        OptionSpec(name="ssh_key", kind="text", about="Name of an SSH key registered at Lambda; required for renting."),
        OptionSpec(name="image", kind="text", about="System image, by family or id; default: the newest Lambda Stack."),
    ),
    search_interval_s=1.0,
    console_url="https://cloud.lambda.ai/instances",
    prerequisites=declared(
        "launching.md#before-the-first-rent",
        credentials="a key that lists instances",
        key_pair="the SSH key of options.ssh_key",
    ),
)
_REQUEST_S: Final = 1.0  # one request a second, of any kind
_LAUNCH_S: Final = 12.0  # one launch in twelve seconds
_USER_DATA_BYTES: Final = 1_000_000
_TAG: Final = "gpuwatch"  # its value is the label
_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_IMAGE_ID: Final = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}")
_GB_PER_GIB: Final = 1.073741824
_MAX_SIZE_GIB: Final = 100_000.0  # GiB: a larger size is in another unit
_NAME: Final = re.compile(r"gpu_(\d{1,3})x_([a-z0-9_]{1,40})")
_TYPE_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_REGION: Final = re.compile(r"[a-z0-9-]{1,23}")  # an offer id is type, slash and region: at most 64 characters
_SIZE: Final = re.compile(r"(\d{1,4}) ?GB\b")
_FORM_FACTOR: Final = re.compile(r"\b(SXM|PCIe)")
_INTERCONNECT: Final = {"SXM": "NVLink", "PCIe": "PCIe"}
# For names that are ambiguous without a description: 8× is SXM; 1×, 2× and 4× are PCIe.
_BY_NAME: Final = {"rtx6000": "Quadro RTX 6000", "v100_n": "Tesla V100"}
_A100: Final = ("A100-PCIE-40GB", "A100-SXM4-40GB")
_COUNTRIES: Final = {
    "USA": "US", "United States": "US", "Germany": "DE", "Italy": "IT", "India": "IN", "Japan": "JP", "Israel": "IL",
    "Australia": "AU",
}  # fmt: skip
_ROW: Final = frozenset({"instance_type", "regions_with_capacity_available"})
_TYPE: Final = frozenset({"name", "description", "gpu_description", "price_cents_per_hour", "architecture", "specs"})
# Codes about the account, whatever their status.
_ACCOUNT: Final = {
    "global/invalid-api-key": RefusalKind.KEY,
    "global/forbidden": RefusalKind.KEY,
    "global/account-inactive": RefusalKind.NO_CREDIT,
    "global/invalid-address": RefusalKind.NO_CREDIT,
    "global/quota-exceeded": RefusalKind.OTHER,
}
_NO_CAPACITY: Final = "instance-operations/launch/insufficient-capacity"
_NO_OBJECT: Final = "global/object-does-not-exist"


class LambdaCloud(MachineCloud):
    """An account at Lambda. Renting requires a payment method, and the name of an SSH key in the settings."""

    info = INFO
    # a launch may still wait for an earlier request after its turn: the interval keeps the next launch away from it
    intervals_s: ClassVar = {ANY: _REQUEST_S, "launch": _LAUNCH_S + _REQUEST_S}
    types_path = "/instance-types"
    offer_id = re.compile(rf"({_TYPE_NAME.pattern})/({_REGION.pattern})")
    create_path, create_kind = "/instance-operations/launch", "launch"
    instance_id, instances_at, instance_at = _ID, ("data",), ("data",)
    # source: the vendor's OpenAPI specification (InstanceStatus), read 2026-11
    status_words = StatusWords({
        "booting": InstanceState.STARTING,
        "active": InstanceState.RUNNING,
        "unhealthy": InstanceState.OFFLINE,
        "terminating": InstanceState.ENDING,
        **dict.fromkeys(("terminated", "preempted"), InstanceState.ENDED),
    })  # fmt: skip
    ends_once = True
    ssh_keys_at, ssh_key_field = ("data",), "name"
    prerequisites = MachineCloud.check_ssh_key

    def type_rows(self, value: object) -> object:
        """Return the rows of a map of types."""
        types = at(value, "data")
        return list(types.values()) if isinstance(types, dict) else None

    def read_type(self, row: Any, result: ParseResult, observed_at: datetime) -> bool:
        """Add an offer for each region that has the type now; False: it has no GPU. Raises RowSkipped."""
        row_type, regions = at(row, "instance_type"), at(row, "regions_with_capacity_available")
        found = parse_type(row_type)
        if not isinstance(regions, list):
            raise RowSkipped("no list of regions")  # not the same as an empty list
        if isinstance(row, dict) and isinstance(row_type, dict):
            result.check_drift(row, _ROW, _ROW)
            result.check_drift(row_type, _TYPE, _TYPE - {"architecture"})
        if found is None:
            return False
        for region in regions:
            place = at(region, "name")
            if isinstance(place, str) and _REGION.fullmatch(place):
                result.offers.append(found.in_region(place, _country(region), observed_at))
            else:
                result.skip("no name of a region")
        return True

    def create_body(self, order: Order) -> dict[str, Any]:
        """Build the launch request. The label is its name and a tag; variables and start commands are user data."""
        script, image = first_boot_script(order.onstart, order.env), self.options.get("image")
        is_too_long = len((script or "").encode()) > _USER_DATA_BYTES
        reasons = {"onstart and env exceed the 1 MB that Lambda accepts": is_too_long}
        parts = self.parts_of(order, reasons, ports="set them in the firewall of the account", label_length=64)
        body: dict[str, Any] = {
            "region_name": parts[2],
            "instance_type_name": parts[1],
            "ssh_key_names": [self.required_ssh_key()],
            "name": order.label,
            "tags": [{"key": _TAG, "value": order.label}],
        }
        if script is not None:
            body["user_data"] = script
        if isinstance(image, str) and image:
            body["image"] = {"id" if _IMAGE_ID.fullmatch(image) else "family": image}
        return body

    def parse_created(self, reply: HttpReply) -> Created:
        """Return the instance of a launch's 2xx answer: exactly one. Raises OutcomeUnknown for anything else."""
        ids = at(decoded_order(reply, PROVIDER), "data", "instance_ids")
        found = [one for one in ids if isinstance(one, str) and _ID.fullmatch(one)] if isinstance(ids, list) else []
        if len(found) != 1 or len(ids) != 1:
            named = found[0] if found else None
            raise OutcomeUnknown("lambda: the launch's answer names no instance, or several", named)
        return Created(instance_id=found[0])

    def parse_instance(self, row: Mapping[str, Any]) -> Instance:
        """Return the instance of a row."""
        found, ip = if_readable(parse_type, row.get("instance_type")), word(row.get("ip"), 64)
        tags = [tag.get("value") for tag in objects(row.get("tags")) if tag.get("key") == _TAG]
        return Instance(
            **machine_fields(row, self.status_words, PROVIDER, ip=ip, user="ubuntu", waits_for_ip=True),
            label=label_among(tags, row.get("name")),
            machine_id=f"{found.name}/{word(at(row, 'region', 'name'), 23)}" if found else None,
            spot=False,
            listed_usd_hour=found.usd_hour if found else None,
            stopped_usd_hour=found.usd_hour if found else None,  # billed until its end, even if idle or unhealthy
            **fields_of_instance(found),
        )

    def end(self, instance_id: str) -> None:
        """Terminate it. Raises OrderError."""
        body = {"instance_ids": [instance_id]}
        try:
            reply = self.client.order("POST", "/instance-operations/terminate", body, kind="terminate")
        except OfferGone:
            return
        ended = objects(at(decoded_order(reply, PROVIDER, instance_id), "data", "terminated_instances"))
        if instance_id not in [one.get("id") for one in ended]:
            raise OutcomeUnknown("lambda: the answer does not list the terminated instance", instance_id)

    def is_not_found(self, body: ErrorBody) -> bool:
        """Whether the object does not exist: "global/not-found" is a wrong path, and proves nothing."""
        return body.status == 404 and body.code == _NO_OBJECT

    def refusal(self, line: str, body: ErrorBody, reply: HttpReply, now: datetime) -> OrderError | None:
        """Map the error of an order; the vendor recommends to rely only on its code."""
        if reply.status >= 500 or reply.status == 408:
            return OutcomeUnknown(line)
        if body.code == _NO_CAPACITY:
            return OfferGone(line)
        if body.code == _NO_OBJECT:  # only the message names the object
            if body.has("instance type", "region") and not body.has("ssh", "key", "image"):
                return OfferGone(line)
            return NoSuchObject(f"{line} (an SSH key, image or instance of that name)", RefusalKind.BAD_ORDER)
        if body.code in _ACCOUNT:
            return OrderRefused(line, _ACCOUNT[body.code], RefusalScope.ACCOUNT)
        if reply.status == 429:
            return OrderRateLimited(line, retry_after_s(reply, now) or _LAUNCH_S)
        return None


class LambdaInstanceType(MachineType, frozen=True, kw_only=True):
    """One parsed instance type."""

    name: str
    usd_hour: float
    cpu_arch: str | None

    def in_region(self, region: str, country: str | None, observed_at: datetime) -> Offer:
        """Return the offer of this type in a region."""
        return self.offer(
            provider=PROVIDER,
            offer_id=f"{self.name}/{region}",
            usd_hour=self.usd_hour,
            terms=self.terms(self.name),
            observed_at=observed_at,
            region=region,
            country=country,
            cpu_arch=self.cpu_arch,
        )


def parse_type(row: object) -> LambdaInstanceType | None:
    """Parse one `instance_type`, of the catalogue or of an instance; None: it has no GPU.

    Raises:
        RowSkipped: it is not a type, or its numbers are malformed.
    """
    if not isinstance(row, dict):
        raise RowSkipped("no instance type")
    count = stated(whole(at(row, "specs", "gpus"), 0, 1_000), "no number of GPUs")
    if not count:
        return None
    name = stated(matched(row.get("name"), _TYPE_NAME), "no name")
    price = stated(usd_hour((number(row.get("price_cents_per_hour")) or 0.0) / 100), "no usable price")
    in_name = _NAME.fullmatch(name)
    if in_name is not None and int(in_name[1]) != count:
        raise RowSkipped("its name and its specs tell different numbers of GPUs")
    wire = _gpu_wire(row, name, count)
    memory_size, form_factor = _SIZE.search(wire), _FORM_FACTOR.search(wire)
    memory_gib = number(memory_size[1], 1) if memory_size else None
    disk_gib = number(at(row, "specs", "storage_gib"), 1, _MAX_SIZE_GIB * 100)
    return LambdaInstanceType.of(
        wire,
        count,
        memory_gib,
        name=name,
        usd_hour=price,
        cpu_arch=word(row.get("architecture"), 20),
        vcpu=number(at(row, "specs", "vcpus"), 1, _MAX_SIZE_GIB),
        ram_gib=number(at(row, "specs", "memory_gib"), 1, _MAX_SIZE_GIB),
        disk_gb=None if disk_gib is None else round(disk_gib * _GB_PER_GIB, 1),
        interconnect=_INTERCONNECT[form_factor[1]] if form_factor else None,
    )


def _gpu_wire(row: Mapping[str, Any], name: str, count: int) -> str:
    """Return the GPU that Lambda describes: if description and name disagree, the description is right."""
    if description := word(row.get("gpu_description"), 80):
        return description
    if description := word(row.get("description"), 80):
        return re.sub(r"^\d{1,3}x ", "", description)
    model = re.sub(r"^gpu_\d{1,3}x_", "", name)
    return _A100[count == 8] if model == "a100" else _BY_NAME.get(model, model)


def _country(region: Mapping[str, Any]) -> str | None:
    place = word(region.get("description")) or ""
    country = _COUNTRIES.get(place.rpartition(",")[2].strip())
    return country or ("US" if region["name"].startswith("us-") else None)


build = LambdaCloud.build
