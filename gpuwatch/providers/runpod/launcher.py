"""The launcher of RunPod. Requests that change something are sent once, whatever happens."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Final

from gpuwatch.errors import KeyRejected, OfferGone, OrderRefused, PayloadChanged
from gpuwatch.ports import Created, Instance, Order, ProviderCharge, ProviderSettings
from gpuwatch.ports.prerequisites import Prerequisite, PrerequisiteName
from gpuwatch.providers.runpod.catalogue import PROVIDER
from gpuwatch.providers.runpod.charges import charges_of, charges_params
from gpuwatch.providers.runpod.client import RunpodClient
from gpuwatch.providers.runpod.create import POD_ID, create_body, parse_created
from gpuwatch.providers.runpod.error_mapping import NoSuchPod, PodGone
from gpuwatch.providers.runpod.keyless import ACCOUNT, BALANCE, parse_account, parse_balance
from gpuwatch.providers.runpod.offer_ids import COMMUNITY
from gpuwatch.providers.runpod.pods import RestartDetector, parse_pod, parse_pods
from gpuwatch.providers.runpod.prerequisites import check_prerequisites, has_no_other_login
from gpuwatch.providers.toolkit.basic_launcher import BasicLauncher, not_sent
from gpuwatch.providers.toolkit.validation import decode_json

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
        except NoSuchPod:
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
        except OfferGone as error:  # a 400 is about capacity only after a create
            raise OrderRefused(str(error)) from error
        except PodGone:
            return

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
        except (KeyRejected, NoSuchPod, PayloadChanged):
            self.list_instances()
            return None

    def charges(self, since: date, until: date) -> Sequence[ProviderCharge] | None:
        """Return the charges of these days (UTC), both inclusive. Raises ProviderError."""
        self._account.require_key()
        value = self._account.get("/v2/billing/pods", charges_params(since, until), kind="charges")
        return charges_of(value, since, until, self._account.tools.now())
