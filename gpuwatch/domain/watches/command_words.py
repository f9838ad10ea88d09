"""The words of a command that rents: `command = ["sky", "launch", …, "{region}"]`, with placeholders replaced. Pure.

A placeholder is replaced within its word: no value adds a second word, and gpuwatch passes none to a shell.
Values from a marketplace or host keep letters, digits and a few signs, and never start like an option or a path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import Final

from gpuwatch.domain.market.pricing import usd
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.orchestrator_task import price_cap_usd_hour, task_name
from gpuwatch.domain.watches.watch import Watch

TASK_FILE: Final = "task_file"
PLACEHOLDERS: Final = (
    *("provider", "region", "instance_type", "offer_id", "gpu", "gpu_count", "spot", "price_usd_hour", "max_price"),
    *("max_runtime_s", "watch", "name", "launch_id", TASK_FILE),
)
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_UNSAFE = re.compile(r"[^\w .:/,+-]")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "fish"})
_LONGEST = 200


def filled_words(watch: Watch, match: Match, launch_id: str, task_file: str = "TASK_FILE") -> tuple[str, ...]:
    """Return the words of the command for an offer: as many as the owner wrote."""
    offer, runtime_s = match.offer, watch.launch.max_runtime_s if watch.launch else None
    values = {
        "provider": plain_word(offer.provider),
        "region": plain_word(offer.region),
        "instance_type": plain_word(offer.terms.instance_type),
        "offer_id": plain_word(offer.offer_id),
        "gpu": plain_word(offer.gpu),
        "gpu_count": str(offer.gpu_count),
        "spot": "true" if offer.spot else "false",
        "price_usd_hour": f"{usd(match.price.price_microusd_hour):.4f}",
        "max_price": f"{price_cap_usd_hour(watch, match):.4f}",
        "max_runtime_s": "" if runtime_s is None else str(round(runtime_s)),
        "watch": plain_word(watch.name),
        "name": task_name(watch),
        "launch_id": launch_id,
        TASK_FILE: task_file,
    }
    return tuple(_PLACEHOLDER.sub(lambda found: values[found[1]], word) for word in watch.command)


def plain_word(text: str | None) -> str:
    """Return a text from outside as a part of a word: unusual characters become `_`; empty: unknown."""
    kept = _UNSAFE.sub("_", (text or "")[:_LONGEST]).replace("..", "_")
    return kept.lstrip("-./ ").rstrip()


def word_faults(words: Sequence[str]) -> Iterator[str]:
    """Yield the errors in a command as its owner wrote it."""
    if _PLACEHOLDER.search(words[0]):
        yield "expected a program as the first word, without a placeholder"
    for name in dict.fromkeys(name for word in words for name in _PLACEHOLDER.findall(word)):
        if name not in PLACEHOLDERS:
            yield f"unknown placeholder {{{name}}}; expected one of: {', '.join(PLACEHOLDERS)}"
    for before, word in pairwise(words):
        is_script = PurePath(words[0]).name in _SHELLS and re.fullmatch(r"-[a-z]*c", before)
        if is_script and _PLACEHOLDER.search(word):
            yield 'no placeholder in a script; pass it as an argument: ["sh", "-c", "… \\"$1\\"", "sh", "{region}"]'


def uses_task_file(words: Sequence[str]) -> bool:
    """Whether a command uses the file of its task."""
    return any(f"{{{TASK_FILE}}}" in word for word in words)
