"""Query results as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from gpuwatch.domain.history.poll_timeline import Ints


def int_columns(rows: Iterable[Sequence[int]], count: int) -> Ints:
    """Return the columns of rows of integers; `np.array(rows)` takes forty times as long on SQLAlchemy's rows.

    Args:
        rows: the result itself: a list of a million rows takes the garbage collector a second.
    """
    return np.fromiter(chain.from_iterable(rows), np.int64).reshape(-1, count).T
