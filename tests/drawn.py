"""How many examples Hypothesis draws (docs/decisions/0136)."""

from __future__ import annotations

from hypothesis import settings


def examples(gate: int, explore: int) -> int:
    """Of a test at the gate, where each run draws the same ones, and where somebody looks for more.

    `settings.register_profile` is too early for this: it knows one number for all tests.
    """
    return explore if settings.get_current_profile_name() == "explore" else gate
