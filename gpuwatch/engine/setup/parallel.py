"""Runs work for several providers in parallel, each in its own thread: a slow or failing one delays no other."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

from gpuwatch.errors import GpuwatchError
from gpuwatch.redaction import redact

log = logging.getLogger(__name__)

T = TypeVar("T")


class ParallelResult(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The result for one name. Exactly one of `result` and `error` is set."""

    name: str
    result: T | None = None
    error: str | None = None  # one line, without secrets
    late: bool = False  # not done in time; a later result is ignored


def run_in_parallel(
    names: Iterable[str],
    do: Callable[[str], T],
    within_s: float | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[ParallelResult[T]]:
    """Run `do` for all names in parallel. Results come as they arrive; names without a result in time come last.

    The threads are daemon threads: the process does not wait for them at exit.

    Args:
        within_s: time limit for all of them together; None: none.
    """
    done: queue.SimpleQueue[ParallelResult[T]] = queue.SimpleQueue()
    waiting = dict.fromkeys(names)
    until = None if within_s is None else monotonic() + within_s
    for name in waiting:
        threading.Thread(target=_run, args=(name, do, done), name=f"ask {name}", daemon=True).start()
    while waiting:
        try:
            outcome = done.get(timeout=None if until is None else max(0.0, until - monotonic()))
        except queue.Empty:
            break
        del waiting[outcome.name]
        yield outcome
    for name in waiting:
        yield ParallelResult(name=name, error=f"no answer within {within_s:g} s", late=True)


def _run(name: str, do: Callable[[str], T], done: queue.SimpleQueue[ParallelResult[T]]) -> None:
    try:
        done.put(ParallelResult(name=name, result=do(name)))
    except GpuwatchError as error:
        done.put(ParallelResult(name=name, error=str(error).removeprefix(f"{name}: ")))
    except BaseException as error:  # whatever it is, it becomes one line: a caller must not wait forever
        log.debug("%s failed", name, exc_info=True)
        what = " ".join(redact(f"{type(error).__name__}: {error}").split())[:200]
        done.put(ParallelResult(name=name, error=f"internal error ({what})"))
