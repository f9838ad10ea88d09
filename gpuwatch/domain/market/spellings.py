"""The parts of a GPU's spelling, and one name for every spelling of a card that the catalogue lacks. Pure.

A spelling is split into the name to compare and the other facts in it: memory, socket, architecture, count.
A name of a new card ("H800", "RTX 5090 D", "RTX PRO 2000") is as good as a catalogued one: it can be watched, imported
and found again. A slip of a catalogued name ("H10O", "RTX 4900", "H100 SXN") is none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

MAX_NAME_LENGTH = 80  # longer texts are not GPU names
_BEFORE_ANYTHING = ("nvidia", "amd", "intel")
# the longer name of a maker first; the others only before letters: "壁仞104" is no "104"
_MAKERS = (
    *_BEFORE_ANYTHING,
    *("huawei", "华为", "birentech", "biren", "壁仞科技", "壁仞", "iluvatarcorex", "iluvatar", "天数智芯", "天数"),
)
_SIZE = re.compile(r"(?<![a-z0-9.])(\d{1,3}) ?g(?:i?b?)?(?![a-z0-9])")
_SOCKET = re.compile(r"(?<![a-z0-9])(sxm|pcie|oam|nvl)\d?(?![a-z0-9])")
_BEFORE = re.compile(  # "geforcertx4090", "gpu 8x a100"
    r"^(?:(?:nvidia|amd|intel|geforce|tesla|instinct|gpu|\d{1,2}x) ?|(?:huawei|biren(?:tech)?|iluvatar(?: corex)?) )"
)
_COUNT_BEHIND = re.compile(r" ?x\d{1,2}$")  # "h100 sxm5x8"
# Words beside the name of a card that never make it another card: the line, the kind of memory, the rack it is part of;
# and of AMD's drivers: a virtual function is the card in a virtual machine, "(MCM) OAM AC MBA" the module it sits on.
_DECORATION = re.compile(
    r"(?<![a-z0-9])(?:nvidia|amd|intel|geforce|tesla|instinct|tensor core|gpus?|generation|gen|edition|founders|"
    r"vf|mxgpu|mcm|ac mba|dual slot|"
    r"superchip|grace|lc|liquid cooled|hbm\d?e?|gddr\dx?|nvl(?:36|72|144)(?:x\d)?|quadro(?= rtx a\d))(?![a-z0-9])"
)
_BOARD = re.compile(r"(?<![a-z0-9])(?:hgx|dgx)(?![a-z0-9])")  # systems whose GPUs have SXM sockets
_EDITION = re.compile(r"(?<![a-z0-9])(?:server|workstation|se|ws|wk)(?![a-z0-9])")  # another card only by the catalogue
_ARCHITECTURE = re.compile(
    r"(?<![a-z0-9])(rubin|blackwell ultra|blackwell|hopper|ada lovelace|ampere|turing|volta|pascal)(?![a-z0-9])"
)
_LSPCI = re.compile(r"[^\[\]]+ \[([^\[\]]+)\]")  # chip [card]: "Aqua Vanjaram [Instinct MI300X]"
_NUMBER = re.compile(r"\d{3,4}(?: ?(?:ti|super|s|d))*")  # "4090", "3080 ti"
_KEEP = {ord(c): c for c in "abcdefghijklmnopqrstuvwxyz0123456789"} | {
    ord(c): c.lower() for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
}
_BLANKS = str.maketrans("_-()/,", "      ")

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


def fold(text: str) -> str:
    """Return a name's letters and digits in lower case, without the maker: the key for comparing names.

    Letters of other alphabets are kept: a name that only looks like another is a different name.
    """
    if text.isascii():
        key = "".join(filter(None, map(_KEEP.get, map(ord, text))))
    else:
        key = "".join(filter(str.isalnum, text.casefold()))
    if key.startswith(_MAKERS):  # one call: every start folds all spellings of the catalogue
        rest = key.removeprefix(next(filter(key.startswith, _MAKERS)))
        return rest if rest and (rest[0].isalpha() or key.startswith(_BEFORE_ANYTHING)) else key
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
    if (chip := _LSPCI.fullmatch(text)) is not None:
        text = chip[1]
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


def _tidy(text: str) -> str:
    return " ".join(text.split())


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
