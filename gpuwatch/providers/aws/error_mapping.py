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
    ProviderUnreachable,
    RateLimited,
    RefusalKind,
    RefusalScope,
)
from gpuwatch.providers.toolkit.error_mapping import display_sentence

_SHOWN: Final = 200
NO_INSTANCE: Final = "InvalidInstanceID.NotFound"
_GONE: Final = frozenset({
    "InsufficientInstanceCapacity", "InsufficientCapacity", "InsufficientHostCapacity", "ReservationCapacityExceeded",
    "InsufficientCapacityOnHost", "InsufficientVolumeCapacity", "InsufficientAddressCapacity",
    "InsufficientFreeAddressesInSubnet", "Unsupported", "UnsupportedHostConfiguration",
})  # fmt: skip
_KEY: Final = frozenset({
    "AuthFailure", "UnauthorizedOperation", "InvalidClientTokenId", "SignatureDoesNotMatch", "AccessDenied",
    "AccessDeniedException", "UnrecognizedClientException", "ExpiredToken", "ExpiredTokenException", "RequestExpired",
    "OptInRequired", "PendingVerification", "Blocked", "MissingAuthenticationToken", "InvalidSignatureException",
    "IncompleteSignature", "NotAuthorized", "401", "403",
})  # fmt: skip
_TOO_FAST: Final = frozenset({
    "RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "TooManyRequestsException",
    "RequestThrottled", "RequestThrottledException", "EC2ThrottledException", "SlowDown", "429",
})  # fmt: skip
_QUOTA: Final = frozenset({
    "VcpuLimitExceeded", "InstanceLimitExceeded", "MaxSpotInstanceCountExceeded", "VolumeLimitExceeded",
    "AddressLimitExceeded", "SpotInstanceRequestLimitExceeded", "MaxSpotFleetRequestCountExceeded",
})  # fmt: skip
# The scope of a code: subnets and free addresses are per zone; key pairs, security groups and images per region;
# quotas per region, family and rental type; capacity per zone and type, which is the offer.
_OF_ZONE: Final = frozenset({"InsufficientFreeAddressesInSubnet", "VPCIdNotSpecified", "InvalidSubnetID.NotFound"})
_OF_REGION: Final = frozenset({
    "InvalidKeyPair.NotFound", "InvalidGroup.NotFound", "InvalidAMIID.NotFound", "InvalidAMIID.Unavailable",
})  # fmt: skip
_NOT_SOLD: Final = frozenset({"Unsupported", "UnsupportedHostConfiguration"})
_NOT_SOLD_S: Final = 3600.0  # assumed: a zone without a type lacks it all day
_NO_SUBNET: Final = "default subnet"
_BAD: Final = ("Invalid", "Missing", "Malformed", "Unknown", "ParameterNot", "OptIn", "IncorrectState")
_NO_IAM: Final = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
# Raised before anything was sent. Matched by name, so that this module works without botocore.
_NOT_SENT: Final = frozenset({
    "EndpointConnectionError", "ConnectTimeoutError", "ProxyConnectionError", "SSLError", "NoRegionError",
    "UnknownEndpointError", "InvalidEndpointDiscoveryConfigurationError", "EndpointProviderError",
})  # fmt: skip
_NO_CREDENTIALS: Final = frozenset({
    "NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound",
    "TokenRetrievalError", "SSOTokenLoadError", "UnauthorizedSSOTokenError", "NoAuthTokenError",
    "MetadataRetrievalError", "ConfigNotFound", "ConfigParseError", "LoginRefreshRequired",
})  # fmt: skip
_DOWN: Final = frozenset({
    "ReadTimeoutError", "ConnectionClosedError", "HTTPClientError", "ConnectionError", "IncompleteReadError",
    "ResponseStreamingError", "ConnectionCut",
})  # fmt: skip
# Replaces their own texts, which contain values of a request or an answer.
_WORDS: Final = {
    "ParamValidationError": "the request is not valid",
    "ResponseParserError": "an unexpected answer",
}


class NoSuchInstance(ProviderError):
    """EC2's error code states that the requested instance does not exist."""


def reading_error(error: Exception, where: str) -> ProviderError:
    """Map the error of a request that only reads.

    Args:
        where: the region.
    """
    name, code, status = type(error).__name__, code_of(error), _status(error)
    line = f"aws: {where}: {error_text(error)}"
    if _is_about_the_key(code, status, name):
        return KeyRejected(line)
    if code in _TOO_FAST or status == 429:
        return RateLimited(line)
    if code == NO_INSTANCE and status == 400:
        return NoSuchInstance(line)
    if 300 <= status < 400:
        return ProviderDown(f"aws: {where}: {status}, a redirect, not followed; check `base_url`")
    if name in _NOT_SENT:
        return ProviderUnreachable(line)
    if name in _DOWN or status >= 500 or status == 408:
        return ProviderDown(line)
    return PayloadChanged(line)


def ordering_error(error: Exception, where: str) -> OrderError:
    """Map the error of an order; only a refusal by AWS itself proves that nothing was created."""
    name, code, status = type(error).__name__, code_of(error), _status(error)
    line = f"aws: {where}: {error_text(error)}"
    if _is_about_the_key(code, status, name):
        return OrderRefused(line, RefusalKind.KEY)
    if code in _TOO_FAST or status == 429:
        return OrderRateLimited(line)
    if code in _GONE or status == 410:
        scope = RefusalScope.ZONE if code in _OF_ZONE else RefusalScope.OFFER
        return OfferGone(line, scope, _NOT_SOLD_S if code in _NOT_SOLD else None)
    kind = _kind_of(name, code, status)
    if kind is None:
        return OutcomeUnknown(line)
    if code in _QUOTA:
        return OrderRefused(f"{line} (a quota of the account)", kind, RefusalScope.REGION_FAMILY)
    return OrderRefused(line, kind, _scope_of(code, line) if 400 <= status < 500 else None)


def _scope_of(code: str, line: str) -> RefusalScope | None:
    """Return the scope of a refusal; None: the default of its kind."""
    if code in _OF_ZONE or _NO_SUBNET in line.lower():
        return RefusalScope.ZONE
    return RefusalScope.REGION_FAMILY if code in _OF_REGION else None


def _kind_of(name: str, code: str, status: int) -> RefusalKind | None:
    """Return why it was refused; None: it may have been carried out."""
    if name in _NOT_SENT:
        return RefusalKind.NOT_SENT
    if name == "ParamValidationError":
        return RefusalKind.BAD_ORDER
    if code == "SpotMaxPriceTooLow":
        return RefusalKind.BID_TOO_LOW
    if code in _QUOTA:
        return RefusalKind.OTHER
    # The same token with other values: an earlier order of this launch may have been carried out.
    if code == "IdempotentParameterMismatch" or not 400 <= status < 500 or status == 408:
        return None
    return RefusalKind.BAD_ORDER if code.startswith(_BAD) or status == 400 else RefusalKind.OTHER


def code_of(error: Exception) -> str:
    """Return AWS's code; empty: the answer is not from AWS."""
    code = _answer(error, "Error").get("Code")
    return code if isinstance(code, str) else ""


def error_text(error: Exception) -> str:
    """Return the error for display, on one line, without secrets."""
    name = type(error).__name__
    if name in _WORDS:
        return _WORDS[name]
    sentence = _answer(error, "Error").get("Message")
    code = code_of(error)
    text = f"{code}: {sentence}" if code else _own_words(error)
    return display_sentence(text, _SHOWN)


def _own_words(error: Exception) -> str:
    """Return the text of botocore's and gpuwatch's errors; otherwise only the name: the text may show the request."""
    known = type(error).__module__.startswith(("botocore.", "boto3.", __package__ or "gpuwatch."))
    return str(error) if known else type(error).__name__


def _is_about_the_key(code: str, status: int, name: str) -> bool:
    return name in _NO_CREDENTIALS or code in _KEY or code.startswith(_NO_IAM) or status in (401, 403)


def _status(error: Exception) -> int:
    status = _answer(error, "ResponseMetadata").get("HTTPStatusCode")
    return status if isinstance(status, int) else 0


def _answer(error: Exception, part: str) -> dict[str, Any]:
    response = getattr(error, "response", None)
    found = response.get(part) if isinstance(response, dict) else None
    return found if isinstance(found, dict) else {}
