"""Maps AWS's error codes. The status alone is ambiguous: no capacity is a 500, too many requests a 503.

source: AWS's list of EC2 API error codes, and botocore's exceptions, read 2026-11.
"""

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
    ProviderMoved,
    ProviderUnreachable,
    RateLimited,
    RefusalKind,
    RefusalScope,
)
from gpuwatch.providers.toolkit.error_mapping import display_sentence

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


class NoSuchInstance(ProviderError):
    """EC2's error code states that the requested instance does not exist."""


def reading_error(error: Exception, region: str) -> ProviderError:
    """Map the error of a request that only reads.

    Args:
        region: the region.
    """
    name, code, status = type(error).__name__, code_of(error), _status(error)
    line = f"aws: {region}: {error_text(error)}"
    if _is_key_error(code, status, name):
        return KeyRejected(line)
    if code in _RATE_LIMIT_CODES or status == 429:
        return RateLimited(line)
    if code == NO_INSTANCE and status == 400:
        return NoSuchInstance(line)
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
