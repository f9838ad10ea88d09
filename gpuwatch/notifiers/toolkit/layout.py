"""An alert as lines of plain pieces: one layout for plain text, Telegram and mail. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from enum import Enum, auto

import msgspec

from gpuwatch.domain.alerts import message_texts as texts
from gpuwatch.language import translate
from gpuwatch.ports import Alert, OfferLine

MAX_TEXT = 300  # per value: a host's long text must not crowd out the rest of a message
_MAX_FULL_PARTS = 3  # with more parts, each gets only one line …
_MAX_SHORT_PARTS = 20  # … up to this number; further parts are counted
_COMMAND = ": gpuwatch "  # text after it can be pasted into a shell
_MIN_SKIPPED_LENGTH = 6  # characters; shorter text may be in the headline by chance
_SEPARATORS = frozenset({"\u2028", "\u2029"})


class Role(Enum):
    """The purpose of a line."""

    TITLE = auto()  # of the message
    PART = auto()  # the title of one of several alerts in a message
    FACT = auto()  # a label, then its value
    LINK = auto()  # the link to tap
    HEADING = auto()
    ITEM = auto()
    GAP = auto()  # a blank line
    FOOTER = auto()


class Piece(msgspec.Struct, frozen=True):
    """A part of one line, cleaned, not escaped."""

    text: str
    bold: bool = False
    url: str | None = None
    code: bool = False  # to be copied unchanged


class Line(msgspec.Struct, frozen=True):
    """One line of a message."""

    role: Role
    pieces: tuple[Piece, ...] = ()


GAP = Line(Role.GAP)


def as_text(alert: Alert) -> str:
    """Return the whole alert as plain text."""
    return "\n".join(plain(line) for line in (*lines(alert), *footer(alert)))


def plain(line: Line) -> str:
    """Return one line without markup; a link follows its text."""
    return "".join(piece.text + (f" <{piece.url}>" if piece.url else "") for piece in line.pieces)


def subject(alert: Alert) -> str:
    """Return the headline as one line, preceded by its severity."""
    return cleaned(_prefix(alert) + alert.headline, 150)


def lines(alert: Alert) -> list[Line]:
    """Yield everything except the footer, most important first."""
    title = _prefix(alert) + cleaned(alert.headline)
    return [Line(Role.TITLE, (Piece(title, bold=True),)), *_body(alert)]


def footer(alert: Alert) -> list[Line]:
    """Return the footer with the id, by which people recognise duplicates."""
    return [GAP, Line(Role.FOOTER, (Piece(translate(texts.FOOTER).format(alert_id=cleaned(alert.alert_id))),))]


def _prefix(alert: Alert) -> str:
    return translate(texts.PREFIXES.get(alert.severity, ""))


def cleaned(text: str, max_length: int = MAX_TEXT) -> str:
    """Return one line of limited length, without control characters, invisible formatting and lone surrogates."""
    line = text[: max_length * 4]
    if not line.isprintable():
        line = "".join(" " if _is_unprintable(character) else character for character in line)
    line = " ".join(line.split())
    return line if len(line) <= max_length else line[: max_length - 1] + "…"


def _is_unprintable(character: str) -> bool:
    return character in _SEPARATORS or unicodedata.category(character)[0] == "C"


def _body(alert: Alert) -> Iterator[Line]:
    yield from (_fact(label, value) for label, value in alert.facts if not _is_in_headline(value, alert.headline))
    if alert.why:
        yield _fact(translate(texts.WHY_NOW), alert.why)
    if alert.did:
        yield _fact(translate(texts.DONE), alert.did)
    links = [] if alert.parts else list(_links(alert))
    if links or alert.can_do:
        yield GAP
        yield Line(Role.HEADING, (Piece(translate(texts.YOU_CAN), bold=True),))
        yield from (Line(Role.LINK, (Piece("• "), link)) for link in links)
        yield from map(_hint, alert.can_do)
    yield from _parts(alert.parts)
    if len(alert.offers) > 1:  # the facts are about the first one
        yield GAP
        yield Line(Role.HEADING, (Piece(translate(texts.NEXT_CHEAPEST), bold=True),))
        yield from (_offer(number, offer) for number, offer in enumerate(alert.offers[1:], start=2))


def _parts(parts: Sequence[Alert]) -> Iterator[Line]:
    if len(parts) > _MAX_FULL_PARTS:
        yield from (_short_line(part) for part in parts[:_MAX_SHORT_PARTS])
        if len(parts) > _MAX_SHORT_PARTS:
            yield _hint(translate(texts.MORE_ALERTS).format(count=len(parts) - _MAX_SHORT_PARTS))
        return
    for part in parts:
        yield GAP
        title, *body = lines(part)
        yield Line(Role.PART, title.pieces)
        yield from body
        yield Line(Role.FOOTER, (Piece(translate(texts.PART_FOOTER).format(alert_id=cleaned(part.alert_id))),))


def _short_line(part: Alert) -> Line:
    place = f" · {cleaned(part.offers[0].place)} · {cleaned(part.offers[0].provider)}" if part.offers else ""
    action = f" · {cleaned(part.did)}" if part.did else ""
    title = _prefix(part) + cleaned(part.headline)
    details = f"{place}{action} · {cleaned(part.alert_id)}"
    return Line(Role.ITEM, (Piece("• "), Piece(title, bold=True), Piece(details)))


def _is_in_headline(value: str, headline: str) -> bool:
    """Remove facts that the headline already states: the GPU, the price, the provider."""
    return len(value) >= _MIN_SKIPPED_LENGTH and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", headline) is not None


def _fact(label: str, value: str) -> Line:
    return Line(Role.FACT, (Piece(f"{cleaned(label)}: "), Piece(cleaned(value))))


def _hint(hint: str) -> Line:
    text, separator, command = cleaned(hint).partition(_COMMAND)
    if not separator:
        return Line(Role.ITEM, (Piece(f"• {text}"),))
    return Line(Role.ITEM, (Piece(f"• {text}: "), Piece(f"gpuwatch {command}", code=True)))


def _offer(number: int, offer: OfferLine) -> Line:
    details = translate(texts.OFFER_LINE if offer.gpu_count else texts.CPU_OFFER_LINE).format(
        gpu=cleaned(offer.gpu),
        gpu_count=offer.gpu_count,
        spot=translate(texts.SPOT) if offer.spot else "",
        place=cleaned(offer.place),
        reliability=cleaned(offer.reliability),
        provider=cleaned(offer.provider),
        marks=f" ({cleaned(', '.join(offer.marks))})" if offer.marks else "",
        offer_id=cleaned(offer.offer_id),
    )
    price = Piece(f"${cleaned(offer.price_usd_gpu_hour)}", bold=True)
    return Line(Role.ITEM, (Piece(f"{number}. "), price, Piece(details)))


def _links(alert: Alert) -> Iterator[Piece]:
    if alert.page_url:
        yield Piece(translate(texts.OPEN_PAGE), url=alert.page_url)
    if alert.offers and (link := _offer_link(alert.offers[0])) is not None:
        yield link


def _offer_link(offer: OfferLine) -> Piece | None:
    """Return the provider's page of this offer, if there is one, else the page for renting manually."""
    if not offer.url or not offer.url.startswith(("https://", "http://")):
        return None
    url = cleaned(offer.url, 1000).replace(" ", "%20")
    is_offer_page = bool(offer.offer_id) and offer.offer_id in url
    text = translate(texts.OPEN_OFFER if is_offer_page else texts.OPEN_CONSOLE)
    return Piece(text.format(offer_id=cleaned(offer.offer_id), provider=cleaned(offer.provider)), url=url)
