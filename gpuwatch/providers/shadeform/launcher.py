"""The launcher of Shadeform: create with a limit of time and money that Shadeform itself enforces, list, delete.

Answers contain the start script (`launch_configuration`), and the answer about one instance its variables (`envs`):
gpuwatch never reads them.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import ROUND_UP, Decimal
from typing import Any, Final

from gpuwatch.domain.launches.instance import LABEL_PREFIX
from gpuwatch.domain.market.money import rfc3339
from gpuwatch.errors import OfferGone, OrderError, OrderRefused, OutcomeUnknown, RefusalKind
from gpuwatch.ports import Created, Instance, InstanceState, Order, ProviderSettings
from gpuwatch.ports.declarations import Tools
from gpuwatch.ports.http import HttpReply
from gpuwatch.ports.settings import Option
from gpuwatch.providers.shadeform.offers import ID_LENGTH, PROVIDER, Hardware, hardware_of
from gpuwatch.providers.toolkit.api_client import ApiClient
from gpuwatch.providers.toolkit.api_launcher import ApiLauncher
from gpuwatch.providers.toolkit.basic_launcher import (
    created_instance,
    decoded_order,
    id_and_status,
    instance_rows,
    match_offer_id,
    not_sent,
    refuse,
)
from gpuwatch.providers.toolkit.error_mapping import ErrorBody, InstanceGone, ordering_error
from gpuwatch.providers.toolkit.instance_status import StatusWords
from gpuwatch.providers.toolkit.machine_type import fields_of_instance
from gpuwatch.providers.toolkit.post_processing import RowSkipped
from gpuwatch.providers.toolkit.validation import at, number, parse_utc, usd_hour, whole, word

_DEADLINE_MARGIN: Final = timedelta(minutes=30)  # Shadeform's own deadline is later than gpuwatch's
_SPENDING_FACTOR: Final = Decimal("1.1")
_MIN_LIMIT_USD: Final = Decimal("0.50")
_OFFER: Final = re.compile(
    r"([A-Za-z0-9_.-]{1,40})/([A-Za-z0-9_.-]{1,40})/([A-Za-z0-9_. -]{1,40})/(\d{1,8}(?:\.\d{1,8})?)"
)
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OWN_ENTRYPOINT: Final = "args"  # the runtype of an image with its own entrypoint
_RUNTYPES: Final = ("", "ssh", "ssh_direct", _OWN_ENTRYPOINT)
_PORT: Final = re.compile(r"(?:([0-9]{1,5}):)?([0-9]{1,5})(?:/tcp)?")
_LAST_PORT: Final = 65_535
_NAME_LENGTH: Final = 64
_FIRST_YEAR: Final = 2020  # an earlier time means "not yet"
# source: the vendor's API reference (instances), read 2026-11
STATUS_WORDS: Final = StatusWords({
    "creating": InstanceState.STARTING,
    "pending_provider": InstanceState.STARTING,  # may hang, or fail
    "pending": InstanceState.STARTING,
    "active": InstanceState.RUNNING,
    "error": InstanceState.FAILED,
    "deleting": InstanceState.ENDING,  # no longer billed
    "deleted": InstanceState.ENDED,
})  # fmt: skip
_NOT_FOUND: Final = ("not found", "does not exist")
_NO_STOCK: Final = ("out_of_stock", "out of stock", "not available in the region")
_NO_CREDIT: Final = ("insufficient fund", "insufficient balance", "insufficient credit", "wallet")


class ShadeformClient(ApiClient):
    """The HTTP client of the account; without a key it sends none."""

    def __init__(self, settings: ProviderSettings, tools: Tools) -> None:
        headers = {"X-API-KEY": settings.api_key} if settings.api_key else {}
        super().__init__(settings, tools, headers=headers, ordering=create_error)


class ShadeformLauncher(ApiLauncher):
    """Rents at Shadeform. Requires money in the account's wallet."""

    name, instance_id, instance_path = PROVIDER, _ID, "/instances/{}/info"

    def __init__(self, account: ShadeformClient, options: Mapping[str, Option]) -> None:
        super().__init__(account, options)
        self._ending: frozenset[str] = frozenset()  # instances that the newest list shows as deleting

    def create(self, order: Order) -> Created:
        """Rent once, with `auto_delete` set: Shadeform itself ends the instance, whatever happens to gpuwatch.

        Raises OrderError.
        """
        body = create_body(order, self._options, self._account.tools.now())
        reply = self.send_create("/instances/create", body)
        return created_instance(at(decoded_order(reply, PROVIDER), "id"), _ID, PROVIDER)

    def check_order(self, order: Order) -> None:
        """Build the request. Raises OrderRefused."""
        create_body(order, self._options, self._account.tools.now())

    def list_instances(self) -> Sequence[Instance]:
        """Return every instance of the account that is not deleted; the list has no pages. Raises ProviderError."""
        self._account.require_key()
        match = parse_instances(self._account.get("/instances", kind="instances"))
        self._ending = frozenset(instance.instance_id for instance in match if instance.state is InstanceState.ENDING)
        return match

    def parse_instance(self, row: Mapping[str, Any]) -> Instance:
        """Return the instance, ended or not. A 404 is not documented, and proves nothing."""
        return _instance(row)

    def end(self, instance_id: str) -> None:
        """Delete it. Sends nothing while the list shows it as deleting.

        Raises:
            OrderError: not done, or outcome unknown. Some clouds cannot delete an instance before it is active.
        """
        if instance_id in self._ending:
            return
        try:
            self._account.order("POST", f"/instances/{instance_id}/delete", kind="delete")
        except InstanceGone:
            raise
        except OfferGone as error:  # a 404 of a server without that path, or a message about stock
            raise OutcomeUnknown(str(error), instance_id) from error


def create_body(order: Order, options: Mapping[str, Option], now: datetime) -> dict[str, Any]:
    """Build the create request. The label is its name and a tag.

    Raises:
        OrderRefused: BAD_ORDER, Shadeform does not support it.
    """
    match = match_offer_id(order, _OFFER, PROVIDER)
    _check(order)
    body: dict[str, Any] = {
        "cloud": match[1],
        "shade_instance_type": match[2],
        "region": match[3],
        "shade_cloud": options.get("shade_cloud") is not False,
        "name": order.label,
        "tags": [order.label],
        "auto_delete": auto_delete(order, Decimal(match[4]) / 100, options, now),
    }
    optional = {
        "ssh_key_id": options.get("ssh_key"),
        "os": options.get("os"),
        "template_id": order.template,
        "envs": _variables(order),
        "launch_configuration": _launch_configuration(order),
    }
    return body | {key: value for key, value in optional.items() if value}


def auto_delete(order: Order, usd_hour: Decimal, options: Mapping[str, Option], now: datetime) -> dict[str, str]:
    """Return Shadeform's limits: its deadline, and the cost until then plus ten per cent."""
    hours = number(options.get("longest_hours"), 0.1, 100_000) or 24.0
    ends_at = (
        order.self_destruct_at or (order.deadline and order.deadline + _DEADLINE_MARGIN) or now + timedelta(hours=hours)
    )
    seconds = Decimal(max((ends_at - now).total_seconds(), 0.0))
    limit = max(usd_hour * seconds / 3600 * _SPENDING_FACTOR, _MIN_LIMIT_USD)
    return {
        "date_threshold": rfc3339(ends_at),
        "spend_threshold": str(limit.quantize(Decimal("0.01"), ROUND_UP)),
    }


def _launch_configuration(order: Order) -> dict[str, Any] | None:
    """Return what runs once the machine is active: an image with its arguments, or a script on the machine."""
    if order.runtype == _OWN_ENTRYPOINT:
        credentials = order.registry and {"username": order.registry.username, "password": order.registry.password}
        optional = {
            "args": order.onstart,
            "envs": _variables(order),
            "port_mappings": [_port_mapping(port) for port in order.ports],
            "registry_credentials": credentials,
        }
        set_options = {key: value for key, value in optional.items() if value}
        return {"type": "docker", "docker_configuration": {"image": order.image} | set_options}
    if order.onstart is None:
        return None
    text = order.onstart if order.onstart.startswith("#!") else f"#!/bin/bash\n{order.onstart}"
    return {"type": "script", "script_configuration": {"base64_script": b64encode(text.encode()).decode()}}


def _variables(order: Order) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in order.env.items()]


def _port_mapping(port: str) -> dict[str, int]:
    match = _PORT.fullmatch(port)
    if match is None or not all(0 < int(group) <= _LAST_PORT for group in match.groups() if group):
        raise not_sent(PROVIDER, f"port {port[:20]!r}: Shadeform maps TCP ports only, such as 8000 or 8080:8000")
    return {"host_port": int(match[1] or match[2]), "container_port": int(match[2])}


def _check(order: Order) -> None:
    is_image, prefix = order.runtype == _OWN_ENTRYPOINT, "Shadeform does not support "
    reasons = {
        f"{prefix}bids": order.bid_usd_hour is not None,
        f"{prefix}volumes": order.volume is not None,
        f'registry and ports require an image: set runtype = "{_OWN_ENTRYPOINT}"': not is_image
        and bool(order.registry or order.ports),
        f'runtype = "{_OWN_ENTRYPOINT}" runs an image: set image, and no template': is_image
        and (not order.image or order.template is not None),
        f"{prefix}onstart with a template": order.template is not None and order.onstart is not None,
        f'{prefix}runtype = "{order.runtype}" (machines are reached by ssh)': order.runtype not in _RUNTYPES,
        f"the label is longer than {_NAME_LENGTH} characters": len(order.label) > _NAME_LENGTH,
    }
    refuse(PROVIDER, reasons)


def create_error(name: str, body: ErrorBody, reply: HttpReply, now: datetime) -> OrderError:
    """Map the error of an order. Only 409 OUT_OF_STOCK is on record; else the status decides."""
    line = f"{name}: {body.summary}"
    code = word(at(body.value, "error_code")) or ""
    if reply.status == 404 and isinstance(body.value, dict) and body.has("instance") and body.has(*_NOT_FOUND):
        return InstanceGone(line)
    if 400 <= reply.status < 500 and reply.status not in (401, 403, 408, 429):
        if reply.status in (404, 410) or code.casefold() in _NO_STOCK or body.has(*_NO_STOCK):
            return OfferGone(line)
        if body.has(*_NO_CREDIT):
            return OrderRefused(line, RefusalKind.NO_CREDIT)
    return ordering_error(name, body, reply, now)


def parse_instances(value: object) -> list[Instance]:
    """Parse the instances of `GET /instances` that are not deleted.

    Raises:
        PayloadChanged: it contains no list, or a row has no id or status: it might be gpuwatch's.
    """
    rows = instance_rows(value, at(value, "instances"), PROVIDER)
    return [_instance(row) for row in rows if not STATUS_WORDS.is_ended(row.get("status"))]


def _instance(row: Mapping[str, Any]) -> Instance:
    instance_id, status = id_and_status(row, PROVIDER)
    state, unknown_status = STATUS_WORDS.read(status)
    cents, details = number(row.get("hourly_price")), word(row.get("status_details"), 90)
    return Instance(
        instance_id=instance_id,
        label=_label(row),
        state=state,
        status=f"{status}: {details}" if details else status,
        unknown_status=unknown_status,
        machine_id=_place(row),
        spot=False,
        listed_usd_hour=None if cents is None else usd_hour(cents / 100),
        ssh_host=word(row.get("ip"), 100),
        ssh_port=whole(row.get("ssh_port"), 1, 65_535),
        ssh_user=word(row.get("ssh_user"), 32),
        started_at=_parse_time(row.get("active_at")),
        ends_at=_parse_time(at(row, "auto_delete", "date_threshold")),  # missing in the list
        **fields_of_instance(_hardware(row)),
    )


def _hardware(row: Mapping[str, Any]) -> Hardware | None:
    """Return its hardware, as far as it is readable: an odd value must not hide an instance that is billed."""
    try:
        return hardware_of(row.get("configuration"))
    except RowSkipped:
        return None


def _label(row: Mapping[str, Any]) -> str | None:
    """Return the tag that gpuwatch gave it, which survives a rename; else its name."""
    tags = row.get("tags")
    texts = [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []
    return word(next((text for text in texts if text.startswith(LABEL_PREFIX)), row.get("name")))


def _place(row: Mapping[str, Any]) -> str | None:
    parts = [word(row.get(key), 40) for key in ("cloud", "shade_instance_type", "region")]
    return "/".join(filter(None, parts))[:ID_LENGTH] if all(parts) else None


def _parse_time(text: object) -> datetime | None:
    """Parse a time: before the instance runs, the answer has the year 1."""
    timestamp = parse_utc(text)
    return timestamp if timestamp is not None and timestamp.year >= _FIRST_YEAR else None
