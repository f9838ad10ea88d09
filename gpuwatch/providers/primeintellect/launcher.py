"""The launcher of Prime Intellect: create with the vendor's own price guard (`maxPrice`), list, delete.

The machines belong to other sellers. A pod's row may contain `jupyterPassword`: gpuwatch never reads it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import ROUND_UP, Decimal
from typing import Any, Final

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.money import HOURS_A_MONTH
from gpuwatch.domain.market.offer import Offer, OfferKind
from gpuwatch.errors import (
    KeyRejected,
    OfferGone,
    OrderError,
    OrderRefused,
    OutcomeUnknown,
    PayloadChanged,
    ProviderError,
    RefusalKind,
)
from gpuwatch.ports import Created, Instance, InstanceState, Order
from gpuwatch.ports.http import HttpReply
from gpuwatch.ports.settings import Option
from gpuwatch.providers.primeintellect import INFO
from gpuwatch.providers.toolkit.api_client import ApiClient
from gpuwatch.providers.toolkit.api_launcher import ApiLauncher
from gpuwatch.providers.toolkit.basic_launcher import created_instance, decoded_order, id_and_status, refuse
from gpuwatch.providers.toolkit.error_mapping import ErrorBody, ordering_error, reading_error
from gpuwatch.providers.toolkit.instance_status import ReadStatus, StatusWords
from gpuwatch.providers.toolkit.validation import at, objects, usd_hour, whole, word

PROVIDER: Final = INFO.name
_PODS: Final = "/api/v1/pods/"  # as specified; FastAPI redirects other spellings, and no order follows a redirect
_PAGE_ROWS: Final = 100
_PAGES_MAX: Final = 50
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SSH: Final = re.compile(r"(?:ssh )?([A-Za-z0-9_-]{1,32})@([A-Za-z0-9.:-]{1,100})(?: -p (\d{1,5}))?")
_NO_STOCK: Final = ("no capacity", "out of stock", "not available", "unavailable", "insufficient capacity")
# source: the vendor's OpenAPI specification (status and installationStatus of a pod), read 2026-11
STATUS_WORDS: Final = StatusWords({
    **dict.fromkeys(("PROVISIONING", "PENDING"), InstanceState.STARTING),
    "ACTIVE": InstanceState.RUNNING,
    "STOPPED": InstanceState.STOPPED,
    "ERROR": InstanceState.FAILED,
    "DELETING": InstanceState.ENDING,
    "TERMINATED": InstanceState.ENDED,
    "UNKNOWN": InstanceState.UNKNOWN,
})  # fmt: skip
INSTALLATION_WORDS: Final = StatusWords({
    **dict.fromkeys(("PENDING", "ACTIVE"), InstanceState.STARTING),
    "FINISHED": InstanceState.RUNNING,
    **dict.fromkeys(("ERROR", "TERMINATED"), InstanceState.FAILED),
}, "installationStatus")  # fmt: skip
Listing = Callable[[], Mapping[str, tuple[Mapping[str, Any], Offer]]]  # offer id → its row and the parsed offer


class UnknownPrimePod(ProviderError):
    """A 404 about a pod. It is not documented as "gone": the history of pods decides."""


class PrimePodGone(OfferGone):
    """Like `UnknownPrimePod`, for a request that changes something."""


class PrimeLauncher(ApiLauncher):
    """Rents at Prime Intellect.

    Args:
        list_rows: the offers of the last search, or `fetch_rows` ones.
    """

    name, instance_id, instance_path = PROVIDER, _ID, f"{_PODS}{{}}"

    def __init__(
        self, account: ApiClient, options: Mapping[str, Option], list_rows: Listing, fetch_rows: Listing
    ) -> None:
        super().__init__(account, options)
        self._list_rows, self._fetch_rows = list_rows, fetch_rows

    def create(self, order: Order) -> Created:
        """Rent once, at most at the price of the search: the vendor refuses a higher one.

        Raises OrderError.
        """
        check_order(order)
        self._account.require_key_to_order()
        body = create_body(order, *self._row_of(order.offer_id), self._options)
        reply = self.send_create(_PODS, body)
        return created_instance(at(decoded_order(reply, PROVIDER), "id"), _ID, PROVIDER)

    def check_order(self, order: Order) -> None:
        """Build the request. Raises OrderRefused."""
        check_order(order)

    def list_instances(self) -> Sequence[Instance]:
        """Return every pod of the account that has not ended, from all pages. Raises ProviderError."""
        self._account.require_key()
        return [instance_of(row) for row in self._pages(_PODS) if not STATUS_WORDS.is_ended(row.get("status"))]

    def get(self, instance_id: str) -> Instance | None:
        """Return one pod; None: terminated, by its own row or by the history of pods. Raises ProviderError."""
        try:
            return super().get(instance_id)
        except UnknownPrimePod:
            if self._has_ended(instance_id):
                return None
            raise

    def parse_instance(self, row: Mapping[str, Any]) -> Instance:
        """Return the instance, ended or not."""
        return instance_of(row)

    def end(self, instance_id: str) -> None:
        """Delete it. Raises OrderError: not done, or outcome unknown."""
        try:
            super().end(instance_id)
        except PrimePodGone as error:
            try:
                if self._has_ended(instance_id):
                    return
            except ProviderError:
                pass
            raise OutcomeUnknown(str(error), instance_id) from error

    def _row_of(self, offer_id: str) -> tuple[Mapping[str, Any], Offer]:
        """Return the row of an offer from the last search, or a fresh one if it was not in it. Raises OrderError."""
        found = self._list_rows().get(offer_id)
        if found is None:
            try:
                found = self._fetch_rows().get(offer_id)
            except KeyRejected as error:
                raise OrderRefused(str(error), RefusalKind.KEY) from error
            except ProviderError as error:
                raise OrderRefused(f"{PROVIDER}: not sent: {error}", RefusalKind.NOT_SENT) from error
        if found is None:
            raise OfferGone(f"{PROVIDER}: the offer is no longer listed")
        return found

    def _has_ended(self, instance_id: str) -> bool:
        """Whether the history of pods shows its end: a time, or the status; a row may lack either."""
        row = next((row for row in self._pages(f"{_PODS}history") if row.get("id") == instance_id), {})
        return bool(row.get("terminatedAt")) or STATUS_WORDS.is_ended(row.get("status"))

    def _pages(self, path: str) -> Iterator[Mapping[str, Any]]:
        """Yield all rows of a list, fetching pages on demand. Raises ProviderError."""
        received = 0
        for _ in range(_PAGES_MAX):
            rows, total = self._page(path, received)
            yield from rows
            received += len(rows)
            if received >= total:
                return
            if not rows:
                break
        raise PayloadChanged(f"{PROVIDER}: the list of pods is incomplete: it ends after {received}")

    def _page(self, path: str, offset: int) -> tuple[list[Mapping[str, Any]], int]:
        value = self._account.get(path, {"offset": str(offset), "limit": str(_PAGE_ROWS)}, kind="instances")
        rows, total = at(value, "data"), whole(at(value, "total_count"))
        if not isinstance(rows, list) or total is None or len(objects(rows)) != len(rows):
            raise PayloadChanged(f"{PROVIDER}: the answer is not a list of pods")
        return objects(rows), total


def check_order(order: Order) -> None:
    """Refuse what Prime Intellect does not support. Raises OrderRefused: BAD_ORDER."""
    unsupported = {
        "spot orders: its API has no field for them": order.bid_usd_hour is not None,
        "start commands": order.onstart is not None,
        "private registries": order.registry is not None,
        "volumes": order.volume is not None,
        "ports": bool(order.ports),
        "self_destruct": order.self_destruct_at is not None,
        f'runtype = "{order.runtype}" (pods are reached by ssh)': order.runtype not in ("", "ssh", "ssh_direct"),
    }
    refuse(
        PROVIDER,
        {f"Prime Intellect does not support {what}": is_requested for what, is_requested in unsupported.items()},
    )


def create_body(order: Order, row: Mapping[str, Any], offer: Offer, options: Mapping[str, Option]) -> dict[str, Any]:
    """Build the create request. `maxPrice` is the price of the search, with the disk, for the whole pod.

    Raises:
        OrderRefused: BAD_ORDER, gpuwatch cannot rent the offer.
    """
    disk_gb, max_gb = _disk_gb(order, offer), offer.disk_free_gb
    refuse(
        PROVIDER,
        {
            "the offer is spot, which the API cannot order": offer.spot,
            "it charges hours in advance": offer.terms.prepaid,
            "its price is in another currency, which the price guard may not support": offer.terms.currency != "USD",
            "its price does not prove stock": offer.kind is not OfferKind.LIVE,
            "the disk is larger than the offer's": disk_gb is not None and max_gb is not None and disk_gb > max_gb,
        },
    )
    pod = {
        "name": order.label,
        "cloudId": row.get("cloudId"),
        "gpuType": row.get("gpuType"),
        "socket": row.get("socket"),
        "gpuCount": row.get("gpuCount"),
        "diskSize": disk_gb,
        "vcpus": whole(at(row, "vcpu", "defaultCount"), 1),
        "memory": whole(at(row, "memory", "defaultCount"), 1),
        "maxPrice": max_price(offer, disk_gb),
        "image": "custom_template" if order.template else options.get("image"),
        "customTemplateId": order.template,
        "dataCenterId": row.get("dataCenter"),
        "country": row.get("country"),
        "security": row.get("security"),
        "sshKeyId": options.get("ssh_key"),
        "envVars": [{"key": key, "value": value} for key, value in order.env.items()] or None,
        "autoRestart": False,
    }
    return {
        "pod": {key: value for key, value in pod.items() if value is not None},
        "provider": {"type": row.get("provider")},
    }


def max_price(offer: Offer, disk_gb: int | None) -> float:
    """Return the maximum hourly charge: the price of the search, with the ordered disk; USD."""
    extra_gb = 0.0 if disk_gb is None else disk_gb - offer.quoted_disk_gb
    price = offer.quoted_usd_hour + max(extra_gb, 0.0) * (offer.disk_usd_gb_month or 0.0) / HOURS_A_MONTH
    return float(Decimal(repr(price)).quantize(Decimal("0.0001"), ROUND_UP))


def _disk_gb(order: Order, offer: Offer) -> int | None:
    """Return the disk to order; None: the pod's included disk, which has no price of its own."""
    return math.ceil(max(order.disk_gb, offer.quoted_disk_gb)) if offer.disk_usd_gb_month else None


def list_error(name: str, body: ErrorBody, reply: HttpReply, now: datetime) -> ProviderError:
    """Map the error of a request that only reads."""
    if reply.status == 404 and isinstance(body.value, dict):
        return UnknownPrimePod(f"{name}: {body.summary}")
    return reading_error(name, body, reply, now)


def create_error(name: str, body: ErrorBody, reply: HttpReply, now: datetime) -> OrderError:
    """Map the error of an order; SkyPilot's experience shows which words mean no stock."""
    line = f"{name}: {body.summary}"
    if reply.status == 404 and isinstance(body.value, dict):
        return PrimePodGone(line)
    if 400 <= reply.status < 500 and reply.status not in (401, 402, 403, 408, 429) and body.has(*_NO_STOCK):
        return OfferGone(line)
    return ordering_error(name, body, reply, now)


def instance_of(row: Mapping[str, Any]) -> Instance:
    """Parse one pod of the list. Raises PayloadChanged: it has no id or status."""
    instance_id, status = id_and_status(row, PROVIDER)
    installation = word(row.get("installationStatus"), 30)
    state, unknown_status = STATUS_WORDS.read(status)
    installed = INSTALLATION_WORDS.read(installation) if installation else ReadStatus(InstanceState.RUNNING)
    if state is InstanceState.RUNNING and installed.state is not InstanceState.RUNNING:
        state = InstanceState.STARTING
    if installed.state is InstanceState.FAILED and state is not InstanceState.ENDED:
        state = InstanceState.FAILED
    wire = word(row.get("gpuName"), 80)
    gpu = None if wire is None else catalog().resolve(wire, None, word(row.get("socket"), 20))
    user, host, port = _ssh(row.get("sshConnection"))
    return Instance(
        instance_id=instance_id,
        label=word(row.get("name")),
        state=state,
        status=status if installation is None else f"{status}: {installation}",
        unknown_status=unknown_status or installed.unknown,
        gpu=gpu.name if gpu is not None and gpu.certain else None,
        gpu_wire=wire,
        gpu_count=whole(row.get("gpuCount"), 1, 1000),
        spot=row.get("isSpot") is True,
        listed_usd_hour=usd_hour(row.get("priceHr")),
        stopped_usd_hour=usd_hour(row.get("stoppedPriceHr")),
        ssh_host=host,
        ssh_port=port,
        ssh_user=user,
    )


def _ssh(value: object) -> tuple[str | None, str | None, int | None]:
    """Return user, host and port of "root@1.2.3.4 -p 22", alone or first in a list; all None before there is one."""
    text = next((one for one in value if isinstance(one, str)), None) if isinstance(value, list) else value
    found = _SSH.fullmatch(text.strip()) if isinstance(text, str) else None
    return (None, None, None) if found is None else (found[1], found[2], whole(found[3] or "22", 1, 65_535))
