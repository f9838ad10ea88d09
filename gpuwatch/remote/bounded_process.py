"""Runs a client program (ssh, rsync, rclone): limited in time and output, killed with all its children."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import BinaryIO, Protocol

import msgspec

_INHERITED_ENV = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR")  # no agent, no secret
_MAX_STDERR_BYTES = 4096
_CHUNK_BYTES = 65_536
_EXIT_WAIT_S = 2.0  # after it was killed, or its output was closed at the end of its time


class ByteSink(Protocol):
    """A file to write to."""

    def write(self, chunk: bytes, /) -> object:
        """Write the next part."""


class BoundedResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a process. `exit_code` None: it was killed at the end of its time."""

    exit_code: int | None
    received: int  # bytes written to `into`
    stderr: bytes
    is_truncated: bool


def run_bounded(  # noqa: PLR0913 each bounds it
    argv: Sequence[str],
    output: ByteSink,
    *,
    timeout_s: float,
    max_bytes: int,
    stdin: bytes | BinaryIO = b"",
    env: Mapping[str, str] | None = None,
    folder: str | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> BoundedResult:
    """Run a process, and write its output to a file as it arrives.

    Args:
        stdin: its input; a file is read by the process itself.
        env: variables in addition to the few that every client gets.
        folder: working directory; None: gpuwatch's own.

    Raises:
        OSError: it cannot be started, or `output` cannot be written.
    """
    given = subprocess.PIPE if isinstance(stdin, bytes) else stdin
    process = _start_process(argv, env or {}, folder, given)
    pipes = _Pipes(process, stdin if isinstance(stdin, bytes) else b"", output, max_bytes)
    ends_at = monotonic() + timeout_s
    try:
        in_time = pipes.transfer_until(ends_at, monotonic)
        if in_time and not pipes.is_truncated:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(_EXIT_WAIT_S, ends_at - monotonic()))
        exit_code = process.poll()
    finally:
        _kill(process)
        pipes.close()
    return BoundedResult(
        exit_code=0 if pipes.is_truncated and exit_code is None else exit_code,
        received=pipes.received,
        stderr=pipes.stderr,
        is_truncated=pipes.is_truncated,
    )


def one_line(output: bytes) -> str:
    """Return what a process printed as text on one line, neither cleaned nor redacted."""
    return " ".join(output.decode("utf-8", "replace").split())


def _start_process(
    argv: Sequence[str], env: Mapping[str, str], folder: str | None, stdin: int | BinaryIO
) -> subprocess.Popen[bytes]:
    inherited = {name: os.environ[name] for name in _INHERITED_ENV if name in os.environ}
    return subprocess.Popen(  # noqa: S603 - a list of words, built by our own code
        list(argv),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        cwd=folder,
        env={"PATH": os.defpath} | inherited | dict(env),
        bufsize=0,
    )


class _Pipes:
    """Writes a process's input, and reads its output up to a limit."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes, output: ByteSink, max_bytes: int) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._unwritten = memoryview(stdin)
        self._output, self._max_bytes = output, max_bytes
        self.received = 0
        self.stderr = b""
        self.is_truncated = False

    def transfer_until(self, ends_at: float, monotonic: Callable[[], float]) -> bool:
        """Read until both outputs are closed (True), the limit is reached (True), or the time is over (False)."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ, self._read_stdout)
            selector.register(self._stderr, selectors.EVENT_READ, self._read_stderr)
            if self._stdin is not None:
                os.set_blocking(self._stdin.fileno(), False)
                selector.register(self._stdin, selectors.EVENT_WRITE, self._write_stdin)
            open_outputs = 2
            while open_outputs and not self.is_truncated:
                left_s = ends_at - monotonic()
                ready = selector.select(left_s) if left_s > 0 else []
                if not ready:
                    return False
                for key, _ in ready:
                    if key.data():
                        continue
                    selector.unregister(key.fileobj)
                    if self._stdin is not None and key.fileobj is self._stdin:
                        self._stdin.close()
                    else:
                        open_outputs -= 1
        return True

    def close(self) -> None:
        for pipe in (self._stdin, self._stdout, self._stderr):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()

    def _write_stdin(self) -> bool:
        assert self._stdin is not None
        try:
            written = os.write(self._stdin.fileno(), self._unwritten[:_CHUNK_BYTES])
        except BlockingIOError:
            return True
        except OSError:  # it does not read its input
            return False
        self._unwritten = self._unwritten[written:]
        return len(self._unwritten) > 0

    def _read_stdout(self) -> bool:
        chunk = os.read(self._stdout.fileno(), _CHUNK_BYTES)
        accepted = chunk[: self._max_bytes - self.received]
        self._output.write(accepted)
        self.received += len(accepted)
        self.is_truncated = len(accepted) < len(chunk)
        return bool(chunk)

    def _read_stderr(self) -> bool:
        chunk = os.read(self._stderr.fileno(), _CHUNK_BYTES)
        self.stderr = _tail(self.stderr + chunk)
        return bool(chunk)


def _tail(output: bytes) -> bytes:
    """Return the end of a long output, without the word that the cut divides: half a key would not be redacted."""
    if len(output) <= _MAX_STDERR_BYTES:
        return output
    _, *rest = output[-_MAX_STDERR_BYTES:].split(None, 1)
    return b"".join(rest)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill it and its children, and reap it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_EXIT_WAIT_S)
