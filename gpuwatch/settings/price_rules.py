"""How a watch says what is cheap enough: a price, the history, or the cost of its job; one of them, and its needs."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.settings.sources import Path_
from gpuwatch.watches.schema import WatchTable


def price_faults(watch: WatchTable) -> Iterator[tuple[Path_, str]]:
    """What does not go together; each with its path within the watch."""
    if watch.max_price is None and watch.max_job_cost is None:
        yield ("max_price",), "it is missing; expected: USD per GPU-hour, or max_job_cost"
    if watch.max_price is not None and watch.max_job_cost is not None:
        yield ("max_job_cost",), "expected either max_price or max_job_cost, not both"
    if watch.max_price == "auto":
        for key, example in (("max_price_cap", "max_price_cap = 3.50"), ("deadline", 'deadline = "2d"')):
            if getattr(watch, key) is None:
                yield (key,), f'it is missing; expected beside max_price = "auto", such as {example}'
    else:
        for key in ("max_price_cap", "deadline"):
            if getattr(watch, key) is not None:
                yield (key,), 'expected only beside max_price = "auto"'
    yield from _job_faults(watch)


def _job_faults(watch: WatchTable) -> Iterator[tuple[Path_, str]]:
    if watch.max_job_cost is not None and watch.job is None:
        yield ("job",), "expected beside max_job_cost: add [watch.job]"
    if watch.job is not None and watch.max_job_cost is None:
        yield ("job",), "expected only beside max_job_cost"
