"""The path from the search to the create request stays straight, and the documents show it."""

from __future__ import annotations

import pytest

from benchmarks.trace import as_text, data_forms, hops_to_create, trace
from tests.checkout import ROOT


@pytest.mark.slow
def test_the_path_from_search_to_create_is_straight_and_documented() -> None:
    hops = trace()
    assert hops_to_create(hops) <= 15
    assert len(hops) <= 20
    assert data_forms(hops) == ["Answer", "Offer", "Observation", "Match", "Decision", "Launch", "Intent", "Order"]
    assert as_text(hops) in (ROOT / "docs/architecture.md").read_text(encoding="utf-8"), (
        "make trace prints another path"
    )
