"""What launchers share: a base for a provider that only rents, checks of an order, and readers of its answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from gpuwatch.errors import OrderRefused, OutcomeUnknown, PayloadChanged, RefusalKind, RefusalScope
from gpuwatch.ports import Created, Order, PriceIncrease, ProviderCharge
from gpuwatch.ports.http import HttpReply
from gpuwatch.ports.settings import Option
from gpuwatch.providers.toolkit.validation import at, decoded, objects, require_whole_list, word


class BasicLauncher:
    """The base of a launcher whose provider rents on demand at a fixed price, and reports nothing but instances.

    A subclass adds `create`, `list_instances` and `destroy`.
    """

    name = ""

    def credit_usd(self) -> float | None:
        """None: the provider does not report it."""
        return None

    def change_bid(self, instance_id: str, bid_usd_hour: float) -> None:
        """The provider takes no bids. Raises OrderRefused."""
        raise OrderRefused(f"{self.name}: this provider takes no bids", RefusalKind.BAD_ORDER)

    def price_increases(self) -> Sequence[PriceIncrease]:
        """Empty: a running contract keeps its price."""
        return ()

    def answer_increase(self, increase_id: str, accept: bool) -> None:
        """There is no increase to answer. Raises OrderRefused."""
        raise OrderRefused(f"{self.name}: this provider proposes no price increases", RefusalKind.BAD_ORDER)

    def charges(self, since: date, until: date) -> Sequence[ProviderCharge] | None:
        """None: the provider does not report them."""
        return None


def not_sent(name: str, why: str, scope: RefusalScope | None = None, lasts_s: float | None = None) -> OrderRefused:
    """The error of an order that is not sent because it would be refused or misunderstood.

    Args:
        scope: what it is about; None: the watch's orders at this provider.
        lasts_s: how long, in seconds; None: as is usual for the scope.
    """
    return OrderRefused(f"{name}: nothing was sent: {why}", RefusalKind.BAD_ORDER, scope, lasts_s)


def offer_parts(order: Order, form: re.Pattern[str], name: str) -> re.Match[str]:
    """The parts of the offer's id. Raises OrderRefused: it is none of this provider."""
    found = form.fullmatch(order.offer_id)
    if found is None:
        raise not_sent(name, "that is no id of an offer")
    return found


def needed_ssh_key(options: Mapping[str, Option], name: str, what: str, example: str) -> Option:
    """The option `ssh_key`. Raises OrderRefused: it is not set.

    Args:
        what: that the provider wants: "an SSH key".
        example: of the option's value: "NAME", "ID".
    """
    if not options.get("ssh_key"):
        raise not_sent(name, f'{what} is needed: add ssh_key = "{example}" to [providers.{name}.options]')
    return options["ssh_key"]


def refuse(name: str, reasons: Mapping[str, object]) -> None:
    """Refuse an order before it is sent.

    Args:
        reasons: why → whether that is so.

    Raises:
        OrderRefused: BAD_ORDER, with the first reason that holds.
    """
    for why, is_so in reasons.items():
        if is_so:
            raise not_sent(name, why)


def refuse_beyond_machine(  # noqa: PLR0913 each is named
    order: Order,
    name: str,
    title: str,
    wrong: Mapping[str, object] | None = None,
    *,
    label_length: int,
    ports: str = "a machine has its own address, with all of them",
    takes_bids: bool = False,
    ends_itself: bool = False,
) -> None:
    """Refuse what a provider of plain machines, reached by SSH and billed until they are deleted, does not have.

    Args:
        title: the provider's name for people.
        wrong: what else is refused: why → whether that is so.
        ports: why none is opened.
        ends_itself: a machine that is shut down is no longer billed, but for its disk.

    Raises:
        OrderRefused: BAD_ORDER, with the first reason that holds.
    """
    lacking = {
        "bids": order.bid_usd_hour is not None and not takes_bids,
        "templates": order.template is not None,
        "private registries": order.registry is not None,
        "volumes from here": order.volume is not None,
        f"ports ({ports})": bool(order.ports),
        "self_destruct (a machine that is shut down is billed all the same)": order.self_destruct_at is not None
        and not ends_itself,
        f'runtype = "{order.runtype}" (machines are reached by ssh)': order.runtype not in ("", "ssh", "ssh_direct"),
    }
    reasons: dict[str, object] = {f"{title} knows no {what}": is_wanted for what, is_wanted in lacking.items()}
    reasons[f"the label has not 1 to {label_length} characters"] = not 1 <= len(order.label) <= label_length
    refuse(name, reasons | dict(wrong or {}))


def decoded_order(reply: HttpReply, name: str, instance_id: str | None = None) -> Any:
    """The JSON of a 2xx answer to an order. Raises OutcomeUnknown: it may have been carried out."""
    try:
        return decoded(reply.body, name)
    except PayloadChanged as error:
        raise OutcomeUnknown(str(error), instance_id) from error


def created_instance(instance_id: object, form: re.Pattern[str], name: str) -> Created:
    """The receipt of a create by the id that its answer names. Raises OutcomeUnknown: it names none."""
    if not isinstance(instance_id, str) or not form.fullmatch(instance_id):
        raise OutcomeUnknown(f"{name}: the answer to a create names no instance: it may have been made")
    return Created(instance_id=instance_id)


def instance_rows(around: object, rows: object, name: str) -> list[Mapping[str, Any]]:
    """The rows of a list of instances that has no pages. A row left out might be one that gpuwatch pays for.

    Args:
        around: the object with the list.

    Raises:
        PayloadChanged: it is not a list of objects, or only a part of it.
    """
    if not isinstance(rows, list) or len(objects(rows)) != len(rows):
        raise PayloadChanged(f"{name}: the answer is not a list of instances")
    require_whole_list(around, len(rows), name)
    return objects(rows)


def one_instance(row: object, instance_id: str, name: str) -> Mapping[str, Any]:
    """The row of the answer about one instance. Raises PayloadChanged: it is not about this one."""
    if not isinstance(row, dict):
        raise PayloadChanged(f"{name}: the answer about an instance has another form")
    if id_and_status(row, name)[0] != instance_id:
        raise PayloadChanged(f"{name}: asked for instance {instance_id}, it answered about another")
    return row


def id_and_status(row: Mapping[str, Any], name: str) -> tuple[str, str]:
    """What every row of such a list has. Raises PayloadChanged."""
    instance_id, status = word(at(row, "id"), 64), word(at(row, "status"), 60)
    if instance_id is None or status is None:
        raise PayloadChanged(f"{name}: an instance without id or status")
    return instance_id, status
