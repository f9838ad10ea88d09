"""The best schedule of polls that spacing and quota allow: nobody who polls by a fixed schedule sees offers sooner.

A search names GPUs and one price limit, and returns every offer of these GPUs at or under the limit. It serves each
watch of these GPUs whose own limit is not higher. A schedule is the number of searches per second at each limit, and
how many of them name each GPU; so the rate at which a watch is served is a sum of these. Three things limit it:

- searches: one every `spacing_s`, without those that the history needs;
- rows: each search costs the offers that it returns, on average over the day; hunts have a part of the quota;
- `poll_every`: no watch is served more often than its owner set.

An offer that appears at any moment waits for 1 / (2 × rate) on average if the polls of its watch are evenly spaced, and
longer otherwise. The schedule with the lowest mean wait is the solution of a linear program (the wait is convex, and is
replaced by tangents below it). The bound asks for less than a real scheduler must do: it knows all prices beforehand,
its searches need not be whole, evenly spaced or under 64 rows, and no search is refused. It does not adapt to the
moment: gpuwatch does, by polling a watch less often while it has a match, which makes up for a part of that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module

import msgspec
import numpy as np
from numpy.typing import NDArray

_TANGENTS, _LONGEST_S = 60, 3600.0  # at wait times from `poll_every` to an hour


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """A watch, as the bound knows it."""

    gpu: str
    limit_usd: float
    weight: float  # how many of the offers are its own


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What spacing, quota and owner allow."""

    searches_per_s: float
    rows_per_s: float | None  # None: no quota
    poll_every_s: float


class BestSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """How often each watch is polled by the schedule with the lowest mean wait."""

    mean_s: float  # no fixed schedule has a lower one
    rates: Sequence[float]  # polls per second, by watch
    weights: Sequence[float]

    def quantile_s(self, share: float) -> float:
        """Return the wait within which this share of the offers is seen."""
        waits_s = np.arange(0.0, 2 * _LONGEST_S, 0.1)
        seen = np.minimum(1.0, np.outer(waits_s, self.rates)) @ (np.array(self.weights) / sum(self.weights))
        return float(waits_s[np.searchsorted(seen, share - 1e-9)])


def best_schedule(
    watches: Sequence[Served], prices: Sequence[Mapping[str, Sequence[float]]], limits: Limits
) -> BestSchedule:
    """Return the schedule with the lowest mean wait.

    Args:
        prices: by GPU, USD per hour of the listed offers that a search may return; at several moments.
    """
    optimize, sparse = import_module("scipy.optimize"), import_module("scipy.sparse")
    gpus = list(dict.fromkeys(watch.gpu for watch in watches))
    levels = sorted({watch.limit_usd for watch in watches})
    named = [(level, gpu) for level in levels for gpu in gpus]  # searches at a limit that name a GPU
    sent, served = len(named), len(named) + len(levels)
    wait, variables = served + len(watches), served + 2 * len(watches)
    rows: list[dict[int, float]] = []
    most: list[float] = []

    def at_most(terms: dict[int, float], value: float) -> None:
        rows.append(terms)
        most.append(value)

    at_most({sent + number: 1.0 for number in range(len(levels))}, limits.searches_per_s)
    if limits.rows_per_s is not None:
        costs = {at: _rows(prices, gpu, level) for at, (level, gpu) in enumerate(named)}
        at_most(costs, limits.rows_per_s)
    for at, (level, _) in enumerate(named):
        at_most({at: 1.0, sent + levels.index(level): -1.0}, 0.0)
    for number, watch in enumerate(watches):
        by = {at: -1.0 for at, (level, gpu) in enumerate(named) if gpu == watch.gpu and level >= watch.limit_usd}
        at_most({served + number: 1.0} | by, 0.0)
        for long_s in np.geomspace(limits.poll_every_s, _LONGEST_S, _TANGENTS):
            # 1 / (2 rate) is not below its tangent at 1 / long_s: long_s - rate × long_s² / 2
            at_most({wait + number: -1.0, served + number: -(long_s**2) / 2}, -long_s)
    matrix = sparse.lil_matrix((len(rows), variables))
    for at, terms in enumerate(rows):
        for column, factor in terms.items():
            matrix[at, column] = factor
    weights = np.array([watch.weight for watch in watches]) / sum(watch.weight for watch in watches)
    cost = np.concatenate([np.zeros(wait), weights])
    bounds = [(0.0, None)] * served + [(0.0, 1 / limits.poll_every_s)] * len(watches) + [(0.0, None)] * len(watches)
    found = optimize.linprog(cost, A_ub=matrix.tocsr(), b_ub=most, bounds=bounds, method="highs")
    if found.status:
        raise RuntimeError(f"the bound has no solution: {found.message}")
    rates: NDArray[np.float64] = found.x[served:wait]
    return BestSchedule(mean_s=float(found.fun), rates=rates.tolist(), weights=weights.tolist())


def _rows(prices: Sequence[Mapping[str, Sequence[float]]], gpu: str, limit_usd: float) -> float:
    """Return how many offers of a GPU are at or under a limit, on average."""
    return sum(sum(usd <= limit_usd for usd in moment.get(gpu, ())) for moment in prices) / len(prices)
