"""Retries for requests that only read, where a retry may help: not after a wrong key or an unknown format."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from gpuwatch.errors import ProviderDown, ProviderError, RateLimited

if TYPE_CHECKING:
    from tenacity import RetryCallState

_ATTEMPTS: Final = 3
_LONGEST_WAIT_S: Final = 60.0  # with a longer Retry-After the next poll tries
T = TypeVar("T")


def is_retryable(error: BaseException) -> bool:
    """Whether another attempt soon may succeed."""
    if isinstance(error, RateLimited):
        return error.was_sent and (error.retry_after_s is None or error.retry_after_s <= _LONGEST_WAIT_S)
    return isinstance(error, ProviderDown)


def retry(once: Callable[[], T], first: ProviderError, sleep: Callable[[float], None], spent: Callable[[], bool]) -> T:
    """The second and third attempt. tenacity is imported here: it costs 25 ms, and most first attempts succeed.

    Args:
        first: the error of the first attempt.
        spent: whether the time for all attempts is over.

    Raises:
        ProviderError: the last failure.
    """
    import tenacity  # noqa: PLC0415

    backoff = tenacity.wait_random_exponential(multiplier=1.0, max=8.0, min=0.3)

    def wait_s(state: RetryCallState) -> float:
        failed = state.outcome.exception() if state.outcome is not None else None
        asked_wait_s = failed.retry_after_s if isinstance(failed, RateLimited) else None
        return backoff(state) + (asked_wait_s or 0.0)

    def attempt(failed: list[ProviderError] = [first]) -> T:  # noqa: B006 - the first attempt's failure, used once
        if failed:
            raise failed.pop()
        return once()

    retrying = tenacity.Retrying(
        stop=lambda state: state.attempt_number >= _ATTEMPTS or spent(),
        wait=wait_s,
        retry=tenacity.retry_if_exception(is_retryable),
        sleep=sleep,
        reraise=True,
    )
    return retrying(attempt)
