"""Maps gRPC statuses of Nebius to errors. Pure; reads only the attributes of the SDK's errors."""

from __future__ import annotations

from typing import Any, Final

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
