"""How many tokens a text has."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from gpuwatch.app.dataset.embedding import read_tokenizer

_PIECE = 50_000  # characters split at once: a token's record weighs a hundred times the token
_BATCH = 16  # pieces


class TokenCounter:
    """Counts with a tokenizer.json: of the model that is to be trained, or of another as an estimate."""

    def __init__(self, path: Path, *, estimate: bool) -> None:
        self._tokens = read_tokenizer(path)
        self._tokens.no_truncation()
        self._tokens.no_padding()
        self.estimate = estimate
        self.digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]

    def counts(self, texts: Sequence[str]) -> list[int]:
        """Of each text, without marks for its beginning and end."""
        pieces = [(i, text[at : at + _PIECE]) for i, text in enumerate(texts) for at in range(0, len(text), _PIECE)]
        found = [0] * len(texts)
        for start in range(0, len(pieces), _BATCH):
            some = pieces[start : start + _BATCH]
            read = self._tokens.encode_batch_fast([piece for _, piece in some], add_special_tokens=False)
            for (number, _), tokens in zip(some, read, strict=True):
                found[number] += len(tokens.ids)
        return found
