"""Retries requests that only read, if a retry may help: not after a wrong key or an unknown format."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from gpuwatch.errors import ProviderDown, ProviderError, ProviderMoved, RateLimited

if TYPE_CHECKING:
    from tenacity import RetryCallState

_MAX_ATTEMPTS: Final = 3
_MAX_WAIT_S: Final = 60.0  # leave a longer Retry-After to the next poll
T = TypeVar("T")


def is_retryable(error: BaseException) -> bool:
    """Return whether an immediate retry may succeed."""
    if isinstance(error, RateLimited):
        return error.was_sent and (error.retry_after_s is None or error.retry_after_s <= _MAX_WAIT_S)
    return isinstance(error, ProviderDown) and not isinstance(error, ProviderMoved)


def retry(
    attempt_once: Callable[[], T],
    first_error: ProviderError,
    sleep: Callable[[float], None],
    is_timed_out: Callable[[], bool],
) -> T:
    """Run the second and third attempt. Imports tenacity here: it costs 25 ms, and most first attempts succeed.

    Args:
        first_error: the error of the first attempt.
        is_timed_out: returns whether the time for all attempts is used up.

    Raises:
        ProviderError: the last failure.
    """
    import tenacity  # noqa: PLC0415

    backoff = tenacity.wait_random_exponential(multiplier=1.0, max=8.0, min=0.3)

    def wait_s(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        requested_wait_s = error.retry_after_s if isinstance(error, RateLimited) else None
        return backoff(state) + (requested_wait_s or 0.0)

    def attempt(pending_errors: list[ProviderError] = [first_error]) -> T:  # noqa: B006 - the error of the first attempt, used once
        if pending_errors:
            raise pending_errors.pop()
        return attempt_once()

    retrying = tenacity.Retrying(
        stop=lambda state: state.attempt_number >= _MAX_ATTEMPTS or is_timed_out(),
        wait=wait_s,
        retry=tenacity.retry_if_exception(is_retryable),
        sleep=sleep,
        reraise=True,
    )
    return retrying(attempt)
