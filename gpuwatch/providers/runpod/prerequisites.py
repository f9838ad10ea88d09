"""What a RunPod account must have before it rents, checked by requests that only read.

RunPod cannot validate an order without carrying it out: only a rental shows whether the key may create pods.
source: REST v2 (`GET /v2/registries`) and GraphQL (`myself`), as dstack 0.22.5 and runpod 1.12.0 use them, 2026-11.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpuwatch.errors import PayloadChanged, ProviderError
from gpuwatch.ports import Order
from gpuwatch.ports.prerequisites import Prerequisite, PrerequisiteName
from gpuwatch.providers.runpod.client import RunpodClient
from gpuwatch.providers.runpod.keyless import SSH_KEYS, parse_ssh_keys
from gpuwatch.providers.toolkit.validation import at, objects

_KEY_VARIABLES: Final = frozenset({"PUBLIC_KEY", "SSH_PUBLIC_KEY"})  # the convention of RunPod's own images


def check_prerequisites(account: RunpodClient, registry_id: str | None, orders: Sequence[Order]) -> list[Prerequisite]:
    """Return what is met and missing for these orders. Raises nothing: without a usable answer `met` is None."""
    found = []
    if not orders or any(_needs_account_key(order, "ssh", "jupyter") for order in orders):
        # blocks only if all orders need the key; otherwise individual orders are refused
        found.append(_ssh_key(account, is_blocking=bool(orders) and all(map(has_no_other_login, orders))))
    if registry_id is not None:
        found.append(_registry(account, registry_id))
    return found


def has_no_other_login(order: Order) -> bool:
    """Whether the account's SSH key is the only way to use such a pod.

    A job puts the key of its launch into its start script, and needs no key of the account.
    """
    return _needs_account_key(order, "ssh")


def _needs_account_key(order: Order, *runtypes: str) -> bool:
    """Whether the pod starts no work by itself, and only the account's own key can log in."""
    has_login = any(runtype in order.runtype for runtype in runtypes)
    return has_login and not order.onstart and not _KEY_VARIABLES & order.env.keys()


def _ssh_key(account: RunpodClient, *, is_blocking: bool) -> Prerequisite:
    name = PrerequisiteName.KEY_PAIR
    try:
        has_key = parse_ssh_keys(account.graphql(SSH_KEYS))
    except ProviderError as error:
        return Prerequisite(name=name, met=None, text=str(error))
    if has_key:
        return Prerequisite(name=name, met=True, text="the account has an SSH key")
    text = "the account has no SSH key: nobody can log in by SSH"
    mend = "add one in RunPod's settings, or set launch.env.PUBLIC_KEY, or onstart, or another runtype"
    return Prerequisite(name=name, met=False, text=text, mend=mend, is_blocking=is_blocking)


def _registry(account: RunpodClient, registry_id: str) -> Prerequisite:
    name = PrerequisiteName.IMAGE
    try:
        account.require_key()
        rows = at(account.get("/v2/registries"), "registries")
        if not isinstance(rows, list):
            raise PayloadChanged("runpod: the registry answer has an unexpected format")
    except ProviderError as error:
        return Prerequisite(name=name, met=None, text=str(error))
    if any(row.get("id") == registry_id for row in objects(rows)):
        return Prerequisite(name=name, met=True, text="the registry credentials of options.registry_id exist")
    text = f"there are no registry credentials {registry_id[:40]!r}"
    return Prerequisite(name=name, met=False, text=text, mend="store them at RunPod, and fix options.registry_id")
