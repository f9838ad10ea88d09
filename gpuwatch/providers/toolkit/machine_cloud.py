"""The base of a cloud that lists machine types and creates machines: its requests, its market and its launcher.

A cloud is one file: a subclass of `MachineCloud` with what it declares, and pure functions that parse its rows. The
base sends the requests, reads paged lists, maps errors and proves that an instance does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

from gpuwatch.errors import OrderError, OutcomeUnknown, PayloadChanged, ProviderError
from gpuwatch.ports import Created, Instance, InstanceState, Order, ProviderSettings
from gpuwatch.ports.declarations import Adapter, ProviderInfo, Tools
from gpuwatch.ports.http import HttpReply
from gpuwatch.ports.prerequisites import Prerequisite
from gpuwatch.providers.toolkit.api_client import ApiClient
from gpuwatch.providers.toolkit.basic_launcher import (
    BasicLauncher,
    created_instance,
    decoded_order,
    instance_rows,
    match_offer_id,
    not_sent,
    one_instance,
    refuse_beyond_machine,
    require_ssh_key,
    ssh_key_prerequisite,
)
from gpuwatch.providers.toolkit.catalogue import CatalogueMarket, read_types
from gpuwatch.providers.toolkit.error_mapping import (
    ErrorBody,
    InstanceGone,
    InstanceNotFound,
    NoSuchObject,
    ordering_error,
    reading_error,
)
from gpuwatch.providers.toolkit.instance_status import StatusWords
from gpuwatch.providers.toolkit.post_processing import ParseResult
from gpuwatch.providers.toolkit.validation import at, number, objects, whole

COUNTRY: Final = re.compile(r"[A-Z]{2}")
UUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_CREATE_DEADLINE_S: Final = 60.0  # giving up early costs more than waiting
_PAGES_MAX: Final = 50
TypeReader = Callable[[Any, ParseResult], bool | None]


class ListPage(NamedTuple):
    """One page of a list: its rows, and the parameters of the next page; None: it is the last one."""

    rows: list[Any]
    following: Mapping[str, str] | None


class MachineCloud(BasicLauncher):
    """One account at a cloud. A subclass declares the fields below and writes the methods up to `parse_instance`.

    Paths are below `base_url`; a path of keys leads to a value within an answer.
    """

    info: ClassVar[ProviderInfo]
    key_header: ClassVar[str] = ""  # the header of the key; empty: `Authorization: Bearer KEY`
    intervals_s: ClassVar[Mapping[str, float]] = {}  # seconds between two requests, by class
    types_path: ClassVar[str] = "/types"
    types_params: ClassVar[Mapping[str, str]] = {}
    types_at: ClassVar[Sequence[str]] = ()
    lists_cpu_apart: ClassVar[bool] = False  # machines without GPUs need requests of their own: `fetch_cpu`
    offer_id: ClassVar[re.Pattern[str]]  # the form of an offer's id; its groups are what an order needs
    create_path: ClassVar[str] = "/instances"
    create_kind: ClassVar[str] = "order"  # the class of the request, for its interval
    created_at: ClassVar[Sequence[str]] = ("id",)  # the id in the answer to a create
    instance_id: ClassVar[re.Pattern[str]] = UUID  # the form of an id: nothing else is sent
    has_numeric_ids: ClassVar[bool] = False  # an instance's id is a whole number in answers
    instances_path: ClassVar[str] = "/instances"
    instances_at: ClassVar[Sequence[str]] = ()
    instance_path: ClassVar[str] = "/instances/{}"
    instance_at: ClassVar[Sequence[str]] = ()
    status_words: ClassVar[StatusWords]
    ends_once: ClassVar[bool] = False  # no second request while the list shows the instance as ending
    ssh_keys_path: ClassVar[str] = "/ssh-keys"
    ssh_keys_at: ClassVar[Sequence[str]] = ()
    ssh_key_what: ClassVar[str] = "an SSH key"
    ssh_key_field: ClassVar[str] = "id"  # the field of a key that `options.ssh_key` holds: id or name
    logs_in: ClassVar[bool] = False  # other requests need a token, which `log_in` gets with the key

    def __init__(self, settings: ProviderSettings, tools: Tools) -> None:
        self.name = self.info.name
        self.options = settings.options
        headers = {self.key_header: settings.api_key} if self.key_header and settings.api_key else {}
        self.client = ApiClient(
            settings,
            tools,
            headers=headers if self.key_header else None,
            log_in=self.log_in if self.logs_in else None,
            intervals_s=self.intervals_s,
            reading=self.read_error,
            ordering=self.order_error,
        )
        self._ending: frozenset[str] = frozenset()  # instances that the newest list shows as ending

    @classmethod
    def build(cls, settings: ProviderSettings, tools: Tools) -> Adapter:
        """Build the adapter; searching and renting share one rate limiter. A module's `build` is this one."""
        cloud = cls(settings, tools)
        fetch_cpu = (lambda _client: cloud.fetch_cpu()) if cls.lists_cpu_apart else None
        market = CatalogueMarket(cls.info, cloud.client, lambda _client: cloud.fetch(), fetch_cpu=fetch_cpu)
        return Adapter(name=cloud.name, info=cls.info, market=market, launcher=cloud)

    # --- what a cloud writes ------------------------------------------------------------------------------------------

    def read_type(self, row: Any, result: ParseResult, observed_at: datetime) -> bool | None:
        """Add the offers of a row of the list of types, as `read_types` says. Raises RowSkipped."""
        raise NotImplementedError

    def create_body(self, order: Order) -> dict[str, Any]:
        """Build the create request, with the label in a name or a tag. Raises OrderRefused: it is not supported."""
        raise NotImplementedError

    def parse_instance(self, row: Mapping[str, Any]) -> Instance:
        """Return the instance of a row, ended or not. Raises PayloadChanged."""
        raise NotImplementedError

    def is_not_found(self, body: ErrorBody) -> bool:
        """Whether an error states that the instance does not exist: a 404 alone, as of a proxy, proves nothing."""
        return False

    def refusal(self, line: str, body: ErrorBody, reply: HttpReply, now: datetime) -> OrderError | None:
        """Return the error of an order that the provider names itself; None: the status decides.

        Args:
            line: for the error: name, status and sentence.
        """
        return None

    def log_in(self, client: ApiClient) -> tuple[str, float]:
        """Get a token by `client.request_token`; return it and the seconds for which it is valid."""
        raise NotImplementedError

    # --- offers -------------------------------------------------------------------------------------------------------

    def fetch(self) -> tuple[ParseResult, datetime]:
        """Return all offers, and when the provider answered. Raises ProviderError."""
        value, now = self.client.get(self.types_path, self.types_params), self.client.tools.now()
        return self.parse_types(value, now), now

    def fetch_cpu(self) -> tuple[ParseResult, datetime]:
        """Return all machines without GPUs, as `fetch`, which then has none. Raises ProviderError."""
        raise NotImplementedError

    def parse_types(self, value: object, observed_at: datetime) -> ParseResult:
        """Parse the list of types. Raises PayloadChanged: it is none, or none of its rows can be read."""
        return self.read_rows(self.type_rows(value), partial(self.read_type, observed_at=observed_at), observed_at)

    def read_rows(self, rows: object, read: TypeReader, observed_at: datetime) -> ParseResult:
        """Parse the rows of the list of types, by a function as for `read_types`. Raises PayloadChanged, as above."""
        if not isinstance(rows, list) or not rows:
            raise PayloadChanged(f"{self.name}: the answer is not a list of instance types")
        return read_types(rows, self.name, read, observed_at)

    def type_rows(self, value: object) -> object:
        """Return the rows of the list of types; anything but a list with rows is refused."""
        return at(value, *self.types_at)

    def each_row(
        self,
        path: str,
        read_page: Callable[[Any, int], ListPage],
        params: Mapping[str, str] | None = None,
        kind: str = "instances",
    ) -> Iterator[Any]:
        """Yield the rows of a list from all its pages; a page is requested when the rows before it are used up.

        Args:
            read_page: reads an answer; gets the number of rows before it. Raises PayloadChanged.
            params: of the first page; those of `ListPage.following` replace them.

        Raises:
            ProviderError: a page is missing, or cannot be read: never a part of the list.
        """
        received = 0
        query = dict(params or {})
        for _ in range(_PAGES_MAX):
            page = read_page(self.client.get(path, query, kind=kind), received)
            yield from page.rows
            received += len(page.rows)
            if page.following is None:
                return
            query |= page.following
        raise self.incomplete(path, received)

    def counted_page(
        self, what: str, rows: object, total: object, received: int, following: Callable[[int], Mapping[str, str]]
    ) -> ListPage:
        """Return a page of a list that states its length, for `each_row`.

        Args:
            what: the rows, for errors.
            received: the number of rows before the page.
            following: returns the parameters of the next page, from the number of rows up to it.

        Raises:
            PayloadChanged: there are no rows, or no length; or the list ends early.
        """
        length = whole(total)
        if not isinstance(rows, list) or length is None:
            raise PayloadChanged(f"{self.name}: the answer is not a list of {what} with their number")
        received += len(rows)
        if received < length and not rows:
            raise self.incomplete(what, received)
        return ListPage(rows, following(received) if received < length else None)

    def incomplete(self, what: str, received: int) -> PayloadChanged:
        """Return the error of a list that ends early."""
        return PayloadChanged(f"{self.name}: the list of {what} is incomplete: it ends after {received}")

    # --- renting ------------------------------------------------------------------------------------------------------

    def create(self, order: Order) -> Created:
        """Rent one machine; the request is sent once. Raises OrderError."""
        self.check_order(order)
        self.client.require_key_to_order()
        return self.send_create(self.create_body(order))

    def send_create(self, body: Mapping[str, Any]) -> Created:
        """Send the create request, once. Raises OrderError."""
        reply = self.client.order("POST", self.create_path, body, kind=self.create_kind, deadline_s=_CREATE_DEADLINE_S)
        return self.parse_created(reply)

    def parse_created(self, reply: HttpReply) -> Created:
        """Return the instance of a create's 2xx answer. Raises OutcomeUnknown: it names none."""
        found = at(decoded_order(reply, self.name), *self.created_at)
        instance_id = str(whole(found, 1, 10**18)) if self.has_numeric_ids else found
        return created_instance(instance_id, self.instance_id, self.name)

    def check_order(self, order: Order) -> None:
        """Refuse what the cloud does not support, without a request: build the body. Raises OrderRefused."""
        self.create_body(order)

    def parts_of(self, order: Order, extra_reasons: Mapping[str, object] | None = None, **others: Any) -> re.Match[str]:
        """Return the parts of an offer's id, after refusing what plain machines do not support.

        Args:
            extra_reasons: further reasons to refuse, and whether they apply.
            others: as `refuse_beyond_machine`.

        Raises:
            OrderRefused: BAD_ORDER, with the first reason that applies.
        """
        parts = match_offer_id(order, self.offer_id, self.name)
        self.required_ssh_key()
        self.refuse_unsupported(order, extra_reasons, **others)
        return parts

    def refuse_unsupported(self, order: Order, reasons: Mapping[str, object] | None = None, **others: Any) -> None:
        """Refuse what plain machines do not support, as `parts_of`. Raises OrderRefused."""
        fields = {"label_length": self.info.label_length} | others
        refuse_beyond_machine(order, self.name, self.info.title, reasons, **fields)

    def required_ssh_key(self) -> Any:
        """Return `options.ssh_key`. Raises OrderRefused: it is not set."""
        return require_ssh_key(self.options, self.name, self.ssh_key_what, self.ssh_key_field.upper())

    def list_instances(self) -> Sequence[Instance]:
        """Return every instance of the account that has not ended. Raises ProviderError: never a part of the list."""
        self.client.require_key()
        found = self.parse_instances(self.instance_rows())
        self._ending = frozenset(one.instance_id for one in found if one.state is InstanceState.ENDING)
        return found

    def instance_rows(self) -> list[Any]:
        """Return the rows of the list of instances, all of them. Raises ProviderError."""
        return self.rows_of(self.client.get(self.instances_path, kind="instances"))

    def rows_of(self, value: object) -> list[Any]:
        """Return the rows of a list that has no pages. Raises PayloadChanged: it is none, or has more pages."""
        return list(instance_rows(value, at(value, *self.instances_at), self.name))

    def parse_instances(self, rows: list[Any]) -> list[Instance]:
        """Parse rows of instances, without those that have ended. Raises PayloadChanged: it might be gpuwatch's."""
        rows = instance_rows(None, [self._with_text_id(row) for row in rows], self.name)
        found = [self.parse_instance(row) for row in rows]
        return [one for one in found if one.state is not InstanceState.ENDED]

    def get(self, instance_id: str) -> Instance | None:
        """Return one instance, ended or not; None: the provider states that there is none. Raises ProviderError."""
        if not self.instance_id.fullmatch(instance_id):
            raise PayloadChanged(f"{self.name}: invalid instance id")
        self.client.require_key()
        try:
            value = self.client.get(self.instance_path.format(instance_id), kind="instances")
        except InstanceNotFound:
            if self.is_proof(instance_id):
                return None
            raise
        row = self._with_text_id(at(value, *self.instance_at))
        return self.parse_instance(one_instance(row, instance_id, self.name))

    def _with_text_id(self, row: Any) -> Any:
        number_id = whole(at(row, "id"), 1, 10**18) if self.has_numeric_ids else None
        return row if number_id is None else {**row, "id": str(number_id)}

    def destroy(self, instance_id: str) -> None:
        """End an instance and delete its disk, unless it is already gone.

        Raises:
            OrderError: not done, or outcome unknown. Some providers reject this while they create the instance.
        """
        if not self.instance_id.fullmatch(instance_id):
            raise not_sent(self.name, "invalid instance id")
        self.client.require_key_to_order()
        if self.ends_once and instance_id in self._ending:
            return
        try:
            self.end(instance_id)
        except (InstanceGone, NoSuchObject) as error:
            try:
                if self.is_proof(instance_id):
                    return
            except ProviderError:
                pass
            raise OutcomeUnknown(str(error), instance_id) from error

    def is_proof(self, instance_id: str) -> bool:
        """Whether `is_not_found` proves that the instance has ended, or something else does. Raises ProviderError."""
        return True

    def end(self, instance_id: str) -> None:
        """Send the request that ends it, once. Raises OrderError."""
        self.client.order("DELETE", self.instance_path.format(instance_id), kind="delete")

    def read_credit(self, path: str, *keys: str, currency_key: str = "") -> float | None:
        """Return the account's balance; None: it is not in dollars. Raises ProviderError.

        Args:
            currency_key: states the currency beside the balance; empty: it is always dollars.
        """
        self.client.require_key()
        value = self.client.get(path, kind="account")
        amount = number(at(value, *keys), -1e9, 1e9)
        if amount is None:
            raise PayloadChanged(f"{self.name}: the answer has no credit balance")
        currency = at(value, *keys[:-1], currency_key) if currency_key else "USD"
        return amount if str(currency).casefold() == "usd" else None

    # --- before the first rent ----------------------------------------------------------------------------------------

    def check_ssh_key(self, _orders: Sequence[Order] = ()) -> Sequence[Prerequisite]:
        """Check that the account has the SSH key of the settings. Only reads; raises nothing.

        A cloud that needs a key declares `prerequisites = MachineCloud.check_ssh_key`.
        """
        key = self.ssh_key_field.upper()
        mend = f'add ssh_key = "{key}", a key registered at {self.info.title}, to [providers.{self.name}.options]'
        return [ssh_key_prerequisite(self.options.get("ssh_key"), self._registered_keys, mend)]

    def _registered_keys(self) -> list[object]:
        self.client.require_key()
        return [row.get(self.ssh_key_field) for row in objects(self.ssh_key_rows())]

    def ssh_key_rows(self) -> Iterable[Any]:
        """Return the rows of the account's SSH keys. Raises ProviderError."""
        return at(self.client.get(self.ssh_keys_path, kind="instances"), *self.ssh_keys_at) or ()

    # --- errors -------------------------------------------------------------------------------------------------------

    def read_error(self, name: str, body: ErrorBody, reply: HttpReply, now: datetime) -> ProviderError:
        """Return the error of a request that only reads."""
        if self.is_not_found(body):
            return InstanceNotFound(f"{name}: {body.summary}")
        return reading_error(name, body, reply, now)

    def order_error(self, name: str, body: ErrorBody, reply: HttpReply, now: datetime) -> OrderError:
        """Return the error of a request that changes something."""
        line = f"{name}: {body.summary}"
        if error := self.refusal(line, body, reply, now):
            return error
        return InstanceGone(line) if self.is_not_found(body) else ordering_error(name, body, reply, now)
