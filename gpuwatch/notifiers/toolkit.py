"""What the channels share: an alert as lines of plain pieces, and alerts that only some recipients take. Pure."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Iterator, Sequence

import msgspec

from gpuwatch.errors import DeliverLater, DeliveryError, DeliveryRefused
from gpuwatch.ports import Alert, OfferLine
from gpuwatch.ports.findings import Finding

CHECK_S = 8.0  # the longest that a check may take: `gpuwatch doctor` gives up after 10 s
MAX_TEXT = 300  # of one value: a long text of a host must not push the rest out of a message
_FULL_PARTS = 3  # more watches than that get one line each
_SEPARATORS = frozenset({"\u2028", "\u2029"})


class Piece(msgspec.Struct, frozen=True):
    """A part of one line, cleaned, not escaped."""

    text: str
    bold: bool = False
    url: str | None = None


Line = tuple[Piece, ...]  # empty: a blank line


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
        yield Finding(area=area, state="ok", text=f"{check()}; gpuwatch notify sends a test message")
    except DeliveryError as error:
        mend = f"mend [notify.{channel}], then gpuwatch notify"
        if isinstance(error, DeliverLater):
            mend = "check its address and the network; gpuwatch notify sends a test message"
        yield Finding(area=area, state="fault", text=str(error).removeprefix(f"{channel}: "), mend=mend)


def as_text(alert: Alert) -> str:
    """The whole alert as plain text."""
    return "\n".join(plain(line) for line in (*lines(alert), *footer(alert)))


def plain(line: Line) -> str:
    """One line without markup; a link follows its text."""
    return "".join(piece.text + (f" <{piece.url}>" if piece.url else "") for piece in line)


def subject(alert: Alert) -> str:
    """The headline, safe as one line."""
    return cleaned(alert.headline, 150)


def lines(alert: Alert) -> list[Line]:
    """Everything but the footer, most important first."""
    return [(Piece(cleaned(alert.headline), bold=True),), *_body(alert)]


def footer(alert: Alert) -> list[Line]:
    """Shows the id, by which people recognise a message that came twice."""
    return [(), (Piece(f"gpuwatch · alert {cleaned(alert.alert_id)}"),)]


def cleaned(text: str, most: int = MAX_TEXT) -> str:
    """One line of at most so many characters, without controls, invisible formatting and lone surrogates."""
    kept = "".join(" " if _is_unfit(character) else character for character in text[: most * 4])
    kept = " ".join(kept.split())
    return kept if len(kept) <= most else kept[: most - 1] + "…"


def _is_unfit(character: str) -> bool:
    return character in _SEPARATORS or unicodedata.category(character)[0] == "C"


def _body(alert: Alert) -> Iterator[Line]:
    yield from (_labelled(label, value) for label, value in alert.facts)
    if alert.why:
        yield _labelled("Why now", alert.why)
    if alert.did:
        yield _labelled("Done", alert.did)
    yield from _parts(alert.parts)
    if alert.offers:
        yield ()
        yield (Piece("Cheapest", bold=True),)
        yield from (_offer(number, offer) for number, offer in enumerate(alert.offers, start=1))
    if alert.can_do:
        yield ()
        yield (Piece("You can", bold=True),)
        yield from ((Piece(f"• {cleaned(hint)}"),) for hint in alert.can_do)


def _parts(parts: Sequence[Alert]) -> Iterator[Line]:
    if len(parts) > _FULL_PARTS:
        yield from (_short(part) for part in parts)
        return
    for part in parts:
        yield ()
        yield from lines(part)
        yield (Piece(f"alert {cleaned(part.alert_id)}"),)


def _short(part: Alert) -> Line:
    best = part.offers[0] if part.offers else None
    place = f" · {cleaned(best.place)} · {cleaned(best.provider)} " if best else ""
    found = (_link(best),) if best else ()
    done = f" · {cleaned(part.did)}" if part.did else ""
    return (
        Piece("• "),
        Piece(cleaned(part.headline), bold=True),
        Piece(place),
        *found,
        Piece(f"{done} · {part.alert_id}"),
    )


def _labelled(label: str, value: str) -> Line:
    return (Piece(f"{cleaned(label)}: "), Piece(cleaned(value)))


def _offer(number: int, offer: OfferLine) -> Line:
    spot = ", spot" if offer.spot else ""
    marks = f" ({cleaned(', '.join(offer.marks))})" if offer.marks else ""
    rest = (
        f" per GPU-hour (listed ${cleaned(offer.listed_usd_gpu_hour)}) · {cleaned(offer.gpu)} × {offer.gpu_count}{spot}"
        f" · ${cleaned(offer.price_usd_hour)}/h · {cleaned(offer.place)} · {cleaned(offer.reliability)}"
        f" · {cleaned(offer.provider)}{marks} "
    )
    return (Piece(f"{number}. "), Piece(f"${cleaned(offer.price_usd_gpu_hour)}", bold=True), Piece(rest), _link(offer))


def _link(offer: OfferLine) -> Piece:
    url = offer.url if offer.url and offer.url.startswith(("https://", "http://")) else None
    return Piece(cleaned(offer.offer_id), url=None if url is None else cleaned(url, 1000).replace(" ", "%20"))
