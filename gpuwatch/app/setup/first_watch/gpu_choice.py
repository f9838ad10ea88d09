"""A GPU by what a person types: any spelling, a part of a name, or a slip. Pure."""

from __future__ import annotations

import re

import msgspec

from gpuwatch.domain.market.gpu_names import catalog, fold

_MOST_SHOWN = 6


class GpuChoice(msgspec.Struct, frozen=True):
    """A GPU family or card, as `gpu` of a watch, and the canonical names that it stands for."""

    name: str
    names: tuple[str, ...]

    @property
    def is_listed(self) -> bool:
        """Whether the catalogue has it: a card that is new, or a slip, is not."""
        return not catalog().unlisted(self.name)

    @property
    def watch_name(self) -> str:
        """ "RTX 4090" → "rtx-4090"."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")


def chosen_gpu(text: str) -> GpuChoice | None:
    """The GPU that a text names exactly, by its usual name; None: it names none."""
    names = catalog().wanted(text) or catalog().unlisted(text)
    if not names:
        return None
    known = catalog().get(names[0])
    usual = [names[0], *([known.family] if known else [])]
    return GpuChoice(next((name for name in usual if catalog().wanted(name) == names), text.strip()), names)


def similar_gpus(text: str) -> tuple[str, ...]:
    """The names that contain a text, else those that are spelled alike; at most six."""
    part = fold(text)
    named = [name for gpu in catalog().gpus() for name in (gpu.family, gpu.name)]
    found = [name for name in named if len(part) > 1 and part in fold(name)]
    return tuple(dict.fromkeys(found))[:_MOST_SHOWN] or catalog().suggest(text)
