"""Shared by the channels: the layout of an alert, and alerts that only some recipients accept. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence

from gpuwatch.errors import DeliverLater, DeliveryError, DeliveryRefused
from gpuwatch.notifiers.toolkit.layout import GAP, Line, Piece, Role, as_text, cleaned, footer, lines, plain, subject
from gpuwatch.notifiers.toolkit.owner_texts import TEMPLATES, custom_text, template_errors, text_of
from gpuwatch.ports.findings import Finding

__all__ = [
    "CHECK_S",
    "GAP",
    "TEMPLATES",
    "Line",
    "Piece",
    "Role",
    "as_text",
    "check_findings",
    "cleaned",
    "custom_text",
    "finish_delivery",
    "footer",
    "lines",
    "pending_recipients",
    "plain",
    "recipient_key",
    "subject",
    "template_errors",
    "text_of",
]

CHECK_S = 8.0  # longest duration of a check: `gpuwatch doctor` gives up after 10 s


def recipient_key(recipient: str) -> str:
    """Return a key for a recipient that does not reveal it; with the prefix `!` for one that rejected the alert."""
    return hashlib.sha256(recipient.encode()).hexdigest()[:12]


def pending_recipients(recipients: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Return the recipients that have neither accepted the alert nor rejected it for good."""
    return [
        recipient
        for recipient in recipients
        if not {recipient_key(recipient), "!" + recipient_key(recipient)} & set(taken)
    ]


def finish_delivery(
    channel: str, retry_reason: str, refused: str, settled: Sequence[str], waits_s: Sequence[float] = ()
) -> None:
    """Conclude a delivery to several recipients; returns if all of them accepted it.

    Args:
        retry_reason: why some cannot accept it now; empty: none.
        refused: why some rejected it for good; empty: none.
        settled: the keys of those who accepted or rejected it, now or earlier.

    Raises:
        DeliverLater, DeliveryRefused: with the keys in `taken`; without them nobody accepted it.
    """
    if retry_reason:
        raise DeliverLater(f"{channel}: {retry_reason}", waits_s=waits_s, taken=settled, refused=refused)
    if refused and all(key.startswith("!") for key in settled):
        raise DeliveryRefused(f"{channel}: {refused}")
    if refused:
        raise DeliveryRefused(f"{channel}: {refused}", taken=settled, refused=refused)


def check_findings(channel: str, check: Callable[[], str]) -> Iterator[Finding]:
    """For `ChannelInfo.doctor`: yields the result of a channel's own check.

    Args:
        check: tests whether the service would accept alerts, without sending any; returns the result in a few words.
            Raises DeliveryError.
    """
    area = f"alerts by {channel}"
    try:
        yield Finding(area=area, state="ok", text=f"{check()}; send a test message with gpuwatch alerts test")
    except DeliveryError as error:
        mend = f"fix [notify.{channel}], then run gpuwatch alerts test"
        if isinstance(error, DeliverLater):
            mend = "check its address and the network; send a test message with gpuwatch alerts test"
        yield Finding(area=area, state="fault", text=str(error).removeprefix(f"{channel}: "), mend=mend)
