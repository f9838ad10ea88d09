"""What any server may answer, or not, and which error that is at every provider; for unit tests with respx."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import httpx
import pytest
import respx

from gpuwatch.errors import (
    GpuwatchError,
    KeyRejected,
    OrderError,
    OrderRateLimited,
    OrderRefused,
    OutcomeUnknown,
    PayloadChanged,
    ProviderDown,
    ProviderMoved,
    ProviderUnreachable,
    RateLimited,
    RefusalKind,
)

RETRY_AFTER_S: Final = 7.0
Fault = Callable[[httpx.Request], httpx.Response] | type[Exception]


def answer(status: int, content: bytes = b"{}") -> Fault:
    """Return a side effect for respx: this answer, to every request."""
    return lambda _request: httpx.Response(status, content=content, headers={"retry-after": f"{RETRY_AFTER_S:g}"})


_PAGE: Final = b"<html><title>maintenance</title></html>"
# answer or loss → the error of a request that only reads, and of one that changes something
_FAULTS: Final[Mapping[str, tuple[Fault, type[Exception], type[Exception]]]] = {
    "307": (answer(307), ProviderMoved, OrderRefused),
    "401": (answer(401), KeyRejected, OrderRefused),
    "403": (answer(403), KeyRejected, OrderRefused),
    "404": (answer(404, b""), PayloadChanged, OrderRefused),
    "409": (answer(409), PayloadChanged, OrderRefused),
    "422": (answer(422), PayloadChanged, OrderRefused),
    "429": (answer(429), RateLimited, OrderRateLimited),
    "500": (answer(500), ProviderDown, OutcomeUnknown),
    "a page, 404": (answer(404, _PAGE), PayloadChanged, OrderRefused),
    "a page, 502": (answer(502, _PAGE), ProviderDown, OutcomeUnknown),
    "no connection": (httpx.ConnectError, ProviderUnreachable, OrderRefused),  # nothing was sent
    "no connection in time": (httpx.ConnectTimeout, ProviderUnreachable, OrderRefused),
    "no answer in time": (httpx.ReadTimeout, ProviderDown, OutcomeUnknown),  # it may have been carried out
    "a lost connection": (httpx.ReadError, ProviderDown, OutcomeUnknown),
    "no HTTP": (httpx.RemoteProtocolError, ProviderDown, OutcomeUnknown),
}
_UNREADABLE: Final[Mapping[str, tuple[Fault, type[Exception], type[Exception]]]] = {
    "a page": (answer(200, _PAGE), PayloadChanged, OutcomeUnknown),
    "nothing": (answer(200, b""), PayloadChanged, OutcomeUnknown),
    "half an object": (answer(200, b'{"data": [{"id": "1'), PayloadChanged, OutcomeUnknown),
}


def read_faults(own: Mapping[str, type[Exception]] = {}) -> list[Any]:
    """Return parameters (fault, error) for a request that only reads.

    Args:
        own: this provider's errors, by the names above.
    """
    faults = _FAULTS | _UNREADABLE
    return [pytest.param(fault, own.get(name, error), id=name) for name, (fault, error, _) in faults.items()]


def create_faults(own: Mapping[str, type[Exception]] = {}) -> list[Any]:
    """Return parameters (fault, error) for a request whose answer names what it created; `own` as above."""
    faults = _FAULTS | _UNREADABLE
    return [pytest.param(fault, own.get(name, error), id=name) for name, (fault, _, error) in faults.items()]


def end_faults(own: Mapping[str, type[Exception]] = {}) -> list[Any]:
    """Return parameters (fault, error) for a request whose 2xx says all; `own` as above."""
    return [pytest.param(fault, own.get(name, error), id=name) for name, (fault, _, error) in _FAULTS.items()]


def assert_fails(route: respx.Route, fault: Fault, error: type[Exception], attempt: Callable[[], object]) -> None:
    """Check that the attempt raises the error in one line. A change is sent once; a lost one may have happened."""
    route.mock(side_effect=fault)
    with pytest.raises(error) as raised:
        attempt()
    assert isinstance(raised.value, GpuwatchError)
    assert len(str(raised.value).splitlines()) == 1
    assert getattr(raised.value, "retry_after_s", RETRY_AFTER_S) == RETRY_AFTER_S
    if isinstance(raised.value, OrderError):
        assert route.call_count == 1
        is_not_sent = getattr(raised.value, "kind", None) is RefusalKind.NOT_SENT
        assert is_not_sent == (fault in (httpx.ConnectError, httpx.ConnectTimeout))
