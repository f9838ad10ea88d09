"""Sessions of browsers: in memory, so that a restart ends them."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable

import msgspec

COOKIE = "gpuwatch_session"
LIVES_S = 12 * 3600.0
_MAX_SESSIONS = 1000


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
        session = WebSession(name=name, scopes=scopes, csrf_token=secrets.token_urlsafe(32), ends_s=now_s + LIVES_S)
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
