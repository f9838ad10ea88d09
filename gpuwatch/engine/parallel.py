"""Several providers at once, each in a thread of its own: a slow or broken one holds up neither the others nor us."""

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
    """What came of one. Exactly one of `result` and `error` is set."""

    name: str
    result: T | None = None
    error: str | None = None  # one line, without secrets
    late: bool = False  # it was not done in time; whatever it does yet, nobody hears of it


def run_in_parallel(
    names: Iterable[str], do: Callable[[str], T], within_s: float | None = None
) -> Iterator[ParallelResult[T]]:
    """Run `do` for each name at once; outcomes come as they are there, those that are not there in time at the end.

    The threads are daemons: a process ends without them.

    Args:
        within_s: real seconds for all of them together; None: as long as it takes.
    """
    done: queue.SimpleQueue[ParallelResult[T]] = queue.SimpleQueue()
    waiting = dict.fromkeys(names)
    until = None if within_s is None else time.monotonic() + within_s
    for name in waiting:
        threading.Thread(target=_run, args=(name, do, done), name=f"ask {name}", daemon=True).start()
    while waiting:
        try:
            outcome = done.get(timeout=None if until is None else max(0.0, until - time.monotonic()))
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
    except BaseException as error:  # whatever it is, it is one line, and nobody waits for this one for ever
        log.debug("%s failed", name, exc_info=True)
        what = " ".join(redact(f"{type(error).__name__}: {error}").split())[:200]
        done.put(ParallelResult(name=name, error=f"a fault in gpuwatch ({what})"))
