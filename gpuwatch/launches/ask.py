"""An ask: a quote that waits for the owner's word until its deadline."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from gpuwatch.watches.decide import Match

SILENT_FOR = timedelta(hours=24)  # a denied offer is not asked again for so long, unless the watch is armed anew
_ID = re.compile(r"[a-z2-7]{12}")


class AskState(StrEnum):
    """Where an ask is. It leaves `open` once, and never comes back."""

    OPEN = "open"
    APPROVED = "approved"  # its launch is written
    DENIED = "denied"
    EXPIRED = "expired"  # nobody answered in time
    REFUSED = "refused"  # what was quoted is no more: dearer, gone, no longer wanted


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the owner. Its id is also the id of the launch that an approval begins: one ask, one launch."""

    ask_id: str
    watch: str
    match: Match  # the quote
    created_at: datetime
    deadline: datetime
    state: AskState = AskState.OPEN
    answered_at: datetime | None = None
    launch_id: str | None = None
    words: str | None = None  # why it was denied or refused

    @property
    def provider(self) -> str:
        """Who offers it."""
        return self.match.offer.provider

    def state_at(self, now: datetime) -> AskState:
        """Its state; an open one is over at its deadline, whether or not somebody wrote that down."""
        if self.state is AskState.OPEN and now >= self.deadline:
            return AskState.EXPIRED
        return self.state


def is_ask_id(text: str) -> bool:
    """Could this be the id of an ask?"""
    return _ID.fullmatch(text) is not None
