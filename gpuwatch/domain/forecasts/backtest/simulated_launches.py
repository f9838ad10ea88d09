"""The launches of one replay, admitted by the daemon's rules, running at once, ended when their time is over. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo

import msgspec

from gpuwatch.domain.launches.instances.machines_and_places import AVOID_FOR
from gpuwatch.domain.launches.launch import EndReason, Intent, Launch, LaunchRefusal, LaunchState
from gpuwatch.domain.launches.life.admission import AdmissionState, admit_launch
from gpuwatch.domain.launches.money.launch_costs import cost_microusd
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.domain.watches.windows import is_open

SimulatedLaunch = tuple[Launch, Match]
ASSUMED_LIFETIME = timedelta(hours=24)  # the assumption of budgets without a `max_runtime`


class SimulatedLaunches:
    """All launches of one replay. A launch lasts for its `max_runtime`, or for the duration that the owner states."""

    def __init__(self, watches: Sequence[Watch], budget: Budget, zone: tzinfo, job: timedelta | None) -> None:
        self._lifetimes = {watch.name: lifetime_of(watch, job) for watch in watches}
        self._leaves = {w.name: w.active for w in watches if w.launch is not None and w.launch.stop_outside}
        self._budget = budget
        self._zone = zone
        self._alive: list[Launch] = []
        self._over: list[Launch] = []
        self._known: dict[str, Launch] = {}  # ended launches, by id
        self._totals: dict[str, int] = {}

    @property
    def has_alive(self) -> bool:
        """Does one run?"""
        return bool(self._alive)

    def newest(self, launch: Launch) -> Launch:
        """The current state of a launch."""
        return self._known.get(launch.launch_id, launch)

    def advance(self, now: datetime) -> None:
        """End the launches whose time is over."""
        for launch in list(self._alive):
            ends_at = self._ends_at(launch, now)
            if ends_at is not None:
                self._alive.remove(launch)
                over = self._known[launch.launch_id] = _ended(launch, ends_at)
                self._over.append(over)

    def fill(
        self, watch: Watch, found: Sequence[Match], now: datetime
    ) -> tuple[list[SimulatedLaunch], LaunchRefusal | None]:
        """Rent as many offers as the watch may, cheapest first; return them, and the reason why not more."""
        begun: list[SimulatedLaunch] = []
        left = list(found)
        while left:
            got = self._admitted(watch, left, now)
            if isinstance(got, LaunchRefusal):
                return begun, got
            launch, rented = got
            begun.append((self._runs(launch, now), rented))
            left = [match for match in left if match.offer.terms.fungible or not _is_of(match, launch)]
        return begun, None

    def admits(self, watch: Watch, found: Sequence[Match], now: datetime) -> bool:
        """Whether the watch may rent any of these offers."""
        return not isinstance(self._admitted(watch, found, now), LaunchRefusal)

    def _admitted(self, watch: Watch, left: Sequence[Match], now: datetime) -> tuple[Launch, Match] | LaunchRefusal:
        first, *others = left
        intent = Intent(watch=watch, match=first, launch_id=self._next_id(), dry_run=False, alternatives=tuple(others))
        return admit_launch(intent, self._standing(watch, now), self._budget, now)

    def cost_microusd(self, launch: Launch) -> int:
        """The cost of a launch up to its end, even if the history ends earlier."""
        ends_at = launch.ended_at or (launch.running_at or launch.intended_at) + self._lifetimes[launch.watch]
        return cost_microusd(_ended(launch, ends_at), ends_at)

    def life_of(self, launch: Launch) -> timedelta:
        """How long a launch lasts, unless its windows close."""
        return (launch.ended_at or launch.intended_at + self._lifetimes[launch.watch]) - launch.intended_at

    def _standing(self, watch: Watch, now: datetime) -> AdmissionState:
        month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        since = min(month, now - AVOID_FOR)
        return AdmissionState(
            known=lambda: [
                *self._alive,
                *(launch for launch in self._over if launch.ended_at and launch.ended_at >= since),
            ],
            total=lambda: self._totals.get(watch.name, 0),
            avoided=lambda _known: {},
            ticked=lambda: watch.require,
        )

    def _runs(self, launch: Launch, now: datetime) -> Launch:
        running = msgspec.structs.replace(
            launch, state=LaunchState.RUNNING, running_at=now, instance_id=launch.launch_id
        )
        self._alive.append(running)
        self._totals[launch.watch] = self._totals.get(launch.watch, 0) + 1
        return running

    def _ends_at(self, launch: Launch, now: datetime) -> datetime | None:
        ends_at = launch.intended_at + self._lifetimes[launch.watch]
        if ends_at <= now:
            return ends_at
        windows = self._leaves.get(launch.watch, ())
        return now if windows and not is_open(windows, now, self._zone) else None

    def _next_id(self) -> str:
        return f"backtest{sum(self._totals.values()) + 1:06d}"


def lifetime_of(watch: Watch, job: timedelta | None) -> timedelta:
    """How long a launch of this watch lasts."""
    spec = watch.launch or LaunchSpec()
    limits = [job, None if spec.max_runtime_s is None else timedelta(seconds=spec.max_runtime_s)]
    return min((limit for limit in limits if limit is not None), default=ASSUMED_LIFETIME)


def _ended(launch: Launch, at: datetime) -> Launch:
    return msgspec.structs.replace(
        launch, state=LaunchState.ENDED, ended_at=at, end_reason=EndReason.MAX_RUNTIME.text()
    )


def _is_of(match: Match, launch: Launch) -> bool:
    return (match.offer.provider, match.offer.offer_id) == (launch.provider, launch.offer_id)
