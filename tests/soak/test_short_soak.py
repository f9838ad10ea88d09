"""A short soak in the suite; `make soak` plays a hundred times as much."""

from __future__ import annotations

import pytest

from tests.soak.chapter import chapter, played
from tests.soak.judge import PROMISES


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_fifty_launches_keep_every_promise(seed: int) -> None:
    counts, lies, broken = played(seed, 50)
    assert {promise: counts[promise] for promise in PROMISES} == dict.fromkeys(PROMISES, 0), broken
    assert counts["launches"] >= 50
    assert counts["restarts"] > 3
    assert {"create: ok", "list: empty", "list: stale", "destroy: fails"} <= lies.keys()


def test_the_audit_sees_a_double_an_orphan_and_what_outlives_its_end() -> None:
    """A test that cannot fail proves nothing: the cloud rents once more, behind gpuwatch's back."""
    with chapter(3) as one:
        one.play(5)
        first = one.cloud.made[0]
        one.cloud.made.append(first)
        one.judge.audit()
        assert one.counts["doubles"] == 1
        one.cloud.rented["9999"] = first
        one.judge.count_orphans()
        assert one.counts["orphans"] == 1
