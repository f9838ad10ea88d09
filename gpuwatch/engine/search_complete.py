"""The one way to search until the answer is enough: a cut page of offers that nobody accepts proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from gpuwatch.ports import Query

A = TypeVar("A")


def search_complete(search: Callable[[Query], A], query: Query, is_enough: Callable[[A], bool]) -> A:
    """Search as asked; if that is not enough, search again for every row.

    Args:
        search: asks the market and reads the answer; may raise ProviderError.
        is_enough: is the first answer complete, or does it hold what is looked for?
    """
    found = search(query)
    if query.limit is None or is_enough(found):
        return found
    return search(msgspec.structs.replace(query, limit=None))
