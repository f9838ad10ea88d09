"""The client of AWS, on boto3: session, clients, pages, errors. gpuwatch repeats reads; boto3 sends everything once.

The status of an error alone is ambiguous (no capacity is a 500, too many requests a 503), so AWS's codes count.
source: AWS's list of EC2 API error codes, and botocore's exceptions, read 2026-11.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from html import unescape
from threading import Lock
from typing import Any, Final, TypeVar

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
    ProviderMoved,
    ProviderUnreachable,
    RateLimited,
    RefusalKind,
    RefusalScope,
)
from gpuwatch.installation import install_hint
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Tools
from gpuwatch.providers.toolkit.api_client import PacedClient
from gpuwatch.providers.toolkit.catalogue import query_all
from gpuwatch.providers.toolkit.error_mapping import InstanceNotFound, display_sentence
from gpuwatch.redaction import register_secret

_MAX_TEXT_LENGTH: Final = 200
NO_INSTANCE: Final = "InvalidInstanceID.NotFound"
_CAPACITY_CODES: Final = frozenset({
    "InsufficientInstanceCapacity", "InsufficientCapacity", "InsufficientHostCapacity", "ReservationCapacityExceeded",
    "InsufficientCapacityOnHost", "InsufficientVolumeCapacity", "InsufficientAddressCapacity",
    "InsufficientFreeAddressesInSubnet", "Unsupported", "UnsupportedHostConfiguration",
})  # fmt: skip
_KEY_CODES: Final = frozenset({
    "AuthFailure", "UnauthorizedOperation", "InvalidClientTokenId", "SignatureDoesNotMatch", "AccessDenied",
    "AccessDeniedException", "UnrecognizedClientException", "ExpiredToken", "ExpiredTokenException", "RequestExpired",
    "OptInRequired", "PendingVerification", "Blocked", "MissingAuthenticationToken", "InvalidSignatureException",
    "IncompleteSignature", "NotAuthorized", "401", "403",
})  # fmt: skip
_RATE_LIMIT_CODES: Final = frozenset({
    "RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "TooManyRequestsException",
    "RequestThrottled", "RequestThrottledException", "EC2ThrottledException", "SlowDown", "429",
})  # fmt: skip
_QUOTA_CODES: Final = frozenset({
    "VcpuLimitExceeded", "InstanceLimitExceeded", "MaxSpotInstanceCountExceeded", "VolumeLimitExceeded",
    "AddressLimitExceeded", "SpotInstanceRequestLimitExceeded", "MaxSpotFleetRequestCountExceeded",
})  # fmt: skip
# The scope of a code: subnets and free addresses are per zone; key pairs, security groups and images per region;
# quotas per region, family and rental type; capacity per zone and type, which is the offer.
_ZONE_CODES: Final = frozenset({"InsufficientFreeAddressesInSubnet", "VPCIdNotSpecified", "InvalidSubnetID.NotFound"})
_REGION_CODES: Final = frozenset({
    "InvalidKeyPair.NotFound", "InvalidGroup.NotFound", "InvalidAMIID.NotFound", "InvalidAMIID.Unavailable",
})  # fmt: skip
_UNSUPPORTED_CODES: Final = frozenset({"Unsupported", "UnsupportedHostConfiguration"})
_UNSUPPORTED_S: Final = 3600.0  # assumed: a zone without a type lacks it all day
_NO_SUBNET: Final = "default subnet"
_BAD_ORDER_PREFIXES: Final = ("Invalid", "Missing", "Malformed", "Unknown", "ParameterNot", "OptIn", "IncorrectState")
_NO_IAM: Final = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
# Raised before anything was sent. Matched by name, so that this module works without botocore.
_NOT_SENT_ERRORS: Final = frozenset({
    "EndpointConnectionError", "ConnectTimeoutError", "ProxyConnectionError", "SSLError", "NoRegionError",
    "UnknownEndpointError", "InvalidEndpointDiscoveryConfigurationError", "EndpointProviderError",
})  # fmt: skip
_CREDENTIAL_ERRORS: Final = frozenset({
    "NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound",
    "TokenRetrievalError", "SSOTokenLoadError", "UnauthorizedSSOTokenError", "NoAuthTokenError",
    "MetadataRetrievalError", "ConfigNotFound", "ConfigParseError", "LoginRefreshRequired",
})  # fmt: skip
_CONNECTION_ERRORS: Final = frozenset({
    "ReadTimeoutError", "ConnectionClosedError", "HTTPClientError", "ConnectionError", "IncompleteReadError",
    "ResponseStreamingError", "ConnectionCut",
})  # fmt: skip
# Replaces their own texts, which contain values of a request or an answer.
_SAFE_TEXTS: Final = {
    "ParamValidationError": "the request is not valid",
    "ResponseParserError": "an unexpected answer",
}


def reading_error(error: Exception, region: str) -> ProviderError:
    """Map the error of a request that only reads; `InstanceNotFound`: EC2's own error code states it."""
    name, code, status = type(error).__name__, code_of(error), _status(error)
    line = f"aws: {region}: {error_text(error)}"
    if _is_key_error(code, status, name):
        return KeyRejected(line)
    if code in _RATE_LIMIT_CODES or status == 429:
        return RateLimited(line)
    if code == NO_INSTANCE and status == 400:
        return InstanceNotFound(line)
    if 300 <= status < 400:
        return ProviderMoved(f"aws: {region}: {status}, a redirect, not followed; check `base_url`")
    if name in _NOT_SENT_ERRORS:
        return ProviderUnreachable(line)
    if name in _CONNECTION_ERRORS or status >= 500 or status == 408:
        return ProviderDown(line)
    return PayloadChanged(line)


def ordering_error(error: Exception, region: str) -> OrderError:
    """Map the error of an order; only a refusal by AWS itself proves that nothing was created."""
    name, code, status = type(error).__name__, code_of(error), _status(error)
    line = f"aws: {region}: {error_text(error)}"
    if _is_key_error(code, status, name):
        return OrderRefused(line, RefusalKind.KEY)
    if code in _RATE_LIMIT_CODES or status == 429:
        return OrderRateLimited(line)
    if code in _CAPACITY_CODES or status == 410:
        scope = RefusalScope.ZONE if code in _ZONE_CODES else RefusalScope.OFFER
        return OfferGone(line, scope, _UNSUPPORTED_S if code in _UNSUPPORTED_CODES else None)
    kind = _kind_of(name, code, status)
    if kind is None:
        return OutcomeUnknown(line)
    if code in _QUOTA_CODES:
        return OrderRefused(f"{line} (a quota of the account)", kind, RefusalScope.REGION_FAMILY)
    return OrderRefused(line, kind, _scope_of(code, line) if 400 <= status < 500 else None)


def _scope_of(code: str, line: str) -> RefusalScope | None:
    """Return the scope of a refusal; None: the default of its kind."""
    if code in _ZONE_CODES or _NO_SUBNET in line.lower():
        return RefusalScope.ZONE
    return RefusalScope.REGION_FAMILY if code in _REGION_CODES else None


def _kind_of(name: str, code: str, status: int) -> RefusalKind | None:
    """Return why it was refused; None: it may have been carried out."""
    if name in _NOT_SENT_ERRORS:
        return RefusalKind.NOT_SENT
    if name == "ParamValidationError":
        return RefusalKind.BAD_ORDER
    if code == "SpotMaxPriceTooLow":
        return RefusalKind.BID_TOO_LOW
    if code in _QUOTA_CODES:
        return RefusalKind.OTHER
    # The same token with other values: an earlier order of this launch may have been carried out.
    if code == "IdempotentParameterMismatch" or not 400 <= status < 500 or status == 408:
        return None
    return RefusalKind.BAD_ORDER if code.startswith(_BAD_ORDER_PREFIXES) or status == 400 else RefusalKind.OTHER


def code_of(error: Exception) -> str:
    """Return AWS's code; empty: the answer is not from AWS."""
    code = _response_part(error, "Error").get("Code")
    return code if isinstance(code, str) else ""


def error_text(error: Exception) -> str:
    """Return the error for display, on one line, without secrets."""
    name = type(error).__name__
    if name in _SAFE_TEXTS:
        return _SAFE_TEXTS[name]
    sentence = _response_part(error, "Error").get("Message")
    code = code_of(error)
    text = f"{code}: {sentence}" if code else _safe_text(error)
    return display_sentence(text, _MAX_TEXT_LENGTH)


def _safe_text(error: Exception) -> str:
    """Return the text of botocore's and gpuwatch's errors; otherwise only the name: the text may show the request."""
    is_known = type(error).__module__.startswith(("botocore.", "boto3.", __package__ or "gpuwatch."))
    return str(error) if is_known else type(error).__name__


def _is_key_error(code: str, status: int, name: str) -> bool:
    return name in _CREDENTIAL_ERRORS or code in _KEY_CODES or code.startswith(_NO_IAM) or status in (401, 403)


def _status(error: Exception) -> int:
    status = _response_part(error, "ResponseMetadata").get("HTTPStatusCode")
    return status if isinstance(status, int) else 0


def _response_part(error: Exception, part: str) -> dict[str, Any]:
    response = getattr(error, "response", None)
    found = response.get(part) if isinstance(response, dict) else None
    return found if isinstance(found, dict) else {}


_PAGES_MAX: Final = 500
_CONNECT_S: Final = 5.0
_CREATE_S: Final = 60.0  # giving up on an order early costs more than waiting
# At DEBUG they log complete requests: an instance's environment contains secrets.
_NOISY_LOGGERS: Final = ("boto3", "botocore", "urllib3", "s3transfer")
_NO_CREDENTIALS: Final = (
    "aws: the AWS credential chain (environment, ~/.aws, an instance's role) has no credentials, and "
    'providers.aws.api_key (ACCESS_KEY_ID:SECRET_ACCESS_KEY) is not set; without an account: options.source = "public"'
)
_CODE: Final = re.compile(rb"<Code>([A-Za-z0-9._-]{1,80})</Code>")
_MESSAGE: Final = re.compile(rb"<Message>([^<]{1,600})")
T = TypeVar("T")


class AwsClient(PacedClient):
    """One AWS account: its clients by service and region.

    Args:
        own_endpoints: use AWS's endpoints; False: send all requests to `base_url`.
    """

    def __init__(self, settings: ProviderSettings, tools: Tools, own_endpoints: bool) -> None:
        super().__init__(settings, tools, {})
        options = settings.options
        self.regions = _as_tuple(options.get("regions"))
        self.listed_regions = _as_tuple(options.get("list_regions"))
        self._profile = options.get("profile")
        self._key = settings.api_key
        self._endpoint = None if own_endpoints else settings.base_url
        self._lock = Lock()
        self._session: Any = None
        self._clients: dict[tuple[str, str, bool], Any] = {}

    def start_search(self, urgent: bool) -> None:
        """Wait until the search may start. Raises ProviderDown: gpuwatch is stopping."""
        self._acquire_to_read("search", urgent)

    def call(self, service: str, region: str, operation: str, **values: Any) -> Mapping[str, Any]:
        """Return the answer to a request that only reads, sent up to three times. Raises ProviderError."""

        def attempt(_deadline_s: float) -> Mapping[str, Any]:
            client = self._client(service, region)
            try:
                answer: Mapping[str, Any] = getattr(client, operation)(**values)
            except Exception as error:  # botocore reacts to hostile bytes with plain exceptions
                raise reading_error(error, region) from None
            return answer

        return self.read(f"{service} {region}", attempt)

    def pages(self, service: str, region: str, operation: str, key: str, **values: Any) -> list[Any]:
        """Return the values of a key from all pages. An empty page may be followed by others.

        Raises:
            ProviderError: a page is missing or malformed.
        """
        found: list[Any] = []
        tokens: set[str] = set()
        for _ in range(_PAGES_MAX):
            answer = self.call(service, region, operation, **values)
            rows = answer.get(key)
            if not isinstance(rows, list):
                raise PayloadChanged(f"aws: {region}: the answer has no {key}")
            found += rows
            token = answer.get("NextToken")
            if not token:
                return found
            if not isinstance(token, str) or token in tokens:
                break
            tokens.add(token)
            values["NextToken"] = token
        raise PayloadChanged(f"aws: {region}: the pages of {key} do not end")

    def order(
        self, kind: str, region: str, operation: str, *, ignored_code: str = "", **values: Any
    ) -> Mapping[str, Any] | None:
        """Return the answer to a request that changes something: sent once, whatever happens.

        Args:
            ignored_code: an error code of AWS that is not a failure here; the answer is then None.

        Raises:
            OrderError: not done, or outcome unknown.
        """
        with self.preparing_order():
            self.acquire(kind, urgent=True)
            client = self._client("ec2", region, ordering=True)
        try:
            answer: Mapping[str, Any] = getattr(client, operation)(**values)
        except Exception as error:  # show nothing of the request: it contains secrets
            if ignored_code and code_of(error) == ignored_code:
                return None
            raise ordering_error(error, region) from None
        return answer

    def in_all_regions(self, regions: Sequence[str], request: Callable[[str], T]) -> dict[str, T | ProviderError]:
        """Return the result or error of each region; all regions are requested in parallel."""
        found = query_all({f"aws: {region}": partial(request, region) for region in regions}, self.tools.stop)
        return dict(zip(regions, found, strict=True))

    def _client(self, service: str, region: str, ordering: bool = False) -> Any:
        """Return a client. Threads may share clients, but must not create them at the same time."""
        with self._lock:
            key = (service, region, ordering)
            if key not in self._clients:
                self._clients[key] = self._create_client(service, region, ordering)
            return self._clients[key]

    def _create_client(self, service: str, region: str, ordering: bool) -> Any:
        timeout_s = max(self._timeout_s, _CREATE_S) if ordering else self._timeout_s
        try:
            session = self._open_session()
            from botocore.config import Config  # noqa: PLC0415 - a third of a second

            config = Config(
                connect_timeout=min(_CONNECT_S, self._timeout_s),
                read_timeout=timeout_s,
                retries={"total_max_attempts": 1},
                user_agent_extra="gpuwatch",
                proxies={} if self._endpoint else None,
            )
            client = session.client(service, region_name=region, endpoint_url=self._endpoint, config=config)
        except ProviderError:
            raise
        except Exception as error:
            raise reading_error(error, region) from None
        client.meta.events.register("before-parse", _check_raw_answer)
        return client

    def _open_session(self) -> Any:
        """Return the session if it has credentials. Raises ProviderError."""
        if self._session is not None:
            return self._session
        for name in _NOISY_LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)
        access_key, _, secret = (self._key or "").partition(":")
        if self._key and not secret:
            raise KeyRejected("aws: api_key must have the form ACCESS_KEY_ID:SECRET_ACCESS_KEY")
        session = _new_session(
            aws_access_key_id=access_key or None, aws_secret_access_key=secret or None, profile_name=self._profile
        )
        credentials = session.get_credentials()
        if credentials is None:
            raise KeyRejected(_NO_CREDENTIALS)
        register_secret(
            secret, credentials.secret_key, credentials.token
        )  # the settings do not contain the secrets of the chain
        self._session = session
        return session


def _new_session(**values: Any) -> Any:
    """Create a session of boto3. Raises ProviderError: boto3 is not installed."""
    try:
        from boto3.session import Session  # noqa: PLC0415 - a third of a second
        from botocore.session import Session as Core  # noqa: PLC0415
    except ImportError:
        raise ProviderError(f"aws: boto3 is not installed: {install_hint('aws')}") from None
    core = Core()
    core.register_component("data_loader", _loader())
    return Session(botocore_session=core, **values)


@cache
def _loader() -> Any:
    """One loader for all sessions of this process: reading the service descriptions takes a fifth of a second."""
    from botocore.loaders import create_loader  # noqa: PLC0415

    return create_loader()


class AwsErrorAnswer(Exception):
    """An answer of EC2 other than 2xx, or of a proxy. Has the attributes of botocore's ClientError."""

    def __init__(self, status: int, body: bytes) -> None:
        code, message = (_text(pattern, body) for pattern in (_CODE, _MESSAGE))
        super().__init__(f"{status}, an answer that is not from AWS")
        self.response = {
            "Error": {"Code": code, "Message": message},
            "ResponseMetadata": {"HTTPStatusCode": status},
        }


class ConnectionCut(Exception):
    """The connection ended before the answer was complete."""


def _check_raw_answer(response_dict: Mapping[str, Any], **_: Any) -> None:
    """Check the raw answer before botocore: it loses the status of malformed XML, and does not check the length."""
    status, body, headers = (response_dict[key] for key in ("status_code", "body", "headers"))
    length = str(headers.get("content-length", ""))
    if length.isdecimal() and len(body) < int(length) and not headers.get("content-encoding"):
        raise ConnectionCut(f"the answer was cut short after {len(body)} bytes")
    if status >= 300 and b"__type" not in body[:4096]:  # botocore reads the Pricing API's refusals, which are JSON
        raise AwsErrorAnswer(status, body[:4096])


def _text(pattern: re.Pattern[bytes], body: bytes) -> str:
    found = pattern.search(body)
    return unescape(found[1].decode("utf-8", "replace")) if found else ""


def _as_tuple(value: object) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, tuple | list) else ()
