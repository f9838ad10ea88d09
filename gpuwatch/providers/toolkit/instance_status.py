"""Status words: each word of the vendor's SDK or specification has a state, and any other word is reported once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpuwatch.ports import InstanceState

_ENDED: Final = InstanceState.ENDED


class ReadStatus(NamedTuple):
    """The state that a word means. `unknown`: the word, if gpuwatch does not know it; the state is UNKNOWN then."""

    state: InstanceState
    unknown: str | None = None


class StatusWords:
    """The status words of one provider.

    Args:
        states: every word that the vendor's SDK or specification names → the state that it means. A word that itself
            says that nothing is known is UNKNOWN; ENDED words are in no list of instances.
        field: the field of the words, if a row has several; named in the report of an unknown word.
    """

    def __init__(self, states: Mapping[str, InstanceState], field: str = "") -> None:
        self.states = states
        self._field = field

    def read(self, status: str) -> ReadStatus:
        """Return the state of a word."""
        state = self.states.get(status)
        if state is None:
            return ReadStatus(InstanceState.UNKNOWN, f"{self._field} {status}".strip())
        return ReadStatus(state)

    def is_ended(self, status: object) -> bool:
        """Return whether a row with this status is no instance any more."""
        return isinstance(status, str) and self.states.get(status) is _ENDED
