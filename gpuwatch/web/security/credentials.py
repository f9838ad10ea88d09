"""The configured password and tokens, and the one-time code that replaces them on loopback."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable

from gpuwatch.errors import SettingsError
from gpuwatch.home_folder import expand_home
from gpuwatch.settings.web import SCOPES, WebSettings, WebToken
from gpuwatch.web.security.passwords import is_password

EVERYTHING = frozenset(SCOPES)
_CODE_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # no characters that look alike
_MIN_TOKEN_LENGTH = 16
_MAX_TOKEN_FILE = 4096  # bytes


class Credentials:
    """Authenticates a person or a program. Stores hashes of tokens, not the tokens.

    Args:
        announce: receives each new one-time code, if neither a password nor a token is configured.

    Raises:
        SettingsError: the file of a token cannot be used.
    """

    def __init__(self, web: WebSettings, announce: Callable[[str], None]) -> None:
        self._hash = web.password_hash.reveal() if web.password_hash else None
        self._tokens = {_digest(_text_of(token)): (token.name, frozenset(token.scopes)) for token in web.tokens}
        self._announce = announce
        self.has_password = self._hash is not None
        self.is_open = not web.has_credentials  # on loopback, reading needs no login
        self._code = ""

    def print_code(self) -> None:
        """Create a new one-time code and announce it."""
        if self.is_open:
            parts = ("".join(secrets.choice(_CODE_LETTERS) for _ in range(4)) for _ in range(3))
            self._code = "-".join(parts)  # 59 bits
            self._announce(self._code)

    def token(self, text: str) -> tuple[str, frozenset[str]] | None:
        """Return name and scopes of a bearer token; None: unknown."""
        return self._tokens.get(_digest(text))

    def login(self, text: str) -> tuple[str, frozenset[str]] | None:
        """Return name and scopes for a one-time code, the password or a token; None: wrong.

        A code works once; then a new one is announced.
        """
        if self.is_open:
            secret = text.strip().lower().replace("-", "")
            if self._code and hmac.compare_digest(secret.encode(), self._code.replace("-", "").encode()):
                self.print_code()
                return "one-time code", EVERYTHING
            return None
        if self._hash is not None and is_password(text, self._hash):
            return "password", EVERYTHING
        return self.token(text)


def _text_of(token: WebToken) -> str:
    if token.token is not None:
        return token.token.reveal()
    assert token.token_file is not None
    try:
        with expand_home(token.token_file).open("rb") as opened:
            text = opened.read(_MAX_TOKEN_FILE).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "expected ASCII text"
        raise SettingsError(
            [f"web.tokens: {token.name}: cannot read token_file {token.token_file}: {reason}"]
        ) from None
    if len(text) < _MIN_TOKEN_LENGTH or any(character.isspace() for character in text):
        expected = f"expected one token of at least {_MIN_TOKEN_LENGTH} characters"
        raise SettingsError([f"web.tokens: {token.name}: token_file {token.token_file}: {expected}"])
    return text


def _digest(text: str) -> str:
    """Hash a token. Random tokens need no slow hash, and looking up a digest compares no secrets."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
