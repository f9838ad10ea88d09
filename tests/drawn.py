"""The number of examples that Hypothesis draws (docs/decisions/0136)."""

from __future__ import annotations

from hypothesis import settings


def examples(gate: int, explore: int) -> int:
    """Set the examples of a test: in the gate, where each run draws the same ones, and in exploration.

    `settings.register_profile` is too early for this: it knows one number for all tests.
    """
    return explore if settings.get_current_profile_name() == "explore" else gate
