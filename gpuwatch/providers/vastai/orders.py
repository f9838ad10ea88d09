"""The renting side: create, list, destroy, label, credit. What changes something is sent once, whatever happens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

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
from gpuwatch.net import NetError, NotSent, Reply
from gpuwatch.ports import Created, Instance, Order
from gpuwatch.providers._pace import Stopped
from gpuwatch.providers._untrusted import UNREADABLE
from gpuwatch.providers.vastai.asking import Account
from gpuwatch.providers.vastai.instances import parse_page
from gpuwatch.providers.vastai.refusals import ordering_error, refusal_of
from gpuwatch.providers.vastai.rows import PROVIDER

_PAGE_ROWS: Final = 25  # the most that a page holds
_PAGES_MAX: Final = 200
_PAGE_BYTES: Final = 8 * 2**20
_CREATE_DEADLINE_S: Final = 60.0  # a create may take several seconds, and giving up early costs more than waiting
_LABEL_LENGTH: Final = 60
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
# The wire's own words, spelled so. source: the vendor's client 1.9
_RUNTYPES: Final = {
    "ssh": "ssh_direc ssh_proxy",
    "ssh_direct": "ssh_direc ssh_proxy",
    "ssh_proxy": "ssh_proxy",
    "jupyter": "jupyter_direc ssh_direc ssh_proxy",
    "jupyter_direct": "jupyter_direc ssh_direc ssh_proxy",
    "jupyter_proxy": "jupyter_proxy ssh_proxy",
    "args": "args",
}
# Codes under which nothing was made, even if the status says 200.
_PLAIN_REFUSALS: Final = frozenset({
    "auth_error", "insufficient_credit", "invalid_args", "invalid_price", "missing_billing", "no_ssh_key_for_vm",
    "no_such_ask",
})  # fmt: skip


class VastLauncher:
    """vast.ai's renting side. It needs a key with `instance_read` and `instance_write`."""

    name = PROVIDER

    def __init__(self, account: Account) -> None:
        self._account = account

    def create(self, order: Order) -> Created:
        """Rent, once: on demand, or with the order's bid.

        Raises:
            OfferGone, OrderRefused, OrderRateLimited: nothing was made.
            OutcomeUnknown: it may have been made.
        """
        body = create_body(order)
        reply = self._change("create", "PUT", f"/api/v0/asks/{_path_id(order.offer_id)}/", body)
        return created(reply, self._account.tools.now())

    def list_instances(self) -> Sequence[Instance]:
        """Every instance of the account, all pages; a list that does not add up is no list.

        Raises:
            ProviderError: a page is missing or odd.
        """
        self._need_key()
        found: dict[str, Instance] = {}
        params: dict[str, str] = {"limit": str(_PAGE_ROWS)}
        tokens: set[str] = set()
        for _ in range(_PAGES_MAX):
            page, instances = parse_page(self._account.get("instances", "/api/v1/instances/", params, _PAGE_BYTES).body)
            found.update((instance.instance_id, instance) for instance in instances)
            if not page.next_token:
                return _whole(found, page.total_instances, page.label_counts)
            if page.next_token in tokens or not instances:
                break
            tokens.add(page.next_token)
            params["after_token"] = page.next_token
        raise PayloadChanged("vastai: the list of instances has no end: its pages repeat")

    def destroy(self, instance_id: str) -> None:
        """End an instance; one that is gone already is no error.

        Raises:
            OrderError: not done, or not known.
        """
        reply = self._change("destroy", "DELETE", f"/api/v0/instances/{_path_id(instance_id)}/", {})
        if reply.status == 404 and not refusal_of(reply).is_about_the_key:
            if refusal_of(reply).code in {"no_such_instance", "not_found"}:
                return
            raise OutcomeUnknown(f"vastai: {refusal_of(reply).told}", instance_id)
        self._need_success(reply)

    def label(self, instance_id: str, label: str) -> None:
        """Name an instance. Raises OrderError: not done, or not known."""
        path = f"/api/v0/instances/{_path_id(instance_id)}/"
        self._need_success(self._change("label", "PUT", path, {"label": label[:_LABEL_LENGTH]}))

    def credit_usd(self) -> float | None:
        """What the account can still spend. Of the answer only this number is kept: it holds the key, too.

        Raises:
            ProviderError: no usable answer.
        """
        self._need_key()
        return credit_of(self._account.get("user", "/api/v0/users/current/").body)

    def _need_key(self) -> None:
        if not self._account.has_key:
            raise KeyRejected("vastai: no key is set; renting and listing need one")

    def _change(self, kind: str, method: str, path: str, body: object) -> Reply:
        if not self._account.has_key:
            raise OrderRefused("vastai: no key is set; nothing was sent", RefusalKind.KEY)
        try:
            self._account.take_turn(kind, urgent=True)
            return self._account.send(method, path, body, _CREATE_DEADLINE_S)
        except Stopped as error:
            raise OrderRefused("vastai: nothing was sent, gpuwatch is stopping", RefusalKind.NOT_SENT) from error
        except NotSent as error:
            raise OrderRefused(f"vastai: nothing was sent: {error}", RefusalKind.NOT_SENT) from error
        except NetError as error:
            raise OutcomeUnknown(f"vastai: {error}") from error

    def _need_success(self, reply: Reply) -> None:
        refusal = refusal_of(reply)
        if reply.status == 200 and refusal.values.get("success") is True:
            return
        if reply.status == 200:
            raise OutcomeUnknown(f"vastai: {refusal.told}: an answer that is not understood")
        error = ordering_error(reply, self._account.tools.now())
        raise OrderRefused(str(error)) if isinstance(error, OfferGone) else error


class _User(msgspec.Struct):
    credit: float | None


def credit_of(body: bytes) -> float | None:
    """The spendable dollars of an account's answer. Raises PayloadChanged."""
    try:
        return msgspec.json.decode(body, type=_User).credit
    except UNREADABLE as error:
        raise PayloadChanged("vastai: the account's answer is not understood") from error


def create_body(order: Order) -> dict[str, Any]:
    """The create request. A bid is told from an on-demand rent by `price` alone: without it the full price is paid.

    Raises:
        OrderRefused: it cannot be put into a request.
    """
    if order.bid_usd_hour is not None and not 0.001 <= order.bid_usd_hour <= 128:
        raise OrderRefused(f"vastai: a bid of {order.bid_usd_hour} is outside 0.001 to 128", RefusalKind.BID_TOO_LOW)
    if len(order.label) > _LABEL_LENGTH:
        raise OrderRefused("vastai: the label is longer than 60 characters", RefusalKind.BAD_ORDER)
    body: dict[str, Any] = {
        "client_id": "me",
        "image": order.image,
        "disk": order.disk_gb,
        "label": order.label,
        "env": dict(order.env),
        "runtype": _RUNTYPES.get(order.runtype, order.runtype),
        "cancel_unavail": True,  # false is the default for bids: a lost one is then kept, stopped, and its disk billed
        "force": False,
    }
    optional = {"price": order.bid_usd_hour, "onstart": order.onstart, "template_hash_id": order.template}
    return body | {key: value for key, value in optional.items() if value is not None}


def created(reply: Reply, now: datetime) -> Created:
    """What a create's answer means.

    Raises:
        OrderError: by what is known of it.
    """
    if reply.status != 200:
        raise ordering_error(reply, now)
    refusal = refusal_of(reply)
    values = refusal.values
    contract, success = values.get("new_contract"), values.get("success")
    instance_id = None if isinstance(contract, bool) or not isinstance(contract, int | str) else str(contract)
    if instance_id is not None and not _ID.fullmatch(instance_id):
        instance_id = None
    if isinstance(success, bool) and instance_id is not None:
        return Created(instance_id=instance_id, starting=success)
    if success is False and contract is None and refusal.code in _PLAIN_REFUSALS:
        raise ordering_error(Reply(400, reply.headers, reply.body), now)
    raise OutcomeUnknown(f"vastai: {refusal.told}: an answer that is not understood", instance_id)


def _path_id(text: str) -> str:
    if not _ID.fullmatch(text):
        raise OrderRefused("vastai: that is no id of an offer or an instance", RefusalKind.BAD_ORDER)
    return text


def _whole(found: dict[str, Instance], total: int, labels: dict[str, int] | None) -> Sequence[Instance]:
    """All instances, if as many as the list itself says."""
    if len(found) < total or (labels and sum(labels.values()) > len(found)):
        raise ProviderError(f"vastai: {len(found)} instances listed of {total}: the list is not whole")
    return list(found.values())
