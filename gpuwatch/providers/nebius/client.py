"""The client of Nebius, on its gRPC SDK. gpuwatch repeats reads; the SDK sends everything once.

Errors are mapped by their gRPC status; only the attributes of the SDK's errors are read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib import import_module
from threading import Lock
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from gpuwatch.errors import (
    KeyRejected,
    OfferGone,
    OrderError,
    OrderRateLimited,
    OrderRefused,
    OutcomeUnknown,
    PayloadChanged,
    ProviderDown,
    ProviderError,
    ProviderUnreachable,
    RateLimited,
    RefusalKind,
    RefusalScope,
)
from gpuwatch.installation import install_hint
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Tools
from gpuwatch.providers.toolkit.api_client import PacedClient
from gpuwatch.providers.toolkit.error_mapping import InstanceGone, InstanceNotFound, display_sentence

_MAX_TEXT_LENGTH: Final = 160
_MAX_MESSAGE_LENGTH: Final = 4_000
_CONNECT_ERRORS: Final = (
    "failed to connect to all addresses",
    "errors resolving",
)  # gRPC's own words: nothing was sent
_DOWN_CODES: Final = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "UNKNOWN", "ABORTED", "CANCELLED"})
_KEY_CODES: Final = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED"})
_BAD_ORDER_CODES: Final = frozenset({"INVALID_ARGUMENT", "OUT_OF_RANGE", "NOT_FOUND", "UNIMPLEMENTED"})
# The fields of the vendor's ServiceError that say why resources were missing.
_STOCK, _QUOTA, _RATE_LIMIT, _MISSING = (
    "not_enough_resources",
    "quota_failure",
    "too_many_requests",
    "resource_not_found",
)


def reading_error(error: Exception, instance_id: str = "") -> ProviderError:
    """Map the error of a request that only reads.

    Args:
        instance_id: the id of the requested instance.
    """
    code, line = code_of(error), _line(error)
    if code in _KEY_CODES:
        return KeyRejected(line)
    if code == "RESOURCE_EXHAUSTED":
        return RateLimited(line)
    if _is_not_found(error, instance_id):
        return InstanceNotFound(line)
    if code == "UNAVAILABLE" and any(words in line for words in _CONNECT_ERRORS):
        return ProviderUnreachable(line)
    return ProviderDown(line) if code in _DOWN_CODES else PayloadChanged(line)


def ordering_error(error: Exception, instance_id: str = "") -> OrderError:
    """Map the error of an order; only a status that refuses proves that nothing was created."""
    code, line, reasons = code_of(error), _line(error), _reasons(error)
    if code in _KEY_CODES:
        return OrderRefused(line, RefusalKind.KEY)
    if code == "UNAVAILABLE" and any(words in line for words in _CONNECT_ERRORS):
        return OrderRefused(f"not sent: {line}", RefusalKind.NOT_SENT)
    if code in {"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"}:
        return _missing_resource_error(code, line, reasons)
    if _is_not_found(error, instance_id):
        return InstanceGone(line)
    # ALREADY_EXISTS: an instance with this label, perhaps from an earlier attempt.
    return OrderRefused(line, RefusalKind.BAD_ORDER) if code in _BAD_ORDER_CODES else OutcomeUnknown(line)


def _missing_resource_error(code: str, line: str, reasons: set[str]) -> OrderError:
    """Map a refusal for lack of resources. source: the vendor's ServiceError, and dstack's interpretation."""
    if _QUOTA in reasons or "quota" in line.lower():
        text = f"{line} (a quota of the account)"
        return OrderRefused(text, RefusalKind.OTHER, RefusalScope.REGION_FAMILY)
    if _RATE_LIMIT in reasons:
        return OrderRateLimited(line)
    if _STOCK in reasons or code == "RESOURCE_EXHAUSTED":
        return OfferGone(line)
    return OrderRefused(line, RefusalKind.BAD_ORDER)


def _is_not_found(error: Exception, instance_id: str) -> bool:
    """Whether Nebius itself states that the instance is missing; a gateway's NOT_FOUND may be about a path."""
    if code_of(error) != "NOT_FOUND" or not instance_id:
        return False
    return _MISSING in _reasons(error) or instance_id in str(getattr(error.status, "message", ""))  # type: ignore[attr-defined]


def code_of(error: Exception) -> str:
    """Return the name of the gRPC status; empty: the answer is not from Nebius."""
    name = getattr(getattr(getattr(error, "status", None), "code", None), "name", "")
    return name if isinstance(name, str) else ""


def _line(error: Exception) -> str:
    """Return the error for display, on one line, without secrets; only its name if it has no status."""
    code, status = code_of(error), getattr(error, "status", None)
    if not code:
        return f"nebius: {type(error).__name__}"
    sentence = str(getattr(status, "message", None) or "")[:_MAX_MESSAGE_LENGTH]
    return f"nebius: {display_sentence(f'{code} {sentence}')}"


def _reasons(error: Exception) -> set[str]:
    found: Any = getattr(getattr(error, "status", None), "service_errors", None) or []
    fields = [getattr(getattr(one, "details", None), "field", None) for one in found]
    return {field for field in fields if isinstance(field, str)}


PROVIDER: Final = "nebius"
_PAGES_MAX: Final = 200
_PAGE_ROWS: Final = 500
_CREATE_S: Final = 60.0  # giving up on an order early costs more than waiting


class UnreadableAnswer(Exception):
    """The answer is not a message of the API."""


class Rpc(NamedTuple):
    """One method of the API: the SDK's module, service and method, and the name of its request."""

    area: str
    service: str
    method: str
    request: str


LIST_TENANTS: Final = Rpc("iam.v2", "TenantService", "list", "ListTenantsRequest")
LIST_PROJECTS: Final = Rpc("iam.v2", "ProjectService", "list", "ListProjectsRequest")
LIST_SUBNETS: Final = Rpc("vpc.v1", "SubnetService", "list", "ListSubnetsRequest")
LIST_ADVICE: Final = Rpc("capacity.v1", "ResourceAdviceService", "list", "ListResourceAdviceRequest")
LIST_SPOT_PRICES: Final = Rpc("billing.v1alpha1", "SpotPriceService", "list", "ListSpotPricesRequest")
ESTIMATE: Final = Rpc("billing.v1alpha1", "CalculatorService", "estimate", "EstimateRequest")
LIST_PUBLIC_IMAGES: Final = Rpc("compute.v1", "ImageService", "list_public", "ListPublicRequest")
LIST_INSTANCES: Final = Rpc("compute.v1", "InstanceService", "list", "ListInstancesRequest")
GET_INSTANCE: Final = Rpc("compute.v1", "InstanceService", "get", "GetInstanceRequest")
CREATE_INSTANCE: Final = Rpc("compute.v1", "InstanceService", "create", "CreateInstanceRequest")
DELETE_INSTANCE: Final = Rpc("compute.v1", "InstanceService", "delete", "DeleteInstanceRequest")
STOP_INSTANCE: Final = Rpc("compute.v1", "InstanceService", "stop", "StopInstanceRequest")
START_INSTANCE: Final = Rpc("compute.v1", "InstanceService", "start", "StartInstanceRequest")


def api(area: str) -> Any:
    """Import the SDK's module of an area of the API, such as "compute.v1". Raises ProviderError: not installed."""
    try:
        return import_module(f"nebius.api.nebius.{area}")
    except ImportError:
        raise ProviderError(f"{PROVIDER}: its SDK is not installed: {install_hint(PROVIDER)}") from None


class NebiusClient(PacedClient):
    """The client of one set of credentials.

    Args:
        own_endpoints: use Nebius's endpoints, one host per service; False: send all requests to `base_url`.
    """

    def __init__(self, settings: ProviderSettings, tools: Tools, own_endpoints: bool) -> None:
        super().__init__(settings, tools, {})
        self._token = settings.api_key
        self._file = settings.options.get("credentials_file")
        self._address = None if own_endpoints else urlsplit(settings.base_url)
        self._lock = Lock()
        self._sdk: Any = None

    def call(self, rpc: Rpc, *, kind: str = "account", **values: Any) -> Any:
        """Return the answer to a request that only reads, sent up to three times. `id`: its object.

        Raises:
            ProviderError: no usable answer.
        """

        def attempt(deadline_s: float) -> Any:
            try:
                return self._send(rpc, values, deadline_s)
            except ProviderError:
                raise
            except Exception as error:  # the SDK reacts to hostile bytes with plain exceptions
                raise reading_error(error, values.get("id", "")) from None

        return self.read(kind, attempt)

    def pages(self, rpc: Rpc, *, kind: str = "account", **values: Any) -> list[Any]:
        """Return the items of all pages; `kind`: of the first. Raises ProviderError: a page is missing or malformed."""
        found: list[Any] = []
        tokens: set[str] = set()
        for _ in range(_PAGES_MAX):
            answer = self.call(rpc, kind=kind, page_size=_PAGE_ROWS, **values)
            found += answer.items
            token = answer.next_page_token
            if not token:
                return found
            if token in tokens:
                break
            tokens.add(token)
            values["page_token"], kind = token, "pages"
        raise PayloadChanged(f"{PROVIDER}: the pages of {rpc.service} do not end")

    def order(self, rpc: Rpc, *, key: str, kind: str = "order", **values: Any) -> Any:
        """Return the answer to a request that changes something: sent once, whatever happens.

        Args:
            key: idempotency key, which makes a repeated request harmless.

        Raises:
            OrderError: not done, or outcome unknown.
        """
        with self.preparing_order():
            self.acquire(kind, urgent=True)
            self._open_sdk()
        deadline_s = max(self._timeout_s, _CREATE_S)
        try:
            return self._send(rpc, values, deadline_s, (("x-idempotency-key", key),))
        except Exception as error:  # show nothing of the request: it contains secrets
            raise ordering_error(error, values.get("id", "")) from None

    def require_key(self) -> None:
        """Check the credentials before a request that needs them. Raises KeyRejected."""
        if not self._token and not self._file:
            raise KeyRejected(
                f"{PROVIDER}: no credentials: set options.credentials_file in [providers.{PROVIDER}.options], "
                "or set an IAM token in NEBIUS_IAM_TOKEN"
            )

    def _send(
        self, rpc: Rpc, values: Mapping[str, Any], deadline_s: float, metadata: tuple[tuple[str, str], ...] = ()
    ) -> Any:
        module, sdk = api(rpc.area), self._open_sdk()
        service = getattr(module, f"{rpc.service}Client")(sdk)
        request = getattr(service, rpc.method)(
            getattr(module, rpc.request)(**values),
            metadata=metadata,
            timeout=deadline_s,
            per_retry_timeout=deadline_s,
            auth_timeout=deadline_s,
            auth_options=self._auth_options,
            retries=0,
        )
        request.wait_for_ready = False  # without a connection, fail at once
        answer = request.wait()
        if answer is None:  # the SDK's result for some bytes that are not a message
            raise UnreadableAnswer
        return answer

    def _open_sdk(self) -> Any:
        """Return the SDK, with its thread and its connections. Raises ProviderError."""
        with self._lock:
            if self._sdk is None:
                self.require_key()
                self._sdk = self._create_sdk()
            return self._sdk

    def _create_sdk(self) -> Any:
        try:
            from nebius.aio.token.renewable import (  # noqa: PLC0415 - half a second
                OPTION_RENEW_REQUEST_TIMEOUT,
                OPTION_REPORT_ERROR,
            )
            from nebius.base.options import INSECURE  # noqa: PLC0415
            from nebius.base.protos.dynamic import REGISTRY  # noqa: PLC0415
            from nebius.base.resolver import Constant  # noqa: PLC0415
            from nebius.sdk import SDK  # noqa: PLC0415
        except ImportError:
            raise ProviderError(f"{PROVIDER}: its SDK is not installed: {install_hint(PROVIDER)}") from None
        logging.getLogger("nebius").setLevel(logging.CRITICAL)  # it logs requests, and repeats every error
        # At the first field that it does not know, the SDK imports its whole API (200 MB, seconds), for extensions of
        # messages. The messages that gpuwatch reads have none.
        REGISTRY._all_modules_loaded = True
        # A wrong key must fail this request, not be renewed in the background for a quarter of an hour.
        self._auth_options = {OPTION_REPORT_ERROR: "true", OPTION_RENEW_REQUEST_TIMEOUT: str(self._timeout_s)}
        values: dict[str, Any] = {"user_agent_prefix": "gpuwatch"}
        if self._file:
            values["credentials_file_name"] = str(self._file)
        else:
            values["credentials"] = self._token
        if self._address is not None:
            port = self._address.port or (80 if self._address.scheme == "http" else 443)
            values["resolver"] = Constant(f"{self._address.hostname}:{port}")
            if self._address.scheme == "http":
                values["options"] = [(INSECURE, True)]
        try:
            return SDK(**values)
        except Exception as error:  # reading the file: the error may contain its values
            raise KeyRejected(
                f"{PROVIDER}: options.credentials_file contains no valid service account credentials "
                f"({type(error).__name__})"
            ) from None
