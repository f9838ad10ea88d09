"""A market of a year, drawn from a seed: polls, machines and their prices, as arrays.

15 providers sell 60 GPUs; prices drift, follow the hour of the week, and change at polls. Figures and ids are invented.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpuwatch.domain.history.market_history import COVERAGE_S
from gpuwatch.domain.setup.durations import HOUR_S

Ints = NDArray[np.int64]

DAYS, INTERVALS = 365, 2_950_000
_INTERVALS_OF_A_SERIES = 50.0  # a year
_PRICE_H, _LEAST_CONCURRENT = 6.0, 4.2  # how long a price lasts, and how many are on offer in a small segment
_REPRICED = 0.35  # the share of prices that the next one follows at once
_HUNTED = ("H100 SXM", "RTX 4090", "A100 SXM 80GB", "RTX 5090")
_HUNTERS, _HUNT_S = ("vastai", "runpod"), 187.0
_FAILED, _OUTAGES = 0.004, 3  # the share of polls that fail, and outages of each provider a year

# the most frequent first: USD per GPU-hour, GiB
GPUS = {
    "H100 SXM": (2.30, 80), "RTX 4090": (0.38, 24), "A100 SXM 80GB": (1.10, 80), "RTX 5090": (0.55, 32),
    "H200 SXM": (2.90, 141), "L40S": (0.80, 48), "H100 PCIe": (1.95, 80), "RTX A6000": (0.48, 48),
    "B200 SXM": (4.10, 180), "L4": (0.40, 24), "A100 PCIe 80GB": (0.95, 80), "RTX 3090": (0.20, 24),
    "RTX 6000 Ada": (0.75, 48), "A10": (0.45, 24), "RTX A5000": (0.24, 24), "A40": (0.40, 48), "H100 NVL": (2.05, 94),
    "A100 SXM 40GB": (0.85, 40), "RTX PRO 6000 Server": (1.25, 96), "T4": (0.20, 16), "RTX A4000": (0.15, 16),
    "RTX 4080": (0.26, 16), "L40": (0.70, 48), "RTX 5080": (0.28, 16), "V100 SXM2 16GB": (0.25, 16),
    "RTX 3080": (0.14, 10), "GH200 96GB": (1.60, 96), "RTX 4070 Ti": (0.15, 12), "RTX 3060": (0.08, 12),
    "RTX 4000 Ada": (0.28, 20), "A30": (0.35, 24), "RTX 5070 Ti": (0.19, 16), "B300 SXM": (5.20, 288),
    "RTX A4500": (0.20, 20), "H200 NVL": (2.70, 141), "RTX 4060 Ti": (0.11, 16), "A100 PCIe 40GB": (0.75, 40),
    "RTX 5000 Ada": (0.50, 32), "RTX 3080 Ti": (0.16, 12), "MI300X": (1.90, 192), "A16": (0.25, 16),
    "V100 SXM2 32GB": (0.35, 32), "RTX 3090 Ti": (0.23, 24), "RTX 4070": (0.13, 12), "RTX 3070": (0.11, 8),
    "GB200": (6.00, 186), "Quadro RTX 8000": (0.30, 48), "RTX 2000 Ada": (0.18, 16), "A10G": (0.50, 24),
    "RTX 5070": (0.15, 12), "RTX 2080 Ti": (0.12, 11), "RTX 4080 SUPER": (0.27, 16), "P100 PCIe": (0.15, 16),
    "RTX 5060 Ti": (0.12, 16), "Titan RTX": (0.18, 24), "RTX A2000": (0.10, 6), "V100 PCIe 16GB": (0.22, 16),
    "RTX PRO 4500": (0.45, 32), "P40": (0.12, 24), "MI250": (1.10, 128),
}  # fmt: skip


class Seller(NamedTuple):
    """A provider as drawn."""

    name: str
    size: float  # share of the prices of each of its segments, relative
    gpus: int
    spot_gpus: int
    counts: tuple[int, ...]  # GPUs of an offer; the first is sold always, each other one by chance
    factor: float  # its prices, relative
    disk_microusd_gb_month: int | None


SELLERS = (
    Seller("vastai", 10.0, 56, 30, (1, 2, 4, 8), 0.85, 150_000),
    Seller("runpod", 5.0, 36, 20, (1, 2, 4, 8), 1.00, 100_000),
    Seller("tensordock", 3.0, 26, 0, (1, 2, 4, 8), 0.92, 50_000),
    Seller("gpuhunt", 2.0, 24, 4, (1, 4, 8), 1.10, None),
    Seller("pricelist", 1.0, 20, 0, (1, 8), 1.15, None),
    Seller("primeintellect", 3.0, 20, 4, (1, 2, 4, 8), 1.02, None),
    Seller("shadeform", 2.0, 18, 0, (1, 2, 4, 8), 1.08, None),
    Seller("aws", 0.6, 14, 6, (1, 4, 8), 1.90, None),
    Seller("gcp", 0.5, 12, 5, (1, 2, 4, 8), 1.80, None),
    Seller("azure", 0.5, 10, 4, (1, 2, 4, 8), 1.85, None),
    Seller("lambda", 0.8, 10, 0, (1, 2, 8), 1.20, None),
    Seller("hyperstack", 0.6, 9, 0, (1, 2, 4, 8), 1.05, None),
    Seller("verda", 0.8, 9, 3, (1, 2, 4, 8), 0.98, 80_000),
    Seller("nebius", 0.5, 7, 1, (1, 8), 1.25, None),
    Seller("vultr", 0.5, 6, 0, (1, 8), 1.30, None),
)
PLACES = (
    *(("us-east", "US"), ("us-west", "US"), ("Texas, US", "US"), ("eu-north", "SE"), ("eu-central", "DE")),
    *(("Quebec, CA", "CA"), ("ap-south", "IN"), ("Norway, NO", "NO"), ("", "CZ"), ("", "")),
)


class Year(NamedTuple):
    """What is drawn."""

    seed: int
    until_s: int  # now, for the store
    days: int = DAYS
    intervals: int = INTERVALS  # about
    part: float = 1.0  # share of what the sellers offer

    @property
    def start_s(self) -> int:
        """The beginning of the first hour."""
        return (self.until_s - self.days * 86_400) // HOUR_S * HOUR_S


class Scope(NamedTuple):
    """A provider's offers of one GPU and rental type, with its sweeps."""

    seller: Seller
    gpu: str
    spot: int
    counts: tuple[int, ...]
    at_s: Ints  # every sweep, in ascending order
    failed: NDArray[np.bool_]

    @property
    def covering_s(self) -> Ints:
        """The sweeps that prove what is on offer."""
        return self.at_s[~self.failed]


class Prices(NamedTuple):
    """The intervals of one segment, in the order of the primary key; -1: NULL."""

    series: Ints  # 0 … number of machines - 1
    from_s: Ints
    to_s: Ints
    ended_s: Ints
    machine_microusd: Ints


def scopes(year: Year) -> list[Scope]:
    """Draw who sells what, and the sweeps: each provider reads all that it sells once an hour, in turn."""
    rng = np.random.default_rng([year.seed, 1])
    found: list[Scope] = []
    names = list(GPUS)
    for seller in SELLERS:
        sold = _sold(rng, names, seller.gpus, year.part)
        targets = [(gpu, 0) for gpu in sold] + [(gpu, 1) for gpu in sold[: math.ceil(seller.spot_gpus * year.part)]]
        hours = np.arange(year.start_s, year.until_s, HOUR_S)
        begins_s = rng.integers(0, 900) + np.cumsum(rng.integers(-1, 2, len(hours))).clip(-300, 900) + 300
        outages = rng.integers(0, len(hours), _OUTAGES)
        out_h = rng.integers(5, 15, _OUTAGES)
        is_out = np.zeros(len(hours), bool)
        for first, length in zip(outages, out_h, strict=True):
            is_out[max(first, 1) : min(first + length, len(hours) - 24)] = True
        for number, (gpu, spot) in enumerate(targets):
            at_s = hours + begins_s + number * 6 + rng.integers(0, 3, len(hours))
            failed = (rng.random(len(hours)) < _FAILED) | is_out
            failed[0] = False
            kept = at_s <= year.until_s
            counts = tuple(count for count in seller.counts if count == seller.counts[0] or rng.random() < 0.29)
            found.append(Scope(seller, gpu, spot, counts, at_s[kept], failed[kept]))
    return found


def _sold(rng: np.random.Generator, names: list[str], count: int, part: float) -> list[str]:
    weights = 1 / (np.arange(len(names)) + 6.0)
    drawn = rng.choice(len(names), max(1, round(count * part)), replace=False, p=weights / weights.sum())
    return [names[number] for number in sorted({0, *drawn.tolist()})]


def hunts(year: Year, sold: list[Scope]) -> Iterator[tuple[Scope, Ints]]:
    """Draw the hunts: marketplaces are polled for each watched GPU every three minutes."""
    rng = np.random.default_rng([year.seed, 2])
    length_s = year.until_s - year.start_s
    for scope in sold:
        if scope.seller.name in _HUNTERS and scope.gpu in _HUNTED and not scope.spot:
            waits = _HUNT_S + rng.normal(0, 4, int(length_s / _HUNT_S))
            at_s = year.start_s + 400 + np.cumsum(waits).astype(np.int64)
            yield scope, at_s[at_s <= year.until_s]


def segment_sizes(year: Year, sold: list[Scope]) -> list[int]:
    """Return the number of price intervals of each segment, in the order of scopes and counts."""
    rng = np.random.default_rng([year.seed, 3])
    weights = np.array([
        scope.seller.size * (1 / (list(GPUS).index(scope.gpu) + 8)) / count**0.5 * rng.lognormal(0, 0.4)
        for scope in sold
        for count in scope.counts
    ])  # fmt: skip
    return [int(one) for one in np.maximum(weights / weights.sum() * year.intervals, max(10, 40 * year.days / DAYS))]


def prices(year: Year, scope: Scope, count: int, size: int, number: int) -> Prices:
    """Draw the prices of one segment: about `size` intervals, which begin and end at covering sweeps."""
    rng = np.random.default_rng([year.seed, 4, number])
    covering = scope.covering_s
    hours = len(covering)
    concurrent = max(_LEAST_CONCURRENT, size * _PRICE_H / hours)
    lasts = concurrent * hours / size  # sweeps that a price lasts on average
    machines = max(math.ceil(2.2 * concurrent), math.ceil(size / (_INTERVALS_OF_A_SERIES * hours / (DAYS * 24))))
    cycle = machines * hours / size  # sweeps from a price to the machine's next one
    columns = math.ceil(1.25 * size / machines) + 4
    length = np.maximum(1, np.rint(rng.exponential(lasts, (machines, columns)))).astype(np.int64)
    pause = np.maximum(1, np.rint(rng.exponential(max(1.0, (cycle - lasts) / (1 - _REPRICED)), length.shape)))
    pause[rng.random(length.shape) < _REPRICED] = 0
    begins = np.cumsum(length + pause.astype(np.int64), axis=1)
    begins = np.hstack([np.zeros((machines, 1), np.int64), begins[:, :-1]])
    begins -= np.rint(rng.uniform(0, cycle, (machines, 1))).astype(np.int64)
    ends, begins = begins + length, np.maximum(begins, 0)
    usd = _usd_hour(rng, scope, count, covering[np.minimum(begins, hours - 1)])
    kept = (begins < hours) & (ends > 0)
    series = np.nonzero(kept)[0].astype(np.int64)
    first, past = begins[kept], ends[kept]
    is_open = past >= hours
    past = np.minimum(past, hours - 1)
    return Prices(
        _renumbered(series),
        covering[first],
        np.where(is_open, -1, covering[np.maximum(past - 1, first)]),
        np.where(is_open, -1, covering[past]),
        np.maximum(1000, np.rint(usd[kept] * 1e6)).astype(np.int64),
    )


def _renumbered(series: Ints) -> Ints:
    """Number the machines that have any price without a gap."""
    return np.unique(series, return_inverse=True)[1].astype(np.int64)


def _usd_hour(rng: np.random.Generator, scope: Scope, count: int, at_s: Ints) -> NDArray[np.float64]:
    usual = GPUS[scope.gpu][0] * scope.seller.factor * count * (0.45 if scope.spot else 1.0)
    machine = rng.lognormal(0, 0.16, (len(at_s), 1))
    of_day = 1 + 0.04 * np.sin((at_s % 86_400) / 86_400 * math.tau - 2.4)
    of_week = 1 + 0.03 * np.sin(at_s % 604_800 / 604_800 * math.tau)
    of_year = 1.15 - 0.3 * (at_s - at_s.min()) / max(1, int(at_s.max() - at_s.min()))
    drawn = usual * machine * of_day * of_week * of_year * rng.lognormal(0, 0.06, at_s.shape)
    return drawn.clip(usual / 3, usual * 3)


def gaps(covering_s: Ints) -> list[tuple[int, int]]:
    """Return the spans of time for which no poll proves anything."""
    late = np.nonzero(np.diff(covering_s) > COVERAGE_S)[0]
    return [(int(covering_s[at]) + COVERAGE_S, int(covering_s[at + 1])) for at in late]
