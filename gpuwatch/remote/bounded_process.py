"""Runs a client program (ssh, rsync, rclone): limited in time and output, killed with all its children."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import BinaryIO

import msgspec

_KEPT_ENV = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR")  # no agent, no secret
_STDERR_MAX = 4096
_PART = 65_536
_GONE_S = 2.0  # after it was killed, or its output was closed at the end of its time


class BoundedResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a process. `exit_code` None: it was killed at the end of its time."""

    exit_code: int | None
    received: int  # bytes written to `into`
    stderr: bytes
    cut: bool


def run_bounded(  # noqa: PLR0913 each bounds it
    argv: Sequence[str],
    into: BinaryIO,
    *,
    timeout_s: float,
    max_bytes: int,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    folder: str | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> BoundedResult:
    """Run a process, and write its output to a file as it arrives.

    Args:
        env: variables in addition to the few that every client gets.
        folder: working directory; None: gpuwatch's own.

    Raises:
        OSError: it cannot be started, or `into` cannot be written.
    """
    process = _started(argv, env or {}, folder)
    pipes = _Pipes(process, stdin, into, max_bytes)
    ends_at = monotonic() + timeout_s
    try:
        in_time = pipes.until(ends_at, monotonic)
        if in_time and not pipes.cut:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(_GONE_S, ends_at - monotonic()))
        code = process.poll()
    finally:
        _kill(process)
        pipes.close()
    return BoundedResult(
        exit_code=0 if pipes.cut and code is None else code,
        received=pipes.received,
        stderr=pipes.stderr,
        cut=pipes.cut,
    )


def _started(argv: Sequence[str], env: Mapping[str, str], folder: str | None) -> subprocess.Popen[bytes]:
    kept = {name: os.environ[name] for name in _KEPT_ENV if name in os.environ}
    return subprocess.Popen(  # noqa: S603 - a list of words, built by our own code
        list(argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        cwd=folder,
        env={"PATH": os.defpath} | kept | dict(env),
        bufsize=0,
    )


class _Pipes:
    """Writes a process's input, and reads its output up to a limit."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes, into: BinaryIO, max_bytes: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._left = memoryview(stdin)
        self._into, self._max = into, max_bytes
        self.received = 0
        self.stderr = b""
        self.cut = False

    def until(self, ends_at: float, monotonic: Callable[[], float]) -> bool:
        """Read until both outputs are closed (True), the limit is reached (True), or the time is over (False)."""
        os.set_blocking(self._stdin.fileno(), False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ, self._take)
            selector.register(self._stderr, selectors.EVENT_READ, self._listen)
            selector.register(self._stdin, selectors.EVENT_WRITE, self._feed)
            open_outputs = 2
            while open_outputs and not self.cut:
                left_s = ends_at - monotonic()
                ready = selector.select(left_s) if left_s > 0 else []
                if not ready:
                    return False
                for key, _ in ready:
                    if key.data():
                        continue
                    selector.unregister(key.fileobj)
                    if key.fileobj is self._stdin:
                        self._stdin.close()
                    else:
                        open_outputs -= 1
        return True

    def close(self) -> None:
        for pipe in (self._stdin, self._stdout, self._stderr):
            with suppress(OSError):
                pipe.close()

    def _feed(self) -> bool:
        try:
            sent = os.write(self._stdin.fileno(), self._left[:_PART])
        except BlockingIOError:
            return True
        except OSError:  # it does not read its input
            return False
        self._left = self._left[sent:]
        return len(self._left) > 0

    def _take(self) -> bool:
        part = os.read(self._stdout.fileno(), _PART)
        kept = part[: self._max - self.received]
        self._into.write(kept)
        self.received += len(kept)
        self.cut = len(kept) < len(part)
        return bool(part)

    def _listen(self) -> bool:
        part = os.read(self._stderr.fileno(), _PART)
        self.stderr = _tail(self.stderr + part)
        return bool(part)


def _tail(output: bytes) -> bytes:
    """Return the end of a long output, without the word that the cut divides: half a key would not be redacted."""
    if len(output) <= _STDERR_MAX:
        return output
    _, *rest = output[-_STDERR_MAX:].split(None, 1)
    return b"".join(rest)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill it and its children, and reap it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GONE_S)
