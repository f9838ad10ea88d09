"""Which texts a model can read, by its tokenizer: one that it does not know, or spells letter by letter, says nothing.

A vocabulary of English words has one unknown token for a Thai sentence, an emoji or 400 bases of DNA, so all of them
have one vector; Russian and short base64 become single letters, whose mean is nearly the same for all texts.
"""

from __future__ import annotations

import json
from typing import Any, Final

_UNREAD_SHARE: Final = 0.3  # of the characters; English, German, code and documents have less than 0.2
_SPELLED: Final = 2  # characters per token of a spelled word
_SPELLED_TOKENS: Final = 3


class KnownTokens:
    """What a tokenizer knows."""

    def __init__(self, tokenizer: Any) -> None:
        model = json.loads(tokenizer.to_str())["model"]
        name = model.get("unk_token")
        self.unknown = model.get("unk_id") if name is None else tokenizer.token_to_id(name)
        self._spells = model.get("type") == "WordPiece"  # other kinds have bytes or pieces for any script

    def is_unread(self, encoding: Any) -> bool:
        """Are most characters of this text, as encoded, unknown or spelled?"""
        known = unread = 0
        for start, end, tokens, is_unknown in _words(encoding, self.unknown):
            if is_unknown or (self._spells and tokens >= _SPELLED_TOKENS and end - start <= _SPELLED * tokens):
                unread += end - start
            else:
                known += end - start
        return unread >= _UNREAD_SHARE * (known + unread)  # without any token, too

    def unknown_characters(self, encoding: Any) -> tuple[int, int]:
        """The number of unknown tokens, and of the characters that they stand for."""
        spans = [
            end - start
            for number, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
            if number == self.unknown
        ]
        return len(spans), sum(spans)


def _words(encoding: Any, unknown: int | None) -> list[tuple[int, int, int, bool]]:
    """Start, end, tokens of each word, and whether one of them is unknown; without special tokens."""
    words: dict[int, tuple[int, int, int, bool]] = {}
    for number, word, (start, end) in zip(encoding.ids, encoding.word_ids, encoding.offsets, strict=True):
        if word is not None:
            first, _, tokens, is_unknown = words.get(word, (start, end, 0, False))
            words[word] = first, end, tokens + 1, is_unknown or number == unknown
    return list(words.values())
