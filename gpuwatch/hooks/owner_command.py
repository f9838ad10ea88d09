"""Runs a command of the owner: in its own process group, with a timeout and a minimal environment."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

_INHERITED_ENV = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR")  # none of them holds a secret
_TAIL_BYTES = 4096
_POLL_INTERVAL_S = 0.1
_MAX_FINAL_READS = 64
_GRACE_S = 2.0  # between SIGTERM and SIGKILL


class CommandResult(msgspec.Struct, frozen=True):
    """The result of a command. `code` None: it was killed, because it timed out or gpuwatch is stopping."""

    code: int | None
    output: str  # end of its output, not cleaned yet

    @property
    def last_line(self) -> str:
        """The last non-empty line."""
        return self.last_lines(1)

    def last_lines(self, count: int) -> str:
        """The last non-empty lines, as one line."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return " / ".join(lines[-count:])


class CommandNotStarted(OSError):
    """The program does not exist or is not executable: nothing was run."""


def run_command(
    argv: Sequence[str],
    stdin: bytes,
    env: Mapping[str, str],
    timeout_s: float,
    stopping: threading.Event,
    folder: str | None = None,
) -> CommandResult:
    """Run a command; remaining processes of its group are killed with it.

    Args:
        argv: the program and its arguments; no shell reads them.
        stdin: its standard input; a command need not read it.
        env: in addition to PATH, HOME and the like; nothing else of gpuwatch's environment is passed on.
        stopping: ends it early.
        folder: its working directory; None: gpuwatch's own.

    Raises:
        CommandNotStarted: nothing was run.
    """
    inherited = {name: os.environ[name] for name in _INHERITED_ENV if name in os.environ}
    try:
        process = subprocess.Popen(  # noqa: S603 the owner's own command
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": os.defpath} | inherited | dict(env),
            cwd=folder,
            start_new_session=True,
            bufsize=0,
        )
    except OSError as error:
        raise CommandNotStarted(error.errno, error.strerror or str(error)) from error
    try:
        tail = _ProcessPipes(process, stdin).wait_until(timeout_s, stopping)
        in_time = _has_ended(process)
    finally:
        _end(process)
    return CommandResult(process.returncode if in_time else None, tail.decode("utf-8", "replace"))


class _ProcessPipes:
    """Writes a process's input and reads its output, whatever it does with its pipes; keeps the end of the output."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout
        self._unwritten = stdin
        self._tail = b""
        os.set_blocking(self._stdin.fileno(), False)
        os.set_blocking(self._stdout.fileno(), False)

    def wait_until(
        self, timeout_s: float, stopping: threading.Event, monotonic: Callable[[], float] = time.monotonic
    ) -> bytes:
        """Wait until the process ends, its time is over, or gpuwatch stops. Ignores processes that it left behind."""
        ends_at = monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ)
            selector.register(self._stdin, selectors.EVENT_WRITE)
            while not _has_ended(self._process) and monotonic() < ends_at and not stopping.is_set():
                for key, _ in selector.select(_POLL_INTERVAL_S):
                    still_open = self._write_stdin() if key.fileobj is self._stdin else self._read_stdout()
                    if not still_open:
                        selector.unregister(key.fileobj)
                        if key.fileobj is self._stdin:
                            self._stdin.close()
                if not selector.get_map():
                    stopping.wait(_POLL_INTERVAL_S)  # it closed its pipes and continues
        for _ in range(_MAX_FINAL_READS):  # processes that it left behind may write forever
            if not self._read_stdout(waits=False):
                break
        return self._tail

    def _write_stdin(self) -> bool:
        try:
            written = os.write(self._stdin.fileno(), self._unwritten[:65536])
        except BlockingIOError:
            return True
        except OSError:  # it does not read its input
            return False
        self._unwritten = self._unwritten[written:]
        return bool(self._unwritten)

    def _read_stdout(self, waits: bool = True) -> bool:
        try:
            chunk = os.read(self._stdout.fileno(), 65536)
        except BlockingIOError:
            return waits
        self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
        return bool(chunk)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Check without reaping it: until then no other process can get its id, which identifies its group."""
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return process.returncode is not None or os.waitid(os.P_PID, process.pid, options) is not None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the whole group: SIGTERM first, then SIGKILL."""
    _signal(process, signal.SIGTERM)
    for _ in range(round(_GRACE_S / _POLL_INTERVAL_S)):
        if _has_ended(process):
            break
        time.sleep(_POLL_INTERVAL_S)
    _signal(process, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
