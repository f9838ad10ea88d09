"""What the channels share: the layout of an alert, and alerts that only some recipients take. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence

from gpuwatch.errors import DeliverLater, DeliveryError, DeliveryRefused
from gpuwatch.notifiers.toolkit.layout import GAP, Line, Piece, Role, as_text, cleaned, footer, lines, plain, subject
from gpuwatch.notifiers.toolkit.templates import TEMPLATES, own_text, templates_faults, text_of
from gpuwatch.ports.findings import Finding

__all__ = [
    "CHECK_S",
    "GAP",
    "TEMPLATES",
    "Line",
    "Piece",
    "Role",
    "as_text",
    "checked",
    "cleaned",
    "footer",
    "key_of",
    "lines",
    "own_text",
    "plain",
    "remaining",
    "settle",
    "subject",
    "templates_faults",
    "text_of",
]

CHECK_S = 8.0  # the longest that a check may take: `gpuwatch doctor` gives up after 10 s


def key_of(recipient: str) -> str:
    """Stands for a recipient who took an alert, without naming it; with `!` in front, for one who never will."""
    return hashlib.sha256(recipient.encode()).hexdigest()[:12]


def remaining(recipients: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Those who have neither taken the alert nor refused it for good."""
    return [one for one in recipients if not {key_of(one), "!" + key_of(one)} & set(taken)]


def settle(channel: str, later: str, refused: str, done: Sequence[str], waits_s: Sequence[float] = ()) -> None:
    """What a delivery to several recipients comes to; returns if all of them took it.

    Args:
        later: why some cannot take it now; empty: there are none.
        refused: why some never will; empty: there are none.
        done: the keys of those who took it or refused it, now or before.

    Raises:
        DeliverLater, DeliveryRefused: with the keys in `taken`; without them nobody took it.
    """
    if later:
        raise DeliverLater(f"{channel}: {later}", waits_s=waits_s, taken=done, refused=refused)
    if refused and all(key.startswith("!") for key in done):
        raise DeliveryRefused(f"{channel}: {refused}")
    if refused:
        raise DeliveryRefused(f"{channel}: {refused}", taken=done, refused=refused)


def checked(channel: str, check: Callable[[], str]) -> Iterator[Finding]:
    """For `ChannelInfo.doctor`: what a channel's own check found.

    Args:
        check: asks the service whether it would take alerts, and sends none; returns what was found, in a few words.
            Raises DeliveryError.
    """
    area = f"alerts by {channel}"
    try:
        yield Finding(area=area, state="ok", text=f"{check()}; send a test message with gpuwatch notify")
    except DeliveryError as error:
        mend = f"fix [notify.{channel}], then run gpuwatch notify"
        if isinstance(error, DeliverLater):
            mend = "check its address and the network; send a test message with gpuwatch notify"
        yield Finding(area=area, state="fault", text=str(error).removeprefix(f"{channel}: "), mend=mend)
