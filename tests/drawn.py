"""The number of examples that Hypothesis draws (docs/decisions/0006)."""

from __future__ import annotations

from hypothesis import settings

QUICK_PART = 10


def examples(gate: int, explore: int | None = None) -> int:
    """Set the examples of a test: in the gate, where each run draws the same ones, in `make quick`, and in exploration.

    `settings.register_profile` is too early for this: it knows one number for all tests.
    """
    of_profile = {"quick": max(1, gate // QUICK_PART), "explore": explore or gate}
    return of_profile.get(settings.get_current_profile_name(), gate)
