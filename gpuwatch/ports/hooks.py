"""The ports for hooks: their stored runs, what executes them, and the signature of what is posted.

The signature is that of everything that gpuwatch posts to its owner: hooks and alerts.
"""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.domain.watches.decide import Match
    from gpuwatch.domain.watches.launch_spec import HookSpec
    from gpuwatch.domain.watches.watch import Watch

ON_RUNNING, BEFORE_STOP, ON_ENDED = "on_running", "before_stop", "on_ended"

TIMESTAMP_HEADER = "X-Gpuwatch-Timestamp"
SIGNATURE_HEADER = "X-Gpuwatch-Signature-256"


class HookRun(msgspec.Struct, frozen=True, kw_only=True):
    """One hook run of a launch; leased, so that no other process runs it."""

    launch_id: str
    watch: str
    event: str
    body: str  # the launch as JSON at that time
    attempts: int  # including this one
    terms: str | None = None  # of its launch


class HookCall(msgspec.Struct, frozen=True, kw_only=True):
    """What to run or send, once."""

    spec: HookSpec
    event: str
    body: str
    at: datetime
    timeout_s: float


class CommandOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a launch's command. `code` None: gpuwatch ended it. `not_started`: why it did not start."""

    code: int | None = None
    output: str = ""  # end of its output, cleaned and redacted
    not_started: str | None = None


class LaunchCommandInvoker(Protocol):
    """Runs the command of a launch once."""

    def __call__(self, launch: Launch, watch: Watch, match: Match, now: datetime) -> CommandOutcome:
        """Run it within its timeout. It may have run, whatever is raised."""


class HookInvoker(Protocol):
    """Executes a hook."""

    def __call__(self, call: HookCall) -> str | None:
        """Run or send it within its timeout. Returns None on success, else one line about the failure."""


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """`sha256=` and the hex HMAC-SHA256 of the timestamp, a dot, and the body as sent."""
    message = timestamp.encode() + b"." + body
    return "sha256=" + hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()
