"""A seeded market that changes during a day: standing offers above the limits, short-lived bargains below.

A bargain is an offer at or under a watch's limit: a newly listed machine, or a listed one that becomes cheaper. Their
number and duration are assumptions (`describe`), not measurements of a marketplace.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable

import msgspec

from benchmarks.virtual_time import VirtualTime
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.emulator import Marketplace
from gpuwatch.emulator.market.hardware import GPUS, GpuModel

LIMIT_SHARE = 0.75  # a watch's limit as a share of the model's usual price
BARGAIN_EVERY_S = 45 * 60.0  # mean time between two bargains of one GPU
BARGAIN_LIFE_S, BARGAIN_SPREAD = 8 * 60.0, 1.1  # median, and sigma of its logarithm
STANDING_LIFE_S = 6 * 3600.0  # mean time until a standing offer leaves or changes its price
REFUSES_FOR_S = (20.0, 60.0)  # how long a busy marketplace rejects every search, with a Retry-After
DAY_S = 86_400.0
_COUNTS, _COUNT_WEIGHTS = [1, 2, 4, 8], [55, 15, 15, 15]


class Habits(msgspec.Struct, frozen=True, kw_only=True):
    """The frequency and duration of bargains; assumed."""

    limit_share: float = LIMIT_SHARE  # a watch's limit as a share of the model's usual price
    bargain_every_s: float = BARGAIN_EVERY_S  # mean time between two of one GPU
    bargain_life_s: float = BARGAIN_LIFE_S  # median


HABITS = Habits()


class Bargain(msgspec.Struct, kw_only=True):
    """An offer while it is at or under a watch's limit; times in Unix seconds."""

    gpu: str
    usd_hour: float
    appears_s: float
    vanishes_s: float
    seen_s: float | None = None  # when the first hunt answer with it had arrived


def models() -> dict[str, GpuModel]:
    """Return the GPUs that can be watched: the emulator's, by gpuwatch's names, those with most offers first."""
    named = {catalog().resolve(one.name, one.ram_mib / 1024).name: one for one in GPUS if one.name != "A100 PCIE"}
    return dict(sorted(named.items(), key=lambda item: -item[1].weight))


def limit_usd(model: GpuModel, habits: Habits = HABITS) -> float:
    """Return the limit of a model's watch, USD per GPU-hour."""
    return round(model.usd_hour * habits.limit_share, 4)


def describe(refusals_a_day: float, habits: Habits = HABITS) -> str:
    """Describe the assumptions for readers of the figures."""
    low, high = REFUSES_FOR_S
    return (
        f"bargains of a GPU appear every {habits.bargain_every_s / 60:.0f} min on average and stay for "
        f"{habits.bargain_life_s / 60:.0f} min (median; lognormal, sigma {BARGAIN_SPREAD}, at least 15 s); standing "
        f"offers change every {STANDING_LIFE_S / 3600:.0f} h; {refusals_a_day:g} times a day every search is refused "
        f"for {low:.0f} to {high:.0f} s, with a Retry-After"
    )


class DayMarket:
    """Moves a marketplace through its day; `live` is a task on the virtual clock.

    Args:
        market: empty.
        gpus: by gpuwatch's names; each has standing offers and bargains.
        refusals_a_day: how often the marketplace is busy.
    """

    def __init__(
        self,
        market: Marketplace,
        gpus: list[str],
        clock: VirtualTime,
        seed: int,
        refusals_a_day: float,
        habits: Habits = HABITS,
    ) -> None:
        self._habits = habits
        self.bargains: list[Bargain] = []
        self._open: dict[int, Bargain] = {}  # by offer id
        self._market = market
        self._clock = clock
        self._refused_every_s = DAY_S / refusals_a_day
        self._rng = random.Random(seed)
        self._standing: dict[str, dict[int, int]] = {}  # by GPU: offer id → number of GPUs
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        known = models()
        for gpu in gpus:
            self._populate(gpu, known[gpu])
        self._after(self._rng.expovariate(1 / self._refused_every_s), self._refuse)

    def live(self) -> None:
        """Apply each event at its time; never returns."""
        while self._events:
            due_s = self._events[0][0]
            self._clock.sleep(due_s - self._clock.unix())
            if self._clock.unix() < due_s:
                return  # the day is over
            heapq.heappop(self._events)[2]()

    def shown(self, offer_id: int) -> Bargain | None:
        """Return the bargain that an offer is at this moment, if any."""
        return self._open.get(offer_id)

    def _after(self, seconds: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._clock.unix() + seconds, next(self._numbers), happens))

    # --- standing offers ----------------------------------------------------------------------------------------------

    def _populate(self, gpu: str, model: GpuModel) -> None:
        self._standing[gpu] = {}
        for _ in range(10 + 2 * model.weight):
            self._list(gpu, model)
        self._after(self._rng.expovariate(1 / self._habits.bargain_every_s), lambda: self._bargain(gpu, model))

    def _list(self, gpu: str, model: GpuModel) -> None:
        count = self._rng.choices(_COUNTS, _COUNT_WEIGHTS)[0]
        usd = self._usual_usd(model) * count
        offer_id = self._market.publish(gpu=model.name, count=count, usd_hour=usd, verified=self._rng.random() < 0.8)
        self._standing[gpu][offer_id] = count
        self._after(self._rng.expovariate(1 / STANDING_LIFE_S), lambda: self._change(gpu, model, offer_id, count))

    def _change(self, gpu: str, model: GpuModel, offer_id: int, count: int) -> None:
        """Replace an offer, or change its price. Bargains are left alone."""
        if offer_id not in self._open and self._rng.random() < 0.6:
            del self._standing[gpu][offer_id]
            self._market.withdraw(offer_id)
            self._list(gpu, model)
            return
        if offer_id not in self._open:
            self._market.reprice(offer_id, self._usual_usd(model) * count)
        self._after(self._rng.expovariate(1 / STANDING_LIFE_S), lambda: self._change(gpu, model, offer_id, count))

    def _usual_usd(self, model: GpuModel) -> float:
        """Return a GPU's price above the limit: lower at night (UTC), higher in the afternoon."""
        tide = 1 + 0.06 * math.sin((self._clock.unix() % DAY_S / DAY_S - 0.375) * math.tau)
        return max(model.usd_hour * tide * self._rng.lognormvariate(0.0, 0.15), limit_usd(model, self._habits) * 1.02)

    # --- bargains -----------------------------------------------------------------------------------------------------

    def _bargain(self, gpu: str, model: GpuModel) -> None:
        """List a cheap machine or, one time in three, make a standing one cheap for a while."""
        usd = limit_usd(model, self._habits) * self._rng.uniform(0.8, 0.995)
        life_s = max(15.0, self._habits.bargain_life_s * self._rng.lognormvariate(0.0, BARGAIN_SPREAD))
        offer_id = self._cheapened(gpu, usd) if self._rng.random() < 1 / 3 else None
        stands = offer_id is not None
        if offer_id is None:
            offer_id = self._market.publish(gpu=model.name, count=1, usd_hour=usd)
        now = self._clock.unix()
        self._open[offer_id] = found = Bargain(gpu=gpu, usd_hour=usd, appears_s=now, vanishes_s=now + life_s)
        self.bargains.append(found)
        self._after(life_s, lambda: self._vanish(model, offer_id, stands))
        self._after(self._rng.expovariate(1 / self._habits.bargain_every_s), lambda: self._bargain(gpu, model))

    def _cheapened(self, gpu: str, usd: float) -> int | None:
        able = [one for one, count in self._standing[gpu].items() if count == 1 and one not in self._open]
        if not able:
            return None
        offer_id = self._rng.choice(able)
        self._market.reprice(offer_id, usd)
        return offer_id

    def _vanish(self, model: GpuModel, offer_id: int, stands: bool) -> None:
        del self._open[offer_id]
        if stands:
            self._market.reprice(offer_id, self._usual_usd(model))
        else:
            self._market.withdraw(offer_id)

    # --- refusals -----------------------------------------------------------------------------------------------------

    def _refuse(self) -> None:
        for_s = round(self._rng.uniform(*REFUSES_FOR_S))
        self._market.faults.add("search", "429", times=None, shape="headers", threshold_s=for_s)
        self._after(for_s, self._market.faults.clear)
        self._after(for_s + self._rng.expovariate(1 / self._refused_every_s), self._refuse)
