"""Which requests fail, and how: rules that apply to each request with a probability."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from typing import Any

from gpuwatch.emulator.fault_injection import ENDPOINT_FAULTS, FAULT_HANDLERS
from gpuwatch.emulator.instances.lifecycles import LIFECYCLE_FAULTS
from gpuwatch.emulator.limits import SEARCHES
from gpuwatch.emulator.request import Fault
from gpuwatch.emulator.routes import ENDPOINTS

GROUPS: dict[str, frozenset[str]] = {
    "any": ENDPOINTS | {"unknown"},
    "search": SEARCHES,
    "list": frozenset({"instances", "instances_v0"}),
}
KINDS = frozenset({*FAULT_HANDLERS, *ENDPOINT_FAULTS, *LIFECYCLE_FAULTS})


@dataclass(slots=True)
class FaultRule:
    """One active fault; `times` counts down, None is for ever."""

    endpoints: frozenset[str]
    fault: Fault
    times: int | None
    probability: float
    skip: int


class FaultRules:
    """The active faults, in the order in which they were added; the first one that applies wins.

    Args:
        seed: the same seed and requests produce the same faults.
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed ^ 0xFA017)  # noqa: S311 - repeatable, not secret
        self._rules: list[FaultRule] = []
        self._lock = threading.Lock()

    def add(
        self,
        endpoint: str,
        kind: str,
        *,
        times: int | None = 1,
        probability: float = 1.0,
        skip: int = 0,
        **settings: Any,
    ) -> None:
        """Switch on a fault.

        Args:
            endpoint: a name of `routes.ROUTES`, or `search`, `list`, `any`.
            kind: see docs/emulator.md; `KINDS` contains all.
            times: number of requests to fail; None: until `clear`.
            probability: that a covered request fails.
            skip: number of requests that succeed first.
            settings: options of the kind, such as `shape`, `delay_s`, `hold_s`, `after_s`.

        Raises:
            ValueError: no such endpoint or kind.
        """
        endpoints = GROUPS.get(endpoint, frozenset({endpoint}))
        if not endpoints <= GROUPS["any"]:
            raise ValueError(f"no such endpoint: {endpoint}; there are {', '.join(sorted(ENDPOINTS | set(GROUPS)))}")
        if kind not in KINDS:
            raise ValueError(f"no such fault: {kind}; there are {', '.join(sorted(KINDS))}")
        with self._lock:
            self._rules.append(FaultRule(endpoints, Fault(kind, settings), times, probability, skip))

    def clear(self) -> None:
        """Switch off all faults."""
        with self._lock:
            self._rules.clear()

    def draw(self, endpoint: str) -> Fault | None:
        """Return the fault of this request, if any, and count it."""
        if not self._rules:
            return None
        with self._lock:
            for rule in self._rules:
                if endpoint in rule.endpoints and self._applies(rule):
                    return rule.fault
        return None

    def _applies(self, rule: FaultRule) -> bool:
        if rule.skip > 0:
            rule.skip -= 1
            return False
        if rule.times == 0 or self._rng.random() >= rule.probability:
            return False
        if rule.times is not None:
            rule.times -= 1
        return True
