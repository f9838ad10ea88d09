"""Splits a GPU's spelling into the name to compare and the other facts in it: memory, socket, count. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

MAX_NAME_LENGTH = 80  # longer texts are not GPU names
_MAKERS = ("nvidia", "amd", "intel")
_SIZE = re.compile(r"(?<![a-z0-9.])(\d{1,3}) ?g(?:i?b?)?(?![a-z0-9])")
_SOCKET = re.compile(r"(?<![a-z0-9])(sxm|pcie|oam|nvl)\d?(?![a-z0-9])")
_BEFORE = re.compile(r"^(?:nvidia|amd|intel|geforce|tesla|instinct|gpu|\d{1,2}x) ?")  # "geforcertx4090", "gpu 8x a100"
_COUNT_BEHIND = re.compile(r" ?x\d{1,2}$")  # "h100 sxm5x8"
# Words beside the name of a card that never make it another card: the line, the kind of memory, the rack it is part of.
_DECORATION = re.compile(
    r"(?<![a-z0-9])(?:nvidia|amd|intel|geforce|tesla|instinct|tensor core|gpus?|generation|gen|edition|founders|"
    r"superchip|grace|lc|liquid cooled|hbm\d?e?|gddr\dx?|nvl(?:36|72|144)(?:x\d)?|quadro(?= rtx a\d))(?![a-z0-9])"
)
_BOARD = re.compile(r"(?<![a-z0-9])(?:hgx|dgx)(?![a-z0-9])")  # systems whose GPUs have SXM sockets
_EDITION = re.compile(r"(?<![a-z0-9])(?:server|workstation|se|ws|wk)(?![a-z0-9])")  # another card only by the catalogue
_ARCHITECTURE = re.compile(
    r"(?<![a-z0-9])(rubin|blackwell ultra|blackwell|hopper|ada lovelace|ampere|turing|volta|pascal)(?![a-z0-9])"
)
_NUMBER = re.compile(r"\d{3,4}(?: ?(?:ti|super|s|d))*")  # "4090", "3080 ti"
_KEEP = {ord(c): c for c in "abcdefghijklmnopqrstuvwxyz0123456789"} | {
    ord(c): c.lower() for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
}
_BLANKS = str.maketrans("_-()/,", "      ")


def fold(text: str) -> str:
    """Return a name's letters and digits in lower case, without the maker: the key for comparing names.

    Letters of other alphabets are kept: a name that only looks like another is a different name.
    """
    if text.isascii():
        key = "".join(filter(None, map(_KEEP.get, map(ord, text))))
    else:
        key = "".join(filter(str.isalnum, text.casefold()))
    for maker in _MAKERS:
        if key.startswith(maker) and len(key) > len(maker):
            return key[len(maker) :]
    return key


def clean_name(text: str) -> str:
    """Return a spelling without control characters and extra spaces, cut to the maximum length of a name."""
    text = text[: MAX_NAME_LENGTH * 4]
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(text.split())[:MAX_NAME_LENGTH].rstrip() or "unknown"


def without_size(text: str) -> tuple[str, float | None]:
    """Return a spelling in lower case without its memory size, and that size in GiB, or None."""
    plain = text.translate(_BLANKS).casefold()
    found = _SIZE.search(plain)
    if found is None:
        return plain, None
    return plain[: found.start()] + plain[found.end() :], float(found[1])


class Reading(msgspec.Struct, frozen=True):
    """One way to read a spelling: the name without its other facts. `architecture`: in lower case, if it is named."""

    base: str
    size_gib: float | None
    socket: str | None
    architecture: str | None = None


def readings(text: str) -> Iterator[Reading]:
    """Yield the ways to read a spelling, from the closest to the loosest.

    First without maker, count, memory and socket; then without words that every card of a line may carry; then without
    the edition.
    """
    plain = _COUNT_BEHIND.sub("", " ".join(text.translate(_BLANKS).casefold().split()))
    while found := _BEFORE.match(plain):
        plain = plain[found.end() :]
    base, size_gib = without_size(plain)
    found = _SOCKET.search(base)
    if found is not None:
        base = base[: found.start()] + base[found.end() :]
    socket = found[1] if found else None
    yield Reading(_tidy(base), size_gib, socket)
    if _BOARD.search(plain):
        base, socket = _BOARD.sub(" ", base), socket or "sxm"
    architecture = _ARCHITECTURE.search(base)
    base = _tidy(_DECORATION.sub(" ", _tidy(_ARCHITECTURE.sub(" ", base))))
    loose = Reading(base, size_gib, socket, architecture[1] if architecture else None)
    yield loose
    if _EDITION.search(base):
        yield msgspec.structs.replace(loose, base=_tidy(_EDITION.sub(" ", base)))


def _tidy(text: str) -> str:
    return " ".join(text.split())


def socket_of(text: str | None) -> str | None:
    """Return the socket in a provider's text: "SXM5" is "sxm"; None: no known socket."""
    found = _SOCKET.search(text.casefold()) if text else None
    return found[1] if found else None


def socket_in_name(spelling: str) -> str | None:
    """Return the socket that a spelling itself states: "H100_sxm5" and "HGX H100" are "sxm"; None: none."""
    *_, reading = readings(spelling)
    return reading.socket


def is_number(base: str) -> bool:
    """Return whether it is a bare model number, as people write "4090"."""
    return _NUMBER.fullmatch(base) is not None


def common_name(names: list[str], family: str) -> str:
    """Return the common part of several names.

    "A100 80GB" for "A100 SXM 80GB" and "A100 PCIe 80GB"; otherwise their family.
    """
    rest = [frozenset(name.split()) for name in names[1:]]
    words = [word for word in names[0].split() if all(word in other for other in rest)]
    return " ".join(words) or family
