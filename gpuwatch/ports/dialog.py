"""Questions to a person at a terminal, and what a channel asks when `gpuwatch init` sets it up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from gpuwatch.ports.http import HttpClient
    from gpuwatch.ports.settings import Option


class Dialog(Protocol):
    """Asks one question after the other. An interrupt ends every question with an exception of its own."""

    def say(self, text: str) -> None:
        """Show a line."""

    def ask(self, question: str, default: str = "") -> str:
        """The answer, stripped; empty only if the default is."""

    def ask_secret(self, question: str) -> str:
        """The answer, which is not shown while it is typed; may be empty."""

    def confirm(self, question: str, *, default: bool) -> bool:
        """Yes or no."""

    def waiting(self, text: str) -> AbstractContextManager[object]:
        """Show that the program works or waits, while the block runs."""


class ChannelAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """What a person entered for a channel.

    Attributes:
        values: the keys of its `[notify.NAME]`.
        secrets: its secret options, as they stand in the environment.
    """

    values: Mapping[str, Option] = {}
    secrets: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"ChannelAnswers({sorted(self.values)}, {sorted(self.secrets)})"


class ChannelSetup(msgspec.Struct, frozen=True, kw_only=True):
    """One choice of `gpuwatch init` for where alerts go.

    Attributes:
        name: what is typed: "telegram"; several may belong to one channel.
        rank: lower ones are shown first; the first is the default.
        ask: asks for all that the channel needs. Its third argument: options that are set in the environment, as text.
            Returns None if the person gives up.
    """

    name: str
    rank: int = 100
    ask: Callable[[Dialog, HttpClient, Mapping[str, str]], ChannelAnswers | None]
