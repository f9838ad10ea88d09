"""The newest observation of each watch at each provider: the evaluator writes it, guards, jobs and hunts read it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from gpuwatch.domain.market.pricing import MICRO
from gpuwatch.domain.watches.decide import Match, Observation, current_quotes

View = tuple[str, bool]  # provider and rental type


class NewestObservations:
    """Observations by watch and view. Only the evaluator writes, under its lock; reading is thread-safe."""

    def __init__(self) -> None:
        self._found: dict[str, dict[View, Observation]] = {}

    def note(self, provider: str, spot: bool, observed: Mapping[str, Observation]) -> None:
        """Store the observations of one answer, by the watch's name."""
        for name, observation in observed.items():
            self._found.setdefault(name, {})[provider, spot] = observation

    def forget_except(self, watches: Collection[str]) -> None:
        """Forget all other watches."""
        self._found = {name: found for name, found in self._found.items() if name in watches}

    def of(self, watch: str) -> Mapping[View, Observation]:
        """Return all observations of a watch, failures and old ones included."""
        return self._found.get(watch, {})

    def newest(self, watch: str, provider: str, spot: bool) -> Observation | None:
        """Return a watch's newest observation at a provider; None: it has not answered yet."""
        return self.of(watch).get((provider, spot))

    def latest_matches(self, watch: str) -> list[Match]:
        """Return the matches in a watch's newest observations, of any age: `current_quotes` selects."""
        return [match for one in list(self.of(watch).values()) for match in one.matches]

    def best_usd_gpu_hour(self, watch: str, now: datetime) -> float | None:
        """Return the lowest GPU price in a watch's current quotes; None: no offers, or not polled lately."""
        current = current_quotes(self.latest_matches(watch), now)
        return min((match.price_microusd_gpu_hour for match in current), default=0.0) / MICRO or None
