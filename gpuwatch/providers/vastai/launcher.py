"""The launcher of vast.ai. Requests that change something are sent once, whatever happens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Annotated, Final

import msgspec

from gpuwatch.errors import (
    KeyRejected,
    OfferGone,
    OrderRefused,
    OutcomeUnknown,
    PayloadChanged,
    ProviderError,
    RefusalKind,
)
from gpuwatch.ports import Created, Instance, InstanceState, Order, PriceIncrease, ProviderCharge
from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.toolkit.validation import UNREADABLE
from gpuwatch.providers.vastai.charges import (
    ChargeItem,
    charges_of,
    charges_page,
    charges_params,
    increase_rows,
    increases_of,
)
from gpuwatch.providers.vastai.client import VastClient, ordering_error, read_error_body
from gpuwatch.providers.vastai.create import ID, LABEL_LENGTH, check_bid, create_body, parse_created
from gpuwatch.providers.vastai.instances import parse_instance, parse_page
from gpuwatch.providers.vastai.rows import PROVIDER

_PAGE_ROWS: Final = 25  # the maximum page size
_PAGES_MAX: Final = 200
_PAGE_BYTES: Final = 8 * 2**20
_CREATE_DEADLINE_S: Final = 60.0  # a create may take several seconds, and giving up early costs more than waiting


class VastLauncher:
    """Rents at vast.ai. Its key needs `instance_read`, `instance_write`, `user_read` and `billing_read`."""

    name = PROVIDER

    def __init__(self, client: VastClient) -> None:
        self._client = client

    def create(self, order: Order) -> Created:
        """Rent once: on demand, or with the order's bid. Raises OrderError."""
        body = create_body(order, self._client.tools.now())
        reply = self._change("create", "PUT", f"/api/v0/asks/{_require_id(order.offer_id)}/", body)
        return parse_created(reply, self._client.tools.now())

    def check_order(self, order: Order) -> None:
        """Build the request. Raises OrderRefused."""
        create_body(order, self._client.tools.now())

    def list_instances(self) -> Sequence[Instance]:
        """Return every instance of the account, from all pages; rejects a list whose numbers do not add up.

        Raises:
            ProviderError: a page is missing or malformed.
        """
        self._client.require_key()
        instances_by_id: dict[str, Instance] = {}
        params: dict[str, str] = {"limit": str(_PAGE_ROWS)}
        tokens: set[str] = set()
        for _ in range(_PAGES_MAX):
            page, instances = parse_page(self._page("instances", "/api/v1/instances/", params))
            instances_by_id.update((instance.instance_id, instance) for instance in instances)
            if not page.next_token:
                return _require_complete(instances_by_id, page.total_instances, page.label_counts)
            if page.next_token in tokens or not instances:
                break
            tokens.add(page.next_token)
            params["after_token"] = page.next_token
        raise PayloadChanged("vastai: the instance list does not end: its pages repeat")

    def get(self, instance_id: str) -> Instance | None:
        """Return one instance; None: the marketplace states that it is gone.

        Raises:
            ProviderError: no usable answer, or one about another instance.
        """
        if not ID.fullmatch(instance_id):
            raise PayloadChanged("vastai: invalid instance id")
        self._client.require_key()
        path = f"/api/v0/instances/{instance_id}/"
        found = parse_instance(self._client.request("GET", path, kind="instance", max_bytes=_PAGE_BYTES).body)
        if found is not None and found.instance_id != instance_id:
            raise PayloadChanged(f"vastai: asked for instance {instance_id}, but got {found.instance_id}")
        return found

    def destroy(self, instance_id: str) -> None:
        """End an instance, unless it is already gone. Raises OrderError: not done, or outcome unknown."""
        reply = self._change("destroy", "DELETE", f"/api/v0/instances/{_require_id(instance_id)}/", {})
        if reply.status == 404 and not read_error_body(reply).is_key_error:
            if read_error_body(reply).code in {"no_such_instance", "not_found"}:
                return
            raise OutcomeUnknown(f"vastai: {read_error_body(reply).summary}", instance_id)
        self._require_success(reply)

    def stop_instance(self, instance_id: str) -> None:
        """Stop an instance and keep its disk, or take back a start that waits. Raises OrderError."""
        self._require_success(self._set_state(instance_id, "stopped"))

    def start_instance(self, instance_id: str) -> bool:
        """Start a stopped instance; False: its GPUs are taken, and the start waits for them. Raises OrderError."""
        reply = self._set_state(instance_id, "running")
        if reply.status == 200 and read_error_body(reply).code == "resources_unavailable":
            return False
        self._require_success(reply)
        return True

    def _set_state(self, instance_id: str, state: str) -> HttpReply:
        path = f"/api/v0/instances/{_require_id(instance_id)}/"
        return self._change("state", "PUT", path, {"state": state})

    def label(self, instance_id: str, label: str) -> None:
        """Label an instance. Raises OrderError: not done, or outcome unknown."""
        path = f"/api/v0/instances/{_require_id(instance_id)}/"
        self._require_success(self._change("label", "PUT", path, {"label": label[:LABEL_LENGTH]}))

    def credit_usd(self) -> float | None:
        """Return what the account can still spend. Reads only this number: the answer also contains the key.

        Raises:
            ProviderError: no usable answer.
        """
        self._client.require_key()
        return parse_credit(self._client.request("GET", "/api/v0/users/current/", kind="user").body)

    def account_id(self) -> str | None:
        """Return the account's number; None: this key may list instances, but cannot read that (it lacks `user_read`).

        An answer without an account (a 404, another format) will have none tomorrow either: the key itself then
        identifies the account, and another key never counts as the same account.

        Raises:
            ProviderError: no usable answer; KeyRejected: the key is invalid.
        """
        self._client.require_key()
        try:
            return parse_account(self._client.request("GET", "/api/v0/users/current/", kind="user").body)
        except (KeyRejected, PayloadChanged):
            self.list_instances()
            return None

    def change_bid(self, instance_id: str, bid_usd_hour: float) -> None:
        """Change the bid for the whole of a spot instance, excluding its disk.

        Raises:
            OrderRefused: BID_TOO_LOW outside 0.001 to 128 $/h; BAD_ORDER if rented on demand; OTHER if it is gone.
            OrderError: not done, or outcome unknown.
        """
        check_bid(bid_usd_hour)
        path = f"/api/v0/instances/bid_price/{_require_id(instance_id)}/"
        self._require_success(self._change("bid", "PUT", path, {"client_id": "me", "price": bid_usd_hour}))

    def price_increases(self) -> Sequence[PriceIncrease]:
        """Return the proposals of hosts. If there are any, lists the instances too: a proposal has no GPU count.

        Raises:
            ProviderError: no usable answer.
        """
        self._client.require_key()
        rows = increase_rows(
            self._client.request("GET", "/api/v0/instances/pending-price-increases/", kind="increases").body
        )
        return increases_of(rows, self.list_instances()) if rows else []

    def answer_increase(self, increase_id: str, accept: bool) -> None:
        """Accept or reject a proposal: a rejected contract keeps its price, but is not extended beyond its end.

        Raises:
            OrderRefused: it is no longer open, or does not exist.
            OrderError: not done, or outcome unknown.
        """
        if not (increase_id.isascii() and increase_id.isdigit()):
            raise OrderRefused("vastai: invalid price increase id", RefusalKind.BAD_ORDER)
        action = "accept" if accept else "reject"
        body = {"pending_price_increase_id": int(increase_id)}  # any other field name is refused
        self._require_success(self._change(action, "PUT", f"/api/v0/instances/{action}-price-increase/", body))

    def charges(self, since: date, until: date) -> Sequence[ProviderCharge]:
        """Return the charges of these days (UTC), both inclusive; a day costs one request per 500 instances.

        Raises:
            ProviderError: a page is missing or malformed.
        """
        self._client.require_key()
        now = self._client.tools.now()
        charges: list[ProviderCharge] = []
        for number in range((until - since).days + 1):
            day = since + timedelta(days=number)
            charges += charges_of(list(self._charge_items(day)), day, day, now)
        return charges

    def _charge_items(self, day: date) -> Iterator[ChargeItem]:
        params, tokens, rows = charges_params(day), set[str](), 0
        for _ in range(_PAGES_MAX):
            page = charges_page(self._page("charges", "/api/v0/charges/", params))
            yield from page.results
            rows += len(page.results)
            if not page.next_token:
                if rows < (page.total or 0):
                    raise ProviderError(f"vastai: {rows} charges listed of {page.total}: the list is incomplete")
                return
            if page.next_token in tokens or not page.results:
                break
            tokens.add(page.next_token)
            params["after_token"] = page.next_token
        raise PayloadChanged("vastai: the list of charges does not end: its pages repeat")

    def _page(self, kind: str, path: str, params: Mapping[str, str]) -> bytes:
        return self._client.request("GET", path, kind=kind, params=params, max_bytes=_PAGE_BYTES).body

    def _change(self, kind: str, method: str, path: str, body: object) -> HttpReply:
        """Return the answer of any status to a request that changes something. Raises OrderRefused, OutcomeUnknown."""
        self._client.require_key_to_order()
        return self._client.send(method, path, body, kind=kind, deadline_s=_CREATE_DEADLINE_S)

    def _require_success(self, reply: HttpReply) -> None:
        refusal = read_error_body(reply)
        if reply.status == 200 and refusal.value.get("success") is True:
            return
        if reply.status == 200:
            raise OutcomeUnknown(f"vastai: {refusal.summary}: an unexpected answer")
        error = ordering_error(reply, self._client.tools.now())
        raise OrderRefused(str(error)) if isinstance(error, OfferGone) else error


class _User(msgspec.Struct):
    credit: float | None


class _Account(msgspec.Struct):
    id: Annotated[int, msgspec.Meta(ge=0)] | Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]


def parse_credit(body: bytes) -> float | None:
    """Return the spendable dollars of an account answer. Raises PayloadChanged."""
    try:
        return msgspec.json.decode(body, type=_User).credit
    except UNREADABLE as error:
        raise PayloadChanged("vastai: the account answer has an unexpected format") from error


def parse_account(body: bytes) -> str:
    """Return the number of an account. Raises PayloadChanged."""
    try:
        return str(msgspec.json.decode(body, type=_Account).id)
    except UNREADABLE as error:
        raise PayloadChanged("vastai: the account answer has an unexpected format") from error


def _require_id(text: str) -> str:
    if not ID.fullmatch(text):
        raise OrderRefused("vastai: invalid offer or instance id", RefusalKind.BAD_ORDER)
    return text


def _require_complete(instances: dict[str, Instance], total: int, labels: dict[str, int] | None) -> Sequence[Instance]:
    """Return all instances, if there are as many as the list itself states."""
    if len(instances) < total or (labels and sum(labels.values()) > len(instances)):
        raise ProviderError(f"vastai: {len(instances)} instances listed of {total}: the list is incomplete")
    return [one for one in instances.values() if one.state is not InstanceState.ENDED]
