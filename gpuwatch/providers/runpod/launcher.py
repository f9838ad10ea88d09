"""The launcher of RunPod. Requests that change something are sent once, whatever happens.

RunPod cannot validate an order without carrying it out: only a rental shows whether the key may create pods.
source: REST v2 specification 2.0.0 (`GET /v2/billing/pods`, `GET /v2/registries`) and GraphQL (`myself`), as dstack
0.22.5 and runpod 1.12.0 use them, 2026-11.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import msgspec

from gpuwatch.errors import KeyRejected, OfferGone, OrderRefused, OutcomeUnknown, PayloadChanged, ProviderError
from gpuwatch.ports import Created, Instance, InstanceState, Order, ProviderCharge, ProviderSettings
from gpuwatch.ports.prerequisites import Prerequisite, PrerequisiteName
from gpuwatch.providers.runpod.catalogue import COMMUNITY, PROVIDER
from gpuwatch.providers.runpod.client import RunpodClient
from gpuwatch.providers.runpod.create import POD_ID, create_body, parse_created
from gpuwatch.providers.runpod.market import ACCOUNT, BALANCE, SSH_KEYS, parse_account, parse_balance, parse_ssh_keys
from gpuwatch.providers.runpod.pods import RestartDetector, parse_pod, parse_pods
from gpuwatch.providers.toolkit.basic_launcher import BasicLauncher, decoded_order, is_in_state, not_sent
from gpuwatch.providers.toolkit.error_mapping import InstanceNotFound, NoSuchObject
from gpuwatch.providers.toolkit.validation import at, decode_json, number, objects, whole

_MAX_USD: Final = 1e6
_ROUNDING_USD: Final = 0.0005
_DAY: Final = timedelta(days=1)
_KINDS: Final = {"gpuAmount": "gpu", "diskAmount": "disk", "cpuAmount": "other"}


def charges_params(since: date, until: date) -> dict[str, str]:
    """Return the URL parameters for these days (UTC), both inclusive, day by day."""
    end = until + _DAY
    return {"bucketSize": "day", "startTime": f"{since}T00:00:00Z", "endTime": f"{end}T00:00:00Z"}


def charges_of(value: Any, since: date, until: date, now: datetime) -> list[ProviderCharge]:
    """Return charges by pod, day and kind; the part of a total that its items do not explain is `other`.

    Args:
        now: a day is final once it is over.

    Raises:
        ProviderError: the list is incomplete.
        PayloadChanged: it has an unexpected format.
    """
    records = value.get("records") if isinstance(value, dict) else None
    if not isinstance(records, list):
        raise PayloadChanged(f"{PROVIDER}: the answer contains no charge records")
    if (whole(at(value, "metadata", "recordCount")) or 0) > len(records):
        raise ProviderError(f"{PROVIDER}: the list of charges is incomplete")
    sums: dict[tuple[str, date, str], float] = {}
    for record in records:
        for pod_id, day, kind, usd in _amounts(record):
            if since <= day <= until:  # RunPod extends the range to whole buckets
                sums[pod_id, day, kind] = sums.get((pod_id, day, kind), 0.0) + usd
    today = now.astimezone(UTC).date()
    return [
        ProviderCharge(instance_id=pod_id, day=day, kind=kind, usd=round(usd, 6), final=day < today)
        for (pod_id, day, kind), usd in sorted(sums.items())
    ]


def _amounts(record: Any) -> Iterator[tuple[str, date, str, float]]:
    pod_id, day = at(record, "podId"), _day(record)
    if not isinstance(pod_id, str) or not POD_ID.fullmatch(pod_id):
        raise PayloadChanged(f"{PROVIDER}: a charge has no pod id")
    total = _amount(record, "totalAmount")
    unexplained_usd = total
    for field, kind in _KINDS.items():
        usd = _amount(record, field) if record.get(field) is not None else 0.0
        unexplained_usd -= usd
        if usd:
            yield pod_id, day, kind, usd
    if abs(unexplained_usd) > _ROUNDING_USD:
        yield pod_id, day, "other", unexplained_usd


def _day(record: Any) -> date:
    """Return the one day of a record."""
    try:
        start = msgspec.convert(at(record, "startTime"), datetime)
        end = msgspec.convert(at(record, "endTime"), datetime)
        if start.tzinfo is not None and end.tzinfo is not None and timedelta(0) < end - start <= _DAY:
            return start.astimezone(UTC).date()
    except (msgspec.ValidationError, OverflowError):
        pass
    raise PayloadChanged(f"{PROVIDER}: a charge does not cover one day")


def _amount(record: Mapping[str, Any], field: str) -> float:
    usd = number(record.get(field), 0.0, _MAX_USD)
    if usd is None:
        raise PayloadChanged(f"{PROVIDER}: an impossible amount was charged")
    return usd


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


_PINNED: Final = (
    "the order named {}, because `regions` is set: RunPod's community cloud refuses most orders that name a data centre"
)
_CREATE_DEADLINE_S: Final = 60.0  # giving up early costs more than waiting


class RunpodLauncher(BasicLauncher):
    """Rents pods by REST v2; balance and account come from GraphQL."""

    name = PROVIDER

    def __init__(self, account: RunpodClient, settings: ProviderSettings) -> None:
        registry_id = settings.options.get("registry_id")
        self._account = account
        self._registry_id = registry_id if isinstance(registry_id, str) else None
        self._options = settings.options
        self._restarts = RestartDetector()
        self._key: Prerequisite | None = None  # the last check of the account's SSH key

    def create(self, order: Order) -> Created:
        """Rent once.

        Raises:
            OfferGone: no capacity for it; OrderRefused, OrderRateLimited: nothing was created.
            OutcomeUnknown: it may have been created.
        """
        body = create_body(order, self._account.tools.now(), self._registry_id, self._options)
        self._account.require_key_to_order()
        if self._key is not None and self._key.met is False and has_no_other_login(order):
            raise not_sent(PROVIDER, f"{self._key.text}: {self._key.mend}")
        try:
            return parse_created(self._account.order("POST", "/v2/pods", body, deadline_s=_CREATE_DEADLINE_S))
        except OfferGone as error:
            if body["cloud"] == COMMUNITY and (named := body.get("dataCenterIds")):
                raise OfferGone(f"{error}; {_PINNED.format(', '.join(named))}") from error
            raise

    def prerequisites(self, orders: Sequence[Order]) -> Sequence[Prerequisite]:
        """Check what the account has and lacks for these orders. Only reads; raises nothing."""
        found = check_prerequisites(self._account, self._registry_id, orders)
        self._key = next((one for one in found if one.name is PrerequisiteName.KEY_PAIR), self._key)
        return found

    def check_order(self, order: Order) -> None:
        """Build the request. Raises OrderRefused."""
        create_body(order, self._account.tools.now(), self._registry_id, self._options)

    def list_instances(self) -> Sequence[Instance]:
        """Return every pod of the account, including those of clusters. Raises ProviderError."""
        self._account.require_key()
        # the API ignores unknown filters, but supports this one
        reply = self._account.request(
            "GET", "/v2/pods", kind="list", urgent=True, params={"includeClusterPods": "true"}
        )
        return self._restarts.update(parse_pods(decode_json(reply.body, PROVIDER)), self._account.tools.monotonic())

    def get(self, instance_id: str) -> Instance | None:
        """Return one pod, ended or not; None: the API itself states that there is none. Raises ProviderError."""
        if not POD_ID.fullmatch(instance_id):
            raise PayloadChanged(f"{PROVIDER}: invalid pod id")
        self._account.require_key()
        try:
            reply = self._account.request("GET", f"/v2/pods/{instance_id}", kind="list", urgent=True)
        except InstanceNotFound:
            return None
        found = parse_pod(decode_json(reply.body, PROVIDER))
        if found.instance_id != instance_id:
            raise PayloadChanged(f"{PROVIDER}: asked for pod {instance_id}, but got {found.instance_id}")
        return found

    def destroy(self, instance_id: str) -> None:
        """Terminate a pod and delete its disks, unless it is already gone. Raises OrderError."""
        if not POD_ID.fullmatch(instance_id):
            raise not_sent(PROVIDER, "invalid pod id")
        self._account.require_key_to_order()
        try:
            self._account.order("DELETE", f"/v2/pods/{instance_id}")
        except NoSuchObject:
            return
        except OfferGone as error:  # a 400 is about capacity only after a create
            raise OrderRefused(str(error)) from error

    def stop_instance(self, instance_id: str) -> None:
        """Stop a pod: its volume is kept, its container disk is wiped. Raises OrderError."""
        self._act(instance_id, "stop", frozenset({InstanceState.STOPPED}))

    def start_instance(self, instance_id: str) -> bool:
        """Start a stopped pod; False: its host has no free GPUs now. Raises OrderError."""
        try:
            self._act(instance_id, "start", frozenset({InstanceState.STARTING, InstanceState.RUNNING}))
        except OfferGone:
            return False
        return True

    def _act(self, instance_id: str, action: str, wanted: frozenset[InstanceState]) -> None:
        """Send an action; one that is refused in the pod's state, because it is as wanted, is no error."""
        if not POD_ID.fullmatch(instance_id):
            raise not_sent(PROVIDER, "invalid pod id")
        self._account.require_key_to_order()
        try:
            reply = self._account.order("POST", f"/v2/pods/{instance_id}/action", {"action": action})
        except OrderRefused:
            if is_in_state(self, instance_id, wanted):
                return
            raise
        if reply.status != 204 and at(decoded_order(reply, PROVIDER, instance_id), "id") != instance_id:
            raise OutcomeUnknown(f"{PROVIDER}: an unexpected answer to {action}", instance_id)

    def credit_usd(self) -> float | None:
        """Return the balance. Raises ProviderError."""
        self._account.require_key()
        return parse_balance(self._account.graphql(BALANCE))

    def account_id(self) -> str | None:
        """Return the account's id, by GraphQL; None: this key may list pods but not read the account, or it has none.

        GraphQL will retire, and REST names no account: the key itself then identifies it. Raises ProviderError.
        """
        self._account.require_key()
        try:
            return parse_account(self._account.graphql(ACCOUNT))
        except (KeyRejected, InstanceNotFound, PayloadChanged):
            self.list_instances()
            return None

    def charges(self, since: date, until: date) -> Sequence[ProviderCharge] | None:
        """Return the charges of these days (UTC), both inclusive. Raises ProviderError."""
        self._account.require_key()
        value = self._account.get("/v2/billing/pods", charges_params(since, until), kind="charges")
        return charges_of(value, since, until, self._account.tools.now())
