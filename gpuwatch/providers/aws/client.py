"""The client of AWS, on boto3: session, clients, pages. gpuwatch repeats reads; boto3 itself sends everything once."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from html import unescape
from threading import Lock
from typing import Any, Final, TypeVar

from gpuwatch.errors import KeyRejected, OrderRefused, PayloadChanged, ProviderError, RefusalKind
from gpuwatch.installation import install_hint
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Tools
from gpuwatch.providers.aws.error_mapping import code_of, ordering_error, reading_error
from gpuwatch.providers.toolkit.api_client import PacedClient
from gpuwatch.providers.toolkit.fan_out import query_all
from gpuwatch.providers.toolkit.rate_limiter import WaitStopped
from gpuwatch.redaction import register_secret

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
        try:
            self.acquire(kind, urgent=True)
            client = self._client("ec2", region, ordering=True)
        except WaitStopped as stopped:
            raise OrderRefused("aws: not sent, gpuwatch is stopping", RefusalKind.NOT_SENT) from stopped
        except KeyRejected as error:
            raise OrderRefused(str(error), RefusalKind.KEY) from error
        except ProviderError as error:
            raise OrderRefused(f"not sent: {error}", RefusalKind.NOT_SENT) from error
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
        try:
            from botocore.config import Config  # noqa: PLC0415 - a third of a second
        except ImportError:
            raise ProviderError(f"aws: boto3 is not installed: {install_hint('aws')}") from None
        timeout_s = max(self._timeout_s, _CREATE_S) if ordering else self._timeout_s
        config = Config(
            connect_timeout=min(_CONNECT_S, self._timeout_s),
            read_timeout=timeout_s,
            retries={"total_max_attempts": 1},
            user_agent_extra="gpuwatch",
            proxies={} if self._endpoint else None,
        )
        try:
            client = self._open_session().client(
                service, region_name=region, endpoint_url=self._endpoint, config=config
            )
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
