"""Who may log in, and who has: passwords, tokens, the one-time code; sessions of browsers; the limit of attempts.

A password is configured as a scrypt hash, `scrypt$15$8$1$SALT$HASH`, with the cost as a power of two.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable

import msgspec

from gpuwatch.errors import SettingsError
from gpuwatch.home_folder import expand_home
from gpuwatch.settings.model import SCOPES, WebSettings, WebToken

_ALL_SCOPES = frozenset(SCOPES)
_CODE_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # no characters that look alike
_MIN_TOKEN_LENGTH = 16
_MAX_TOKEN_FILE = 4096  # bytes
MIN_PASSWORD_LENGTH = 8
_MAX_PASSWORD_LENGTH = 1024  # characters: hashing longer ones only wastes time
_COST, _BLOCK, _PARALLEL = 15, 8, 1  # 32 MiB and about 0.1 s: source: RFC 7914 §2, N = 2^15, r = 8, p = 1
_MAX_MEMORY = 64 * 1024 * 1024
COOKIE = "gpuwatch_session"
_SESSION_LIVES_S = 12 * 3600.0
_MAX_SESSIONS = 1000
FAILURES_COUNT_FOR_S = 300.0
MAX_FAILURES_PER_CLIENT = 5  # wrong passwords within that time
_MAX_FAILURES = 100
_STEP_S, _MAX_DELAY_S = 0.1, 1.0


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
                return "one-time code", _ALL_SCOPES
            return None
        if self._hash is not None and is_password(text, self._hash):
            return "password", _ALL_SCOPES
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


# --- passwords --------------------------------------------------------------------------------------------------------


def hash_password(password: str) -> str:
    """Return the value for `[web] password_hash`."""
    salt = secrets.token_bytes(16)
    return f"scrypt${_COST}${_BLOCK}${_PARALLEL}${salt.hex()}${_derived(password, salt, _COST, _BLOCK, _PARALLEL)}"


def is_password(password: str, hashed: str) -> bool:
    """Whether this is the password, compared in constant time."""
    try:
        _, cost, block, parallel, salt, expected = hashed.split("$")
        derived = _derived(password[:_MAX_PASSWORD_LENGTH], bytes.fromhex(salt), int(cost), int(block), int(parallel))
    except ValueError:
        return False
    return hmac.compare_digest(derived, expected)


def _derived(password: str, salt: bytes, cost: int, block: int, parallel: int) -> str:
    key = hashlib.scrypt(password.encode(), salt=salt, n=1 << cost, r=block, p=parallel, maxmem=_MAX_MEMORY, dklen=32)
    return key.hex()


# --- sessions ---------------------------------------------------------------------------------------------------------


class WebSession(msgspec.Struct, frozen=True, kw_only=True):
    """One browser that has logged in."""

    name: str  # how it logged in: "password", "one-time code", or the name of a token
    scopes: frozenset[str]
    csrf_token: str
    ends_s: float  # monotonic

    def accepts(self, csrf_token: str) -> bool:
        """Whether a form or a request has this session's token."""
        return hmac.compare_digest(csrf_token.encode("utf-8", "replace"), self.csrf_token.encode())


class SessionStore:
    """Sessions by cookie. Thread-safe.

    Args:
        monotonic: monotonic seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._sessions: dict[str, WebSession] = {}  # by the hash of the cookie

    def open(self, name: str, scopes: frozenset[str]) -> tuple[str, WebSession]:
        """Create a session; return the value of its cookie, and the session."""
        now_s, cookie = self._monotonic(), secrets.token_urlsafe(32)
        open_sessions = {key: session for key, session in self._sessions.items() if session.ends_s > now_s}
        while len(open_sessions) >= _MAX_SESSIONS:
            open_sessions.pop(next(iter(open_sessions)))
        session = WebSession(
            name=name, scopes=scopes, csrf_token=secrets.token_urlsafe(32), ends_s=now_s + _SESSION_LIVES_S
        )
        self._sessions = open_sessions | {_key(cookie): session}
        return cookie, session

    def get(self, cookie: str | None) -> WebSession | None:
        """Return the session of a cookie; None: there is none, or it has expired."""
        session = self._sessions.get(_key(cookie)) if cookie else None
        return session if session is not None and session.ends_s > self._monotonic() else None

    def close(self, cookie: str | None) -> None:
        """End a session."""
        if cookie:
            self._sessions = {key: session for key, session in self._sessions.items() if key != _key(cookie)}

    def close_all(self) -> None:
        """End all sessions, because the credentials have changed."""
        self._sessions = {}


def _key(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()


# --- wrong passwords --------------------------------------------------------------------------------------------------


class LoginLimit:
    """Counts wrong passwords by client address and in total.

    Args:
        monotonic: monotonic seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._failures: list[tuple[float, str]] = []

    def attempt(self, client: str) -> float | None:
        """Count an attempt as wrong until `succeeded`, so that parallel attempts count, too.

        Returns:
            How many seconds this client must wait, even with the right password; None: it may try.
        """
        now_s = self._monotonic()
        self._failures = [failure for failure in self._failures if now_s - failure[0] < FAILURES_COUNT_FOR_S]
        failed_at = [at_s for at_s, address in self._failures if address == client]
        if len(failed_at) >= MAX_FAILURES_PER_CLIENT:
            return failed_at[-MAX_FAILURES_PER_CLIENT] + FAILURES_COUNT_FOR_S - now_s
        if len(self._failures) >= _MAX_FAILURES:
            return self._failures[-_MAX_FAILURES][0] + FAILURES_COUNT_FOR_S - now_s
        self._failures.append((now_s, client))
        return None

    def delay_s(self, client: str) -> float:
        """Return the delay of the response to a wrong password: doubled each time."""
        return min(_MAX_DELAY_S, _STEP_S * 2.0 ** (sum(address == client for _, address in self._failures) - 1))

    def tries_left(self, client: str) -> int:
        """Return how often this client may still be wrong."""
        return max(0, MAX_FAILURES_PER_CLIENT - sum(address == client for _, address in self._failures))

    def succeeded(self, client: str) -> None:
        """Forget the client's wrong attempts."""
        self._failures = [failure for failure in self._failures if failure[1] != client]
