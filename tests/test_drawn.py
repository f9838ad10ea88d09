"""How many examples a test draws depends on the profile."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.drawn import examples


@pytest.mark.parametrize(
    ("profile", "own", "default"), [("gpuwatch", 300, 100), ("quick", 30, 10), ("explore", 1500, 100)]
)
def test_quick_draws_a_tenth_and_explore_all(profile: str, own: int, default: int) -> None:
    before = settings.get_current_profile_name()
    settings.load_profile(profile)
    try:
        assert examples(300, explore=1500) == own
        assert settings().max_examples == default
    finally:
        settings.load_profile(before)
