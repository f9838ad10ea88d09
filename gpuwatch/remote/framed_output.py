"""Finds the output of a command between two marker lines: a login shell may print text before and after it."""

from __future__ import annotations

import re
import shlex
from typing import BinaryIO

NOISE_MAX_BYTES = 256 << 10  # that a shell may print besides
_NOISE_SHOWN_BYTES = 400
# $1: the marker, $2: the command; a shell of its own, whatever the login shell is
_PROGRAM = (
    r"""printf '\n%s begin\n' "$1"; (eval "$2"); code=$?; printf '\n%s end %s\n' "$1" "$code"; exit "$code" """.strip()
)


def framed(command: str, marker: str) -> str:
    """Return a command line that runs a command of POSIX sh and prints its output between markers."""
    return shlex.join(["exec", "sh", "-c", _PROGRAM, "gpuwatch", marker, command])


class FramedOutput:
    """A file that writes what stands between the markers into another one.

    Args:
        marker: a word that nothing else prints.
        max_bytes: the rest of the command's output is dropped.

    Attributes:
        begun: whether the first marker was found.
        noise: the beginning of what was printed before it.
        exit_code: of the command; None: its end was not seen.
        received: bytes written.
    """

    def __init__(self, output: BinaryIO, marker: str, max_bytes: int) -> None:
        self._output = output
        self._max_bytes = max_bytes
        self._begin = f"\n{marker} begin\n".encode()
        self._end = f"\n{marker} end ".encode()
        self._buffer = b"\n"  # the marker may be the first line
        self._noise = bytearray()
        self.begun = False
        self.exit_code: int | None = None
        self.received = 0
        self.is_truncated = False

    @property
    def noise(self) -> bytes:
        """The beginning of what was printed before the command, or instead of it."""
        rest = b"" if self.begun else self._buffer
        return bytes(self._noise + rest)[:_NOISE_SHOWN_BYTES].strip()

    def write(self, chunk: bytes) -> int:
        """Take the next part of everything that was printed."""
        if self.exit_code is None:
            self._buffer += chunk
            if self.begun or self._has_begun():
                self._pass_on()
        return len(chunk)

    def finish(self) -> None:
        """Nothing follows: what might have become a marker belongs to the output."""
        if self.begun and self.exit_code is None:
            self._emit(self._buffer)
            self._buffer = b""

    def _has_begun(self) -> bool:
        before, found, after = self._buffer.partition(self._begin)
        if not found:
            cut = max(len(self._buffer) - len(self._begin) + 1, 0)
            before, self._buffer = self._buffer[:cut], self._buffer[cut:]
        self._noise += before[: _NOISE_SHOWN_BYTES - len(self._noise)]
        if found:
            self.begun, self._buffer = True, after
        return self.begun

    def _pass_on(self) -> None:
        at = self._buffer.find(self._end)
        if at < 0:
            at = max(len(self._buffer) - len(self._end) + 1, 0)
        elif (code := re.match(rb"([0-9]{1,3})\n", self._buffer[at + len(self._end) :])) is not None:
            self.exit_code = int(code[1])
        self._emit(self._buffer[:at])
        self._buffer = self._buffer[at:]

    def _emit(self, part: bytes) -> None:
        accepted = part[: self._max_bytes - self.received]
        self._output.write(accepted)
        self.received += len(accepted)
        self.is_truncated |= len(accepted) < len(part)
