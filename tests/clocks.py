"""A clock that tests set."""

from __future__ import annotations


class Clock:
    """Seconds that pass while a caller sleeps, and when a test advances them; `slept` has the waits."""

    def __init__(self, seconds: float = 1_000.0) -> None:
        self.seconds = seconds
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds
