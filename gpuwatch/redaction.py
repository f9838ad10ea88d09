"""Keeps keys and tokens out of every text that people or files get to see."""

from __future__ import annotations

import re
import threading
from urllib.parse import quote

_MIN_LENGTH = 8  # redacting shorter "secrets" would remove ordinary words
_MASK = "***"

_SHAPES: tuple[tuple[str, str], ...] = (  # `re` compiles and keeps them when the first text passes
    (r"/bot\d+:[\w-]+", f"/bot{_MASK}"),  # Telegram puts its token into the path
    (r"\b\d{6,}:[\w-]{30,}", _MASK),
    (r"(?i)(\b[a-z][a-z0-9+.-]*://)[^/\s:@]*:[^/\s@]+@", rf"\1{_MASK}@"),
    (r"\b[0-9a-f]{64}\b", _MASK),  # a vast.ai key
    (r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)", _MASK),
)  # fmt: skip
# a name, and behind it what may be the value of a secret: a word, a placeholder or a short text is none
_NAMED: tuple[str, ...] = (
    r"(?i)(\b(?:bearer|basic)\s+)([\w.~+/=:-]+)",
    r"(?i)([?&;](?:api_?key|key|token|access_token|secret|password)=)([^&\s\"'#]+)",
    # but not what follows a path, as in "…/oauth2/token: no answer"
    r"(?i)(?<![\w-])(?!(?<=/)[\w-]+: )"
    r"([\"']?[\w-]*(?:api_?key|token|secret|password)[\"']?\s*[:=]\s*)"
    r"(\"[^\"]*\"|'[^']*'|[^\s,;&}\"']+)",
)
_WORD = r"(?:[A-Z]?[a-z]{1,19}|[A-Z]{1,20})"
_WORDS = rf"[^\w]*{_WORD}(?:[^\w]+{_WORD}|_+{_WORD})*[^\w]*"  # also a path, an address, $NAME_OF_A_VARIABLE


class _SecretSet:
    """The secrets of this process, in every spelling that may appear in a text."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spellings: tuple[str, ...] = ()

    def add(self, secrets: tuple[str, ...]) -> None:
        with self._lock:
            spellings = set(self._spellings)
            for secret in secrets:
                if len(secret) >= _MIN_LENGTH:
                    spellings |= {secret, quote(secret, safe=""), repr(secret)[1:-1]}
            self._spellings = tuple(sorted(spellings, key=len, reverse=True))

    def mask(self, text: str) -> str:
        for spelling in self._spellings:
            if spelling in text:
                text = text.replace(spelling, _MASK)
        return text


_secrets = _SecretSet()


def register_secret(*secrets: str | None) -> None:
    """Redact these from everything that passes `redact` from now on; None and very short ones are ignored."""
    _secrets.add(tuple(secret for secret in secrets if secret))


def redact(text: str) -> str:
    """The text without known secrets and without what looks like one."""
    text = _secrets.mask(text)
    for shape, replacement in _SHAPES:
        text = re.sub(shape, replacement, text, flags=re.DOTALL)
    for named in _NAMED:
        text = re.sub(named, _without_value, text)
    return text


def _without_value(found: re.Match[str]) -> str:
    name, value = found.groups()
    bare = value.strip("\"'")
    is_plain = len(bare) < _MIN_LENGTH or re.fullmatch(_WORDS, bare) is not None
    return found.group() if is_plain else f"{name}{_MASK}"
