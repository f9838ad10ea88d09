"""A short soak in the suite; `make soak` plays fifty times as much."""

from __future__ import annotations

import pytest

from tests.soak.chapter import PROMISES, chapter, played


@pytest.mark.parametrize("seed", [1, 2])
def test_two_hundred_launches_keep_every_promise(seed: int) -> None:
    counts, lies = played(seed, 200)
    assert {promise: counts[promise] for promise in PROMISES} == dict.fromkeys(PROMISES, 0)
    assert counts["launches"] >= 200
    assert counts["restarts"] > 10
    assert {"create: late", "create: made, answer lost", "list: empty", "destroy: fails", "outbid"} <= lies.keys()


def test_the_audit_sees_a_double_and_an_orphan() -> None:
    """A test that cannot fail proves nothing: the marketplace rents once more, behind gpuwatch's back."""
    with chapter(3) as one:
        one.play(20)
        label = one.market.made[0]
        one.market.made.append(label)
        one._audit()
        assert one.counts["doubles"] == 1
        one._foreign_instance("9999", label)
        one._count_orphans()
        assert one.counts["orphans"] == 1
