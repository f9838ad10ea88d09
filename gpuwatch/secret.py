"""A secret of the settings: where it is written, and its text only by an explicit call."""

from __future__ import annotations

from typing import NoReturn

IN_SETTINGS = "file"  # the origin of what is written in the settings themselves, as `config show` calls it


class Secret:
    """A reference to one secret. Only `reveal` gives its text, so no repr, log, JSON or pickle ever contains it.

    The text is read together with all other settings: a secret that changes later counts from the next reload, and
    reading it cannot fail in between. Two secrets are equal if their texts are, wherever they are written.

    Args:
        texts: the text, or the texts of a list; none: only the place is known, as after a restart.
        origin: where it is written, as `gpuwatch config show` prints it: "env VAST_API_KEY", "credential …", "file".
        file: the file that holds nothing but this secret; "": there is none.
    """

    __slots__ = ("_texts", "file", "origin")

    def __init__(self, *texts: str, origin: str = IN_SETTINGS, file: str = "") -> None:
        self._texts = texts
        self.origin = origin
        self.file = file

    def reveal(self) -> str:
        """The text, for the request that needs it."""
        (text,) = self._texts
        return text

    def reveal_all(self) -> tuple[str, ...]:
        """The texts of a secret that is a list, such as the addresses of Apprise."""
        return self._texts

    def __repr__(self) -> str:
        return f"Secret({self.origin!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._texts == other._texts

    def __hash__(self) -> int:
        return hash(self._texts)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a secret cannot be copied to a file or to another process")
