"""Cards that the catalogue lacks: one name for all spellings of such a card, and which texts may name one. Pure.

A name of a new card ("H800", "RTX 5090 D", "RTX PRO 2000") is as good as a catalogued one: it can be watched, imported
and found again. A slip of a catalogued name ("H10O", "RTX 4900", "H100 SXN") is none.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from gpuwatch.domain.market.spellings import clean_name, fold, readings

_USUAL_SOCKETS: Final = ("SXM", "PCIe")
_SOCKETS: Final = {"sxm": "SXM", "pcie": "PCIe", "nvl": "NVL", "oam": "OAM"}
_OTHER_SERIES: Final = frozenset({"arca", "arcb", "arcprob", "r", "rtxa", "rtxpro", "vr"})  # of new lines
_PCIE_ONLY: Final = ("RTX", "GTX", "RX", "ARC", "QUADRO")  # every card of these series has this socket
_SHOWN: Final = {
    "TI": "Ti", "ADA": "Ada", "LAPTOP": "Laptop", "MOBILE": "Mobile", "TITAN": "Titan", "TESLA": "Tesla",
    "QUADRO": "Quadro", "RADEON": "Radeon", "GAUDI": "Gaudi", "ARC": "Arc", "JETSON": "Jetson", "ORIN": "Orin",
    "V2": "v2",
}  # fmt: skip
_WORDS: Final = ("sxm", "pcie", "nvl", "oam", "super", "laptop", "mobile", "server", "workstation", "generation", "ada")
_SERIES: Final = re.compile(r"[a-z]+")
_JOINED: Final = re.compile(r"(?i)\b(RTX|GTX|RX|ARC)[ ]?(PRO|A(?=\d))?[ ]?(\d{3,4})(?:[ ]?([A-Z]{1,6}))?\b")
_SPELLING: Final = re.compile(r"[A-Za-z0-9 ,._+/()-]+")  # other characters are of no name: "H100: a note"
_CONFUSABLE: Final = str.maketrans("oil", "011")
_SIZE_TEXT: Final = "{:g}GB"
_WORD_LENGTH: Final = 3  # shorter words are of a card: "D", "X", "Ti"


def plain_name(spelling: str, series: Collection[str], known: Collection[str]) -> tuple[str, str]:
    """Return the name and the family of a card that is in no catalogue, the same for all its spellings.

    "NVIDIA GeForce RTX 5090D" is "RTX 5090 D". The name keeps the socket of a card that has one ("H800 PCIe"), and its
    memory if only that distinguishes it from a catalogued card ("RTX 3080 20GB"). A spelling of no known series stands
    for itself.

    Args:
        series: the letters that the names of cards begin with, as `series_of`.
        known: the folded names of the catalogue.
    """
    cleaned = clean_name(spelling)
    *_, reading = readings(cleaned)
    base = _JOINED.sub(_spaced, reading.base).upper()
    if not _SPELLING.fullmatch(cleaned) or not _is_model(base, series):
        return cleaned, cleaned
    family = " ".join(_SHOWN.get(word, word) for word in base.split()).replace("MAX Q", "Max-Q")
    words = [family]
    if reading.socket is not None and not family.upper().startswith(_PCIE_ONLY):
        words.append(_SOCKETS[reading.socket])
    if reading.size_gib is not None and fold(" ".join(words)) in known:
        words.append(_SIZE_TEXT.format(reading.size_gib))
    name = " ".join(words)
    return (cleaned, cleaned) if fold(name) in known else (name, family)


def unlisted_names(text: str, series: Collection[str], known: Collection[str]) -> tuple[str, ...]:
    """Return the names of a card that only providers name, for an owner's text; empty: it names none, or is a slip.

    Without a socket, it means the card with any.
    """
    name, family = plain_name(text, series, known)
    if (
        not _is_model(family.upper(), series)
        or not _SPELLING.fullmatch(clean_name(text))
        or _is_slip(fold(family), known)
    ):
        return ()
    if _has_misspelled_word(clean_name(text)):
        return ()
    if name != family or name.upper().startswith(_PCIE_ONLY):
        return (name,)
    return (name, *(f"{name} {socket}" for socket in _USUAL_SOCKETS))


def letters_of(names: Collection[str]) -> frozenset[str]:
    """Return the letters that these folded names begin with: "rtx", "h", "mi"."""
    return frozenset(found[0] for name in names if (found := _SERIES.match(name))) | _OTHER_SERIES


def _is_model(base: str, series: Collection[str]) -> bool:
    key = fold(base)
    letters = _SERIES.match(key)
    return letters is not None and letters[0] in series and any(character.isdigit() for character in key)


def _spaced(found: re.Match[str]) -> str:
    letters, line, number, suffix = found.groups()
    if line is not None and line.upper() == "A":
        return " ".join(filter(None, (letters, f"{line}{number}", suffix)))
    return " ".join(filter(None, (letters, line, number, suffix)))


def _is_slip(key: str, known: Collection[str]) -> bool:
    """Whether a folded name is a catalogued one with a letter for a digit, two characters swapped or one doubled."""
    bare = key.rstrip("abcdefghijklmnopqrstuvwxyz")
    return any(found not in {key, bare} and found in known for one in {key, bare} for found in _corrections(one))


def _corrections(key: str) -> list[str]:
    letters = _SERIES.match(key)
    start = len(letters[0]) if letters else 0
    corrected = {key[:at] + key[at:].translate(_CONFUSABLE) for at in range(1, start + 2)}
    swapped = {key[:i] + key[i + 1] + key[i] + key[i + 2 :] for i in range(len(key) - 1)}
    single = {key[:i] + key[i + 1 :] for i in range(len(key) - 1) if key[i] == key[i + 1]}
    return sorted(corrected | swapped | single)


def _has_misspelled_word(text: str) -> bool:
    """Whether a word of it is one letter away from a word that distinguishes cards: "SXN"."""
    words = [word for word in re.split(r"[^a-z]+", text.casefold()) if len(word) >= _WORD_LENGTH]
    return any(_is_one_letter_off(word, right) for word in words if word not in _WORDS for right in _WORDS)


def _is_one_letter_off(word: str, right: str) -> bool:
    if len(word) == len(right):
        return sum(a != b for a, b in zip(word, right, strict=True)) == 1
    shorter, longer = sorted((word, right), key=len)
    return len(longer) - len(shorter) == 1 and any(longer[:i] + longer[i + 1 :] == shorter for i in range(len(longer)))
