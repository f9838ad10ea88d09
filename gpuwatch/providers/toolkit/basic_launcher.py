"""What launchers share: a base class for a provider that only rents, checks of an order, and parsers of its answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date
from typing import Any

from gpuwatch.domain.launches.instance import LABEL_PREFIX
from gpuwatch.errors import OrderRefused, OutcomeUnknown, PayloadChanged, ProviderError, RefusalKind, RefusalScope
from gpuwatch.ports import Created, InstanceLookup, InstanceState, Order, PriceIncrease, ProviderCharge
from gpuwatch.ports.http import HttpReply
from gpuwatch.ports.prerequisites import Prerequisite, PrerequisiteName
from gpuwatch.ports.settings import Option
from gpuwatch.providers.toolkit.instance_status import StatusWords
from gpuwatch.providers.toolkit.validation import at, decode_json, objects, require_complete_list, word

_NOT_IN_HOST_NAMES = re.compile(r"[^a-z0-9-]+")
_SHOWN = 40  # characters of a key's name


class BasicLauncher:
    """The base of a launcher whose provider rents on demand at a fixed price, and reports only instances.

    A subclass adds `create`, `list_instances` and `destroy`.
    """

    name = ""

    def credit_usd(self) -> float | None:
        """None: the provider does not report it."""
        return None

    def change_bid(self, instance_id: str, bid_usd_hour: float) -> None:
        """The provider does not support bids. Raises OrderRefused."""
        raise OrderRefused(f"{self.name}: this provider does not support bids", RefusalKind.BAD_ORDER)

    def price_increases(self) -> Sequence[PriceIncrease]:
        """Empty: a running contract keeps its price."""
        return ()

    def answer_increase(self, increase_id: str, accept: bool) -> None:
        """The provider proposes no increases. Raises OrderRefused."""
        raise OrderRefused(f"{self.name}: this provider does not propose price increases", RefusalKind.BAD_ORDER)

    def charges(self, since: date, until: date) -> Sequence[ProviderCharge] | None:
        """None: the provider does not report them."""
        return None


def not_sent(name: str, reason: str, scope: RefusalScope | None = None, lasts_s: float | None = None) -> OrderRefused:
    """Return the error of an order that is not sent because it would be refused or misunderstood.

    Args:
        scope: what it applies to; None: the watch's orders at this provider.
        lasts_s: how long, in seconds; None: the default of the scope.
    """
    return OrderRefused(f"{name}: nothing was sent: {reason}", RefusalKind.BAD_ORDER, scope, lasts_s)


def match_offer_id(order: Order, pattern: re.Pattern[str], name: str) -> re.Match[str]:
    """Return the parts of an offer id. Raises OrderRefused: it is not an id of this provider."""
    match = pattern.fullmatch(order.offer_id)
    if match is None:
        raise not_sent(name, "invalid offer id")
    return match


def require_ssh_key(options: Mapping[str, Option], name: str, what: str, example: str) -> Option:
    """Return the option `ssh_key`. Raises OrderRefused: it is not set.

    Args:
        what: what the provider requires: "an SSH key".
        example: an example value of the option: "NAME", "ID".
    """
    if not options.get("ssh_key"):
        raise not_sent(name, f'{what} is required: add ssh_key = "{example}" to [providers.{name}.options]')
    return options["ssh_key"]


def refuse(name: str, reasons: Mapping[str, object]) -> None:
    """Refuse an order before it is sent.

    Args:
        reasons: reason → whether it applies.

    Raises:
        OrderRefused: BAD_ORDER, with the first reason that applies.
    """
    for reason, applies in reasons.items():
        if applies:
            raise not_sent(name, reason)


def refuse_beyond_machine(  # noqa: PLR0913 each is named
    order: Order,
    name: str,
    title: str,
    extra_reasons: Mapping[str, object] | None = None,
    *,
    label_length: int,
    ports: str = "a machine has its own address, with all ports",
    takes_bids: bool = False,
    takes_templates: bool = False,
    ends_itself: bool = False,
) -> None:
    """Refuse what plain machines, reached by SSH and billed until they are deleted, do not support.

    Args:
        title: the provider's name for people.
        extra_reasons: further reasons to refuse: reason → whether it applies.
        ports: why no ports are opened.
        ends_itself: a machine that is shut down is no longer billed, except for its disk.

    Raises:
        OrderRefused: BAD_ORDER, with the first reason that applies.
    """
    unsupported = {
        "bids": order.bid_usd_hour is not None and not takes_bids,
        "templates": order.template is not None and not takes_templates,
        "private registries": order.registry is not None,
        "volumes": order.volume is not None,
        f"ports ({ports})": bool(order.ports),
        "self_destruct (a machine that is shut down is still billed)": order.self_destruct_at is not None
        and not ends_itself,
        f'runtype = "{order.runtype}" (machines are reached by ssh)': order.runtype not in ("", "ssh", "ssh_direct"),
    }
    reasons: dict[str, object] = {
        f"{title} does not support {what}": is_requested for what, is_requested in unsupported.items()
    }
    reasons[f"the label must have 1 to {label_length} characters"] = not 1 <= len(order.label) <= label_length
    refuse(name, reasons | dict(extra_reasons or {}))


def decoded_order(reply: HttpReply, name: str, instance_id: str | None = None) -> Any:
    """Return the JSON of a 2xx answer to an order. Raises OutcomeUnknown: it may have been carried out."""
    try:
        return decode_json(reply.body, name)
    except PayloadChanged as error:
        raise OutcomeUnknown(str(error), instance_id) from error


def created_instance(instance_id: object, pattern: re.Pattern[str], name: str) -> Created:
    """Return the receipt of a create from the id in its answer. Raises OutcomeUnknown: there is no id."""
    if not isinstance(instance_id, str) or not pattern.fullmatch(instance_id):
        raise OutcomeUnknown(f"{name}: the answer to a create names no instance; it may have been created")
    return Created(instance_id=instance_id)


def instance_rows(container: object, rows: object, name: str) -> list[Mapping[str, Any]]:
    """Return the rows of an unpaged list of instances. A missing row might be an instance that costs money.

    Args:
        container: the object that contains the list.

    Raises:
        PayloadChanged: it is not a list of objects, or incomplete.
    """
    if not isinstance(rows, list) or len(objects(rows)) != len(rows):
        raise PayloadChanged(f"{name}: the answer is not a list of instances")
    require_complete_list(container, len(rows), name)
    return objects(rows)


def one_instance(row: object, instance_id: str, name: str) -> Mapping[str, Any]:
    """Return the row of an answer about one instance. Raises PayloadChanged: it is about another one."""
    if not isinstance(row, dict):
        raise PayloadChanged(f"{name}: the instance answer has an unexpected format")
    if id_and_status(row, name)[0] != instance_id:
        raise PayloadChanged(f"{name}: asked for instance {instance_id}, but got another one")
    return row


def is_in_state(launcher: InstanceLookup, instance_id: str, wanted: Collection[InstanceState]) -> bool:
    """Return whether an instance already is as a refused stop or start wants it; False: it is not, or no answer."""
    try:
        found = launcher.get(instance_id)
    except ProviderError:
        return False
    return found is not None and found.state in wanted


def id_and_status(row: Mapping[str, Any], name: str) -> tuple[str, str]:
    """Return the id and the status of a row. Raises PayloadChanged."""
    instance_id, status = word(at(row, "id"), 64), word(at(row, "status"), 60)
    if instance_id is None or status is None:
        raise PayloadChanged(f"{name}: an instance has no id or no status")
    return instance_id, status


def machine_fields(
    row: Mapping[str, Any],
    words: StatusWords,
    name: str,
    *,
    ip: str | None,
    user: str | None,
    waits_for_ip: bool = False,
) -> dict[str, Any]:
    """Return what machines reached by SSH at port 22 have in common, as fields of `Instance`.

    Args:
        waits_for_ip: a running machine without an address is still starting.

    Raises:
        PayloadChanged: the row has no id or no status: it might be gpuwatch's.
    """
    instance_id, status = id_and_status(row, name)
    state, unknown_status = words.read(status)
    if waits_for_ip and state is InstanceState.RUNNING and not ip:
        state = InstanceState.STARTING
    return {
        "instance_id": instance_id,
        "status": status,
        "state": state,
        "unknown_status": unknown_status,
        "ssh_host": ip,
        "ssh_port": 22 if ip else None,
        "ssh_user": user,
    }


def label_among(tags: Iterable[object], name: object) -> str | None:
    """Return gpuwatch's label from the tags, which survive a rename, or from the name; else the name, or a tag."""
    texts, shown = [text for text in map(word, tags) if text is not None], word(name)
    own = next((one for one in (*texts, shown) if one is not None and one.startswith(LABEL_PREFIX)), None)
    return own or shown or next(iter(texts), None)


def host_name(label: str) -> str:
    """Return a label as the name of a host; it may be empty."""
    return _NOT_IN_HOST_NAMES.sub("-", label.lower()).strip("-")


# --- before the first rent --------------------------------------------------------------------------------------------


def ssh_key_prerequisite(ssh_key: Option, list_registered: Callable[[], Iterable[object]], mend: str) -> Prerequisite:
    """Check the account's key that `options.ssh_key` names. Raises nothing.

    Args:
        ssh_key: the option.
        list_registered: returns the names or ids of the account's keys; may raise ProviderError.
        mend: what to add to the settings.
    """
    name = PrerequisiteName.KEY_PAIR
    if not ssh_key:
        return Prerequisite(name=name, met=False, text="options.ssh_key is not set", mend=mend)
    try:
        exists = ssh_key in list_registered()
    except ProviderError as error:
        return Prerequisite(name=name, met=None, text=str(error))
    if exists:
        return Prerequisite(name=name, met=True, text="the SSH key of options.ssh_key exists")
    return Prerequisite(name=name, met=False, text=f"there is no SSH key {str(ssh_key)[:_SHOWN]!r}", mend=mend)


def public_key_prerequisite(ssh_key: Option, pattern: re.Pattern[str], mend: str) -> Prerequisite:
    """Check the public key in `options.ssh_key`.

    Args:
        pattern: pattern of what the create request accepts.
    """
    name = PrerequisiteName.KEY_PAIR
    if isinstance(ssh_key, str) and pattern.fullmatch(ssh_key.strip()):
        return Prerequisite(name=name, met=True, text="options.ssh_key is set")
    text = "options.ssh_key is not a public key" if ssh_key else "options.ssh_key is not set"
    return Prerequisite(name=name, met=False, text=text, mend=mend)
