"""Prices of an hour as weights in steps of 1 %: the median of any set of hours is accurate to half a step.

Stored as bytes: `width, first step, count`, the gaps between steps (a byte each), the weights (1, 2 or 4 bytes).
Weights are minutes: seconds would double the size without changing a median.
"""

from __future__ import annotations

import math
import struct
import sys
from array import array
from collections.abc import Iterable, Mapping
from itertools import accumulate, pairwise

STEP = 1.01
_LOG_STEP = math.log(STEP)
_HEAD = struct.Struct("<BhH")  # bytes of a weight, first step, number of steps
_MUST_SWAP = sys.byteorder == "big"

_TYPES = {1: "B", 2: "H", 4: "I"}

SketchWeights = dict[int, int]  # step → minutes on offer


def step_of(price_microusd: int) -> int:
    """Return the step of a price; its middle differs from the price by at most half a percent."""
    return round(math.log(max(price_microusd, 1)) / _LOG_STEP)


def price_of_step(step: int) -> int:
    """Return the middle of a step, in micro-dollars."""
    return round(math.exp(step * _LOG_STEP))


def encode_sketch(seconds: Mapping[int, int]) -> bytes:
    """Encode a sketch as bytes.

    Args:
        seconds: step → seconds on offer; at least one.
    """
    weights = {step: max(1, round(time / 60)) for step, time in seconds.items()}
    steps = sorted(weights)
    gaps, values = bytearray(), [weights[steps[0]]]
    for before, step in pairwise(steps):
        gap = step - before
        while gap > 255:  # a distant price: steps without weight bridge the gap
            gaps.append(255)
            values.append(0)
            gap -= 255
        gaps.append(gap)
        values.append(weights[step])
    packed_values = array("B" if max(values) < 256 else "H" if max(values) < 65_536 else "I", values)
    if _MUST_SWAP:
        packed_values.byteswap()
    return pack_sketch(steps[0], bytes(gaps), packed_values.tobytes())


def pack_sketch(first_step: int, gaps: bytes, weights: bytes) -> bytes:
    """Encode the parts of a sketch, as described at the top of the module."""
    count = len(gaps) + 1
    return _HEAD.pack(len(weights) // count, first_step, count) + gaps + weights


def merge_sketches(sketches: Iterable[bytes]) -> SketchWeights:
    """Merge sketches into one."""
    total: SketchWeights = {}
    get = total.get
    for sketch in sketches:
        width, first, count = _HEAD.unpack_from(sketch)
        start = _HEAD.size + count - 1
        weights = array(_TYPES[width])
        weights.frombytes(sketch[start : start + width * count])
        if _MUST_SWAP:
            weights.byteswap()
        for step, weight in zip(accumulate(sketch[_HEAD.size : start], initial=first), weights, strict=True):
            total[step] = get(step, 0) + weight
    return total


def quantile(weights: SketchWeights, share: float) -> int | None:
    """Return the price (micro-dollars) under which this share of the time lies, or None without any weight."""
    remaining = sum(weights.values()) * share
    if not weights or not any(weights.values()):
        return None
    for step in sorted(weights):
        remaining -= weights[step]
        if weights[step] and remaining <= 0:
            return price_of_step(step)
    return price_of_step(max(weights))
