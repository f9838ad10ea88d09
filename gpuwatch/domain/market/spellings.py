"""Splits a GPU's spelling into the name to compare and the other facts in it: memory, socket, count. Pure."""

from __future__ import annotations

import re

MAX_NAME_LENGTH = 80  # longer texts are not GPU names
_MAKERS = ("nvidia", "amd", "intel")
_SIZE = re.compile(r"(?<![a-z0-9.])(\d{1,3}) ?g(?:i?b?)?(?![a-z0-9])")
_SOCKET = re.compile(r"(?<![a-z0-9])(sxm|pcie|oam|nvl)\d?(?![a-z0-9])")
_BEFORE = re.compile(r"^(?:nvidia|amd|intel|geforce|tesla|instinct|gpu|\d{1,2}x) ?")  # "geforcertx4090", "gpu 8x a100"
_COUNT_BEHIND = re.compile(r" ?x\d{1,2}$")  # "h100 sxm5x8"
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


def parts(text: str) -> tuple[str, float | None, str | None]:
    """Split a spelling as far as possible.

    Returns:
        The rest without maker, count, memory and socket; the memory in GiB; the socket ("sxm", "pcie", …).
    """
    plain = _COUNT_BEHIND.sub("", " ".join(text.translate(_BLANKS).casefold().split()))
    while found := _BEFORE.match(plain):
        plain = plain[found.end() :]
    base, size_gib = without_size(plain)
    socket = _SOCKET.search(base)
    if socket is not None:
        base = base[: socket.start()] + base[socket.end() :]
    return " ".join(base.split()), size_gib, socket[1] if socket else None


def socket_of(text: str | None) -> str | None:
    """Return the socket in a provider's text: "SXM5" is "sxm"; None: no known socket."""
    found = _SOCKET.search(text.casefold()) if text else None
    return found[1] if found else None


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
