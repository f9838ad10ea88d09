"""The launcher of Lambda: launch, list, terminate. Requests that change something are sent once.

The rows of instances contain `jupyter_token` and `jupyter_url`, which are never read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from gpuwatch.domain.launches.instance import LABEL_PREFIX
from gpuwatch.errors import (
    OfferGone,
    OrderError,
    OrderRateLimited,
    OrderRefused,
    OutcomeUnknown,
    ProviderError,
    RefusalKind,
    RefusalScope,
)
from gpuwatch.ports import Created, Instance, InstanceState, Order, ProviderSettings
from gpuwatch.ports.declarations import Tools
from gpuwatch.ports.http import HttpReply
from gpuwatch.ports.prerequisites import Prerequisite
from gpuwatch.ports.settings import Option
from gpuwatch.providers.toolkit.api_client import ApiClient
from gpuwatch.providers.toolkit.api_launcher import ApiLauncher, InstanceNotFound
from gpuwatch.providers.toolkit.basic_launcher import (
    decoded_order,
    id_and_status,
    instance_rows,
    match_offer_id,
    refuse_beyond_machine,
    require_ssh_key,
)
from gpuwatch.providers.toolkit.error_mapping import ErrorBody, ordering_error, reading_error, retry_after_s
from gpuwatch.providers.toolkit.first_boot import first_boot_script
from gpuwatch.providers.toolkit.instance_status import StatusWords
from gpuwatch.providers.toolkit.machine_type import fields_of_instance
from gpuwatch.providers.toolkit.post_processing import RowSkipped
from gpuwatch.providers.toolkit.ssh_keys import ssh_key_prerequisite
from gpuwatch.providers.toolkit.validation import at, objects, word

from .offers import PROVIDER, LambdaInstanceType, parse_type

_REQUEST_S: Final = 1.0  # one request a second, of any kind
_LAUNCH_S: Final = 12.0  # one launch in twelve seconds
_NAME_LENGTH: Final = 64
_USER_DATA_BYTES: Final = 1_000_000
_TAG: Final = "gpuwatch"  # its value is the label
_OFFER: Final = re.compile(r"([A-Za-z0-9_.-]{1,40})/([a-z0-9-]{1,23})")
_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_IMAGE_ID: Final = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}")
# source: the vendor's OpenAPI specification (InstanceStatus), read 2026-11
STATUS_WORDS: Final = StatusWords({
    "booting": InstanceState.STARTING,
    "active": InstanceState.RUNNING,
    "unhealthy": InstanceState.OFFLINE,
    "terminating": InstanceState.ENDING,
    **dict.fromkeys(("terminated", "preempted"), InstanceState.ENDED),
})  # fmt: skip
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


class LambdaClient(ApiClient):
    """The HTTP client of the account: all requests share one interval, launches have an additional, longer one."""

    def __init__(self, settings: ProviderSettings, tools: Tools) -> None:
        # a launch may still wait for an earlier request after its turn: the interval keeps the next launch away from it
        intervals_s = {"any": _REQUEST_S, "launch": _LAUNCH_S + _REQUEST_S}
        super().__init__(settings, tools, intervals_s=intervals_s, reading=list_error, ordering=launch_error)

    def acquire(self, kind: str, urgent: bool = False) -> None:
        """Wait for this class's turn, and then for the interval of all requests. Raises `WaitStopped`."""
        super().acquire(kind, urgent)
        super().acquire("any", urgent)


class LambdaLauncher(ApiLauncher):
    """Rents at Lambda. Requires a payment method in the account, and the name of an SSH key in the settings."""

    name, instance_id = PROVIDER, _ID

    def __init__(self, account: LambdaClient, options: Mapping[str, Option]) -> None:
        super().__init__(account, options)
        self._ending: frozenset[str] = frozenset()  # instances that the newest list shows as terminating

    def create(self, order: Order) -> Created:
        """Launch once, at least 12 s after the previous launch. Raises OrderError."""
        body = launch_body(order, self._options)
        return parse_created(self.send_create("/instance-operations/launch", body, "launch"))

    def check_order(self, order: Order) -> None:
        """Build the request. Raises OrderRefused."""
        launch_body(order, self._options)

    def list_instances(self) -> Sequence[Instance]:
        """Return every instance of the account that has not ended; the list has no pages. Raises ProviderError."""
        self._account.require_key()
        found = parse_instances(self._account.get("/instances", kind="instances"))
        self._ending = frozenset(instance.instance_id for instance in found if instance.state is InstanceState.ENDING)
        return found

    def prerequisites(self, orders: Sequence[Order]) -> Sequence[Prerequisite]:
        """Check that the account has the SSH key of the settings. Only reads; raises nothing."""
        mend = f'add ssh_key = "NAME", a key registered at Lambda, to [providers.{PROVIDER}.options]'
        return [ssh_key_prerequisite(self._options.get("ssh_key"), self._keys, mend)]

    def _keys(self) -> list[object]:
        self._account.require_key()
        return [row.get("name") for row in objects(at(self._account.get("/ssh-keys", kind="instances"), "data"))]

    def instance_row(self, value: Any) -> object:
        """Return the row, which is within an object."""
        return at(value, "data")

    def parse_instance(self, row: Mapping[str, Any]) -> Instance:
        """Return the instance, ended or not."""
        return _instance(row)

    def end(self, instance_id: str) -> None:
        """Terminate it. Sends nothing while the list shows it as terminating.

        Raises:
            OrderError: not done, or outcome unknown.
        """
        if instance_id in self._ending:
            return
        body = {"instance_ids": [instance_id]}
        try:
            reply = self._account.order("POST", "/instance-operations/terminate", body, kind="terminate")
        except (_InstanceGone, OfferGone):
            return
        ended = objects(at(decoded_order(reply, PROVIDER, instance_id), "data", "terminated_instances"))
        if instance_id not in [one.get("id") for one in ended]:
            raise OutcomeUnknown("lambda: the answer does not list the terminated instance", instance_id)


class _InstanceGone(OrderRefused):
    """The object of the request does not exist."""


def launch_body(order: Order, options: Mapping[str, Option]) -> dict[str, Any]:
    """Build the launch request. The label is its name and a tag; variables and start commands are user data.

    Raises:
        OrderRefused: BAD_ORDER, Lambda does not support it.
    """
    match = match_offer_id(order, _OFFER, PROVIDER)
    ssh_key, image = require_ssh_key(options, PROVIDER, "an SSH key", "NAME"), options.get("image")
    script = first_boot_script(order.onstart, order.env)
    extra_reasons = {
        "onstart and env exceed the 1 MB that Lambda accepts": len((script or "").encode()) > _USER_DATA_BYTES
    }
    firewall = "set them in the firewall of the account"
    refuse_beyond_machine(order, PROVIDER, "Lambda", extra_reasons, label_length=_NAME_LENGTH, ports=firewall)
    body: dict[str, Any] = {
        "region_name": match[2],
        "instance_type_name": match[1],
        "ssh_key_names": [ssh_key],
        "name": order.label,
        "tags": [{"key": _TAG, "value": order.label}],
    }
    if script is not None:
        body["user_data"] = script
    if isinstance(image, str) and image:
        body["image"] = {"id" if _IMAGE_ID.fullmatch(image) else "family": image}
    return body


def launch_error(name: str, body: ErrorBody, reply: HttpReply, now: datetime) -> OrderError:
    """Map the error of an order; the vendor recommends to rely only on its code."""
    line = f"{name}: {body.summary}"
    if reply.status >= 500 or reply.status == 408:
        return OutcomeUnknown(line)
    if body.code == _NO_CAPACITY:
        return OfferGone(line)
    if body.code == _NO_OBJECT:  # only the message names the object
        if body.has("instance type", "region") and not body.has("ssh", "key", "image"):
            return OfferGone(line)
        return _InstanceGone(f"{line} (an SSH key, image or instance of that name)", RefusalKind.BAD_ORDER)
    if body.code in _ACCOUNT:
        return OrderRefused(line, _ACCOUNT[body.code], RefusalScope.ACCOUNT)
    if reply.status == 429:
        return OrderRateLimited(line, retry_after_s(reply, now) or _LAUNCH_S)
    return ordering_error(name, body, reply, now)


def list_error(name: str, body: ErrorBody, reply: HttpReply, now: datetime) -> ProviderError:
    """Map the error of a request that only reads."""
    if reply.status == 404 and body.code == _NO_OBJECT:  # "global/not-found" is a wrong path, and proves nothing
        return InstanceNotFound(f"{name}: {body.summary}")
    return reading_error(name, body, reply, now)


def parse_created(reply: HttpReply) -> Created:
    """Return the instance of a launch's 2xx answer: exactly one. Raises OutcomeUnknown for anything else."""
    ids = at(decoded_order(reply, PROVIDER), "data", "instance_ids")
    found = [one for one in ids if isinstance(one, str) and _ID.fullmatch(one)] if isinstance(ids, list) else []
    if len(found) != 1 or len(ids) != 1:
        raise OutcomeUnknown("lambda: the launch's answer names no instance, or several", found[0] if found else None)
    return Created(instance_id=found[0])


def parse_instances(value: object) -> list[Instance]:
    """Parse the instances of `GET /instances` that have not ended.

    Raises:
        PayloadChanged: it contains no list, or a row has no id or status: it might be gpuwatch's.
    """
    rows = instance_rows(value, at(value, "data"), PROVIDER)
    return [_instance(row) for row in rows if not STATUS_WORDS.is_ended(row.get("status"))]


def _instance(row: Mapping[str, Any]) -> Instance:
    instance_id, status = id_and_status(row, PROVIDER)
    kind, ip = _kind(row), word(row.get("ip"), 64)
    state, unknown_status = STATUS_WORDS.read(status)
    if state is InstanceState.RUNNING and not ip:
        state = InstanceState.STARTING
    place = f"{kind.name}/{word(at(row, 'region', 'name'), 23)}" if kind else None
    return Instance(
        instance_id=instance_id,
        label=_label(row),
        state=state,
        status=status,
        unknown_status=unknown_status,
        machine_id=place,
        spot=False,
        listed_usd_hour=None if kind is None else kind.usd_hour,
        stopped_usd_hour=None if kind is None else kind.usd_hour,  # billed until its end, even if idle or unhealthy
        ssh_host=ip,
        ssh_port=22 if ip else None,
        ssh_user="ubuntu",
        **fields_of_instance(kind),
    )


def _kind(row: Mapping[str, Any]) -> LambdaInstanceType | None:
    """Return its hardware, as far as it is readable: an odd value must not hide an instance that is billed."""
    try:
        return parse_type(row.get("instance_type"))
    except RowSkipped:
        return None


def _label(row: Mapping[str, Any]) -> str | None:
    """Return the tag if it is gpuwatch's, because it survives a rename; else the name."""
    tags = [word(tag.get("value")) for tag in objects(row.get("tags")) if tag.get("key") == _TAG]
    name = word(row.get("name"))
    own_label = next((one for one in (*tags, name) if one is not None and one.startswith(LABEL_PREFIX)), None)
    return own_label or name or next(iter(tags), None)
