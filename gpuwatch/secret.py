"""A secret of the settings: where it is written, and its text only by an explicit call."""

from __future__ import annotations

from typing import NoReturn

IN_SETTINGS = "file"  # the origin of what is written in the settings themselves, as `config show` calls it


class Secret:
    """A reference to one secret. Only `reveal` gives its text, so no repr, log, JSON or pickle ever contains it.

    The text is read together with all other settings: a secret that changes later counts from the next reload, and
    reading it cannot fail in between. Two secrets are equal if their texts are, wherever they are written.

    Args:
        value: the text, or the texts of a list; None: only the place is known, as after a restart.
        origin: where it is written, as `gpuwatch config show` prints it: "env VAST_API_KEY", "credential …", "file".
        file: the file that holds nothing but this secret; "": there is none.
    """

    __slots__ = ("_value", "file", "origin")

    def __init__(
        self, value: str | tuple[str, ...] | None = None, *, origin: str = IN_SETTINGS, file: str = ""
    ) -> None:
        self._value = value
        self.origin = origin
        self.file = file

    def reveal(self) -> str:
        """The text, for the request that needs it. Raises ValueError: it is a list, or only the place is known."""
        if not isinstance(self._value, str):
            raise ValueError(f"{self!r} holds no text")  # noqa: TRY004 it is the secret that is missing
        return self._value

    def reveal_option(self) -> str | tuple[str, ...]:
        """The text, or the texts of an option that is a list. Raises ValueError: only the place is known."""
        return self._value if isinstance(self._value, tuple) else self.reveal()

    def __repr__(self) -> str:
        return f"Secret({self.origin!r})"

    def __format__(self, format_spec: str) -> NoReturn:
        raise TypeError("a secret is not text: reveal() gives it")  # or a request would be sent with its place as key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a secret cannot be copied to a file or to another process")
