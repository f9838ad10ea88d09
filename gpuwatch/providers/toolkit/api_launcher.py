"""The base of launchers over an `ApiClient` whose instances are rows below one path."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Final

from gpuwatch.errors import OrderError, PayloadChanged, ProviderError
from gpuwatch.ports import Instance
from gpuwatch.ports.http import HttpReply
from gpuwatch.ports.settings import Option
from gpuwatch.providers.toolkit.api_client import ApiClient
from gpuwatch.providers.toolkit.basic_launcher import BasicLauncher, not_sent, one_instance
from gpuwatch.providers.toolkit.error_mapping import (
    ErrorBody,
    InstanceGone,
    InstanceNotFound,
    OrderErrorMapper,
    ReadErrorMapper,
    ordering_error,
    reading_error,
)

_CREATE_DEADLINE_S: Final = 60.0  # giving up early costs more than waiting


class ApiLauncher(BasicLauncher):
    """A launcher whose client raises `InstanceNotFound` and `InstanceGone`.

    A subclass adds `create`, `list_instances` and `parse_instance`, and overrides what its provider does differently.
    """

    instance_id: ClassVar[re.Pattern[str]]  # the form of an id: nothing else is sent
    instance_path: ClassVar[str] = "/instances/{}"

    def __init__(self, account: ApiClient, options: Mapping[str, Option]) -> None:
        self._account = account
        self._options = options

    def get(self, instance_id: str) -> Instance | None:
        """Return one instance; None: it has ended, or the provider states that there is none. Raises ProviderError."""
        if not self.instance_id.fullmatch(instance_id):
            raise PayloadChanged(f"{self.name}: invalid instance id")
        self._account.require_key()
        try:
            value = self._account.get(self.instance_path.format(instance_id), kind="instances")
        except InstanceNotFound:
            return None
        return self.parse_instance(one_instance(self.instance_row(value), instance_id, self.name))

    def destroy(self, instance_id: str) -> None:
        """End an instance and delete its disk, unless it is already gone.

        Raises:
            OrderError: not done, or outcome unknown. Some providers reject this while they create the instance.
        """
        if not self.instance_id.fullmatch(instance_id):
            raise not_sent(self.name, "invalid instance id")
        self._account.require_key_to_order()
        try:
            self.end(instance_id)
        except InstanceGone:
            return

    def send_create(self, path: str, body: object, kind: str = "order") -> HttpReply:
        """Return the 2xx answer to a create request, which is sent once. Raises OrderError."""
        self._account.require_key_to_order()
        return self._account.order("POST", path, body, kind=kind, deadline_s=_CREATE_DEADLINE_S)

    def instance_row(self, value: Any) -> object:
        """Return the row of an answer about one instance."""
        return value

    def parse_instance(self, row: Mapping[str, Any]) -> Instance | None:
        """Return the instance of a row; None: it has ended. Raises PayloadChanged."""
        raise NotImplementedError

    def end(self, instance_id: str) -> None:
        """Send the request that ends it. Raises OrderError."""
        self._account.order("DELETE", self.instance_path.format(instance_id), kind="delete")


NotFoundPredicate = Callable[[ErrorBody, HttpReply], bool]


def reading_errors(is_not_found: NotFoundPredicate) -> ReadErrorMapper:
    """Map the errors of requests that only read; includes `InstanceNotFound`."""

    def map_error(name: str, body: ErrorBody, reply: HttpReply, now: datetime) -> ProviderError:
        if is_not_found(body, reply):
            return InstanceNotFound(f"{name}: {body.summary}")
        return reading_error(name, body, reply, now)

    return map_error


def ordering_errors(is_not_found: NotFoundPredicate, fallback: OrderErrorMapper = ordering_error) -> OrderErrorMapper:
    """Map the errors of orders; includes `InstanceGone`."""

    def map_error(name: str, body: ErrorBody, reply: HttpReply, now: datetime) -> OrderError:
        if is_not_found(body, reply):
            return InstanceGone(f"{name}: {body.summary}")
        return fallback(name, body, reply, now)

    return map_error
