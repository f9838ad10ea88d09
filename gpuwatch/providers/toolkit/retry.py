"""Retries requests that only read, if a retry may help: not after a wrong key or an unknown format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tenacity import Retrying, retry_if_exception, wait_exception, wait_random_exponential

from gpuwatch.errors import ProviderDown, ProviderMoved, ProviderUnreachable, RateLimited
from gpuwatch.ports.declarations import Tools

_MAX_ATTEMPTS: Final = 3
_MAX_WAIT_S: Final = 60.0  # leave a longer Retry-After to the next poll
_BACKOFF: Final = wait_random_exponential(multiplier=1.0, max=8.0, min=0.3)


def retrying(tools: Tools, is_timed_out: Callable[[], bool]) -> Retrying:
    """Return a loop of up to three attempts; it raises the last failure.

    Args:
        is_timed_out: returns whether the time for all attempts is used up; `tools.stop` ends them, too.
    """

    def may_help(error: BaseException) -> bool:
        return _is_retryable(error) and (tools.is_patient or not isinstance(error, ProviderUnreachable))

    return Retrying(
        retry=retry_if_exception(may_help),
        stop=lambda state: state.attempt_number >= _MAX_ATTEMPTS or tools.stop.is_set() or is_timed_out(),
        wait=_BACKOFF + wait_exception(_requested_wait_s),
        sleep=tools.sleep,
        reraise=True,
    )


def _is_retryable(error: BaseException) -> bool:
    if isinstance(error, RateLimited):
        return error.was_sent and (error.retry_after_s is None or error.retry_after_s <= _MAX_WAIT_S)
    return isinstance(error, ProviderDown) and not isinstance(error, ProviderMoved)


def _requested_wait_s(error: BaseException) -> float:
    requested_wait_s = error.retry_after_s if isinstance(error, RateLimited) else None
    return requested_wait_s or 0.0
