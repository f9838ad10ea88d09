"""What was read of a file so far: a text that comes again is not read again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpuwatch.app.dataset.embedding import Embedder, Vectors
from gpuwatch.app.dataset.work_folder import WorkFolder

ROW_TYPE = np.dtype(
    [("line", "<u8"), ("bytes", "<u4"), ("tokens", "<u4"), ("cut", "u1"), ("hash", "<u8"), ("hash_rest", "<u8")]
)
VECTOR_TYPE = np.dtype("<f4")
_REMEMBERED = 500_000  # texts, at some 150 bytes each


class KnownTexts:
    """The first row of each text that was met, as far as they are remembered; the same in every run."""

    def __init__(self, folder: WorkFolder, dimensions: int, rows: int) -> None:
        self._folder, self._dimensions, self._rows = folder, dimensions, rows
        self._known: dict[bytes, int] = {}
        read = folder.table("rows", ROW_TYPE, 1, rows)
        for place in range(rows):
            if len(self._known) == _REMEMBERED:
                break
            self._known.setdefault(read["hash"][place].tobytes() + read["hash_rest"][place].tobytes(), place)

    def vectors(
        self, texts: Sequence[str], digests: Sequence[bytes], embedder: Embedder
    ) -> tuple[Vectors, np.ndarray[Any, Any]]:
        """Of the next rows: a vector each, and whether the text was cut. What is new is read, once."""
        new = {digest: text for digest, text in zip(digests, texts, strict=True) if digest not in self._known}
        places = {digest: place for place, digest in enumerate(new)}
        vectors = np.empty((len(texts), self._dimensions), VECTOR_TYPE)
        cut = np.zeros(len(texts), bool)
        if new:
            fresh, fresh_cut = embedder.vectors(list(new.values()))
            own = [place for place, digest in enumerate(digests) if digest in places]
            vectors[own] = fresh[[places[digests[place]] for place in own]]
            cut[own] = np.asarray(fresh_cut)[[places[digests[place]] for place in own]]
        old = [place for place, digest in enumerate(digests) if digest not in places]
        if old:
            rows = [self._known[digests[place]] for place in old]
            vectors[old] = self._folder.table("vectors", VECTOR_TYPE, self._dimensions, self._rows)[rows]
            cut[old] = self._folder.table("rows", ROW_TYPE, 1, self._rows)["cut"][rows]
        self._remember(digests)
        return vectors, cut

    def _remember(self, digests: Sequence[bytes]) -> None:
        for place, digest in enumerate(digests, self._rows):
            if len(self._known) < _REMEMBERED:
                self._known.setdefault(digest, place)
        self._rows += len(digests)
