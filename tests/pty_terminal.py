"""A person at a terminal: types answers to the prompts of a real process, and sees what it prints (stdlib's pty)."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")
WITHIN_S = 60.0


class PtyTerminal:
    """One process on a terminal.

    Attributes:
        answers: the lines that were typed.
        events: what the terminal showed, in pieces, and when, in seconds since the start.
    """

    def __init__(self, child: subprocess.Popen[bytes], master: int) -> None:
        self.child = child
        self.answers: list[str] = []
        self.events: list[tuple[float, str]] = []
        self._began_s = time.monotonic()
        self._master = master
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._read_to = 0

    @property
    def seen(self) -> str:
        """All that the terminal showed, without its control sequences."""
        return _ESCAPES.sub("", "".join(text for _, text in self.events))

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began_s

    def answer(self, prompt: str, text: str = "") -> str:
        """Wait for a prompt and type a line; return what was shown since the last one."""
        shown = self.wait_for(prompt)
        self.answers.append(text)
        self._write(f"{text}\n")
        return shown

    def interrupt(self) -> int:
        """Press Ctrl-C until the program ends; return the exit code.

        One that arrives just before readline waits is only noticed at the next key (a race of Python's `input`).
        """
        for _ in range(5):
            self._write("\x03")
            with suppress(subprocess.TimeoutExpired):
                return self.wait(within_s=5.0)
        return self.wait()

    def wait_for(self, text: str, within_s: float = WITHIN_S) -> str:
        """Wait until the terminal shows a text, in any wrapping; return what it showed since the last one."""
        until = time.monotonic() + within_s
        wanted = re.compile(r"\s+".join(map(re.escape, text.split())))
        while True:
            fresh = self.seen[self._read_to :]
            if (found := wanted.search(fresh)) is not None:
                self._read_to += found.end()
                return fresh[: found.end()]
            if not self._read_more(max(until - time.monotonic(), 0.0)):
                raise AssertionError(f"{text!r} did not appear:\n{self.seen[-4000:]}")

    def wait(self, within_s: float = WITHIN_S) -> int:
        """Wait for the end; return the exit code."""
        until = time.monotonic() + within_s
        while self._read_more(max(until - time.monotonic(), 0.0)):
            pass
        return self.child.wait(max(until - time.monotonic(), 0.5))

    def _write(self, text: str) -> None:
        os.write(self._master, text.encode())

    def _read_more(self, within_s: float) -> bool:
        if not select.select([self._master], [], [], within_s)[0]:
            return False
        try:
            piece = os.read(self._master, 65_536)
        except OSError:  # Linux's way to say that the other end is closed
            return False
        self.events.append((self.elapsed_s, self._decoder.decode(piece)))
        return bool(piece)


@contextmanager
def on_terminal(argv: Sequence[str], folder: Path, env: Mapping[str, str], columns: int = 80) -> Iterator[PtyTerminal]:
    """Run a program on a terminal of its own until the block ends."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    child = subprocess.Popen(
        argv, cwd=folder, env={**env, "TERM": "xterm", "COLUMNS": str(columns)}, stdin=slave, stdout=slave,
        stderr=slave, start_new_session=True, preexec_fn=_take_terminal,  # noqa: PLW1509 no thread of the child's yet
    )  # fmt: skip
    os.close(slave)
    try:
        yield PtyTerminal(child, master)
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
        child.wait()
        os.close(master)


def _take_terminal() -> None:
    """Make it the controlling terminal, so that Ctrl-C reaches the program."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell makes its background jobs, such as this suite, ignore it
