"""The ports to the owner's hooks: the rows that call for them, and what runs them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

import msgspec

from gpuwatch.ports.alerts import OutboxAlert

if TYPE_CHECKING:
    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.domain.watches.decide import Match
    from gpuwatch.domain.watches.watch import HookSpec, Watch

ON_RUNNING, BEFORE_STOP, ON_ENDED = "on_running", "before_stop", "on_ended"


class HookRun(msgspec.Struct, frozen=True, kw_only=True):
    """One hook that a launch calls for; leased, so that nobody else runs it meanwhile."""

    launch_id: str
    watch: str
    event: str
    body: str  # the launch as JSON, as it was then
    attempts: int  # this one included
    terms: str | None = None  # of its launch


class HookCall(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run or sent, once."""

    spec: HookSpec
    event: str
    body: str
    at: datetime
    timeout_s: float


class CommandOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How the command of a launch ended. `code` None: it was ended from here. `not_started`: why nothing of it ran."""

    code: int | None = None
    words: str = ""  # the end of its output, cleaned and without secrets
    not_started: str | None = None


class LaunchCommandInvoker(Protocol):
    """Runs the command of a launch, once."""

    def __call__(self, launch: Launch, watch: Watch, match: Match, now: datetime) -> CommandOutcome:
        """Run it within its time. Whatever is raised, it may have run."""


class HookRunRepository(Protocol):
    """The rows. All methods raise StoreError; a row that somebody else leased meanwhile is left as it is."""

    def start(self) -> None:
        """A runner begins: what the one before held is given back, where no other can be running."""

    def lease(self, now: datetime, limit: int, lease_s: float) -> Sequence[HookRun]:
        """Claim what is due, the oldest first; never `before_stop`."""

    def begin(self, launch: Launch, event: str, now: datetime, lease_s: float) -> HookRun | None:
        """Claim a hook that runs now or never; None: it was begun before."""

    def is_held(self, launch_id: str, event: str, now: datetime) -> bool:
        """Does somebody run it at this moment?"""

    def done(self, run: HookRun) -> None:
        """It ran, or there is nothing to run."""

    def later(self, run: HookRun, next_try_at: datetime, error: str) -> None:
        """It failed; try again then."""

    def release(self, run: HookRun) -> None:
        """It was not run: there was no time for it."""

    def failed(self, launch_id: str, event: str, error: str, news: OutboxAlert) -> bool:
        """Given up, and reported, in one transaction; False: it was over already."""


class HookInvoker(Protocol):
    """Carries a hook out."""

    def __call__(self, call: HookCall) -> str | None:
        """Run or send it, within its time; None: it went well, else one line that says what did not."""
