"""Rows of a file between two passes, in a temporary file, so that they do not fill the memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from gpuwatch.domain.history.price_columns import PriceColumns
from gpuwatch.domain.history.price_rows import PriceRow

_ROW = np.dtype([("offer", "<i4"), ("at_s", "<i8"), ("microusd", "<i8")])


class SpooledRows:
    """Rows of 20 bytes each, in their order; first all are added, then parts are read."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 closed with this object
        self._length = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return self._length

    def append(self, rows: PriceColumns) -> None:
        """Add rows."""
        packed = np.empty(len(rows.offer), _ROW)
        packed["offer"], packed["at_s"], packed["microusd"] = rows.offer, rows.at_s, rows.microusd
        self._file.write(packed.tobytes())
        self._length += len(packed)

    def part(self, offers: Sequence[PriceRow], start: int, end: int) -> PriceColumns:
        """Return the rows [start, end)."""
        packed = self._read(start, min(end, self._length))
        offer, at_s, microusd = (packed[name].astype(np.int64) for name in ("offer", "at_s", "microusd"))
        return PriceColumns(offers=offers, offer=offer, at_s=at_s, microusd=microusd)

    def parts(self, rows: int) -> Iterator[tuple[int, int]]:
        """Yield parts of at least this many rows; consecutive rows of one moment stay together."""
        start = 0
        while start < self._length:
            end = min(start + rows, self._length)
            while end < self._length:
                moments = self._read(end - 1, min(end + rows, self._length))["at_s"]
                changes = np.flatnonzero(moments != moments[0])
                end += int(changes[0]) - 1 if len(changes) else len(moments) - 1
                if len(changes):
                    break
            yield start, end
            start = end

    def _read(self, start: int, end: int) -> Any:
        self._file.seek(start * _ROW.itemsize)
        return np.frombuffer(self._file.read((end - start) * _ROW.itemsize), _ROW)
