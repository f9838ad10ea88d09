"""Parses figures as people write them: 70B parameters, 350-500 tokens a second, 4x A100."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from gpuwatch.domain.market.gpu_names import catalog, clean_name

_FIGURE = r"(?i)([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([kmbgt]?)"
_SIZES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_CONFIG = r"(?i)(?:([0-9]{1,5})\s*[x×*]\s*)?(\S.*)"
MIN_FIGURE, MAX_FIGURE = 1e-9, 1e18  # figures outside are typos, and results could overflow


class FigureRange(NamedTuple):
    """A range; low and high are equal for a known figure."""

    low: float
    high: float

    @property
    def is_wide(self) -> bool:
        """Is it more than a single figure?"""
        return self.low != self.high


class GpuAllocation(msgspec.Struct, frozen=True):
    """GPUs as the owner writes them: "4x A100". `count` None: not given."""

    text: str
    gpus: tuple[str, ...]  # canonical names
    count: int | None = None


def exactly(value: float) -> FigureRange:
    """A range that consists of one figure."""
    return FigureRange(value, value)


def parse_figure(text: str | float) -> float:
    """Parse "70B" into 70e9. Raises ValueError: what was expected."""
    if isinstance(text, str):
        found = re.fullmatch(_FIGURE, text.strip())
        value = float(found[1]) * _SIZES[found[2].lower()] if found else 0.0
    else:
        value = float(text)
    if not MIN_FIGURE <= value <= MAX_FIGURE:
        raise ValueError('expected a number above 0, such as 7e9 or "70B"')
    return value


def parse_range(text: str | float) -> FigureRange:
    """Parse "350-500", or one figure. Raises ValueError."""
    low, dash, high = str(text).partition("-")
    if not isinstance(text, str) or not dash:
        return exactly(parse_figure(text))
    found = FigureRange(parse_figure(low), parse_figure(high))
    if found.low > found.high:
        raise ValueError('expected the lower figure first, such as "350-500"')
    return found


def parse_gpu_config(text: str) -> GpuAllocation:
    """Parse "4x A100 SXM 80GB". Raises ValueError: no GPU has this name."""
    found = re.fullmatch(_CONFIG, text.strip())
    count = int(found[1]) if found and found[1] else None
    name = found[2].strip() if found else ""
    gpus = catalog().wanted(name) if name else ()
    if not gpus or count == 0:
        near = catalog().suggest(name) if name else ()
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f'expected GPUs such as "4x A100", not {clean_name(text)!r}{hint}')
    return GpuAllocation(text.strip(), tuple(gpus), count)
