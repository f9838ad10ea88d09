"""A short soak in the suite; `make soak` runs a hundred times as much."""

from __future__ import annotations

from datetime import timedelta

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
    """A test that cannot fail proves nothing: the cloud rents once more, without gpuwatch."""
    with chapter(3) as one:
        one.play(5)
        first = one.cloud.made[0]
        one.cloud.made.append(first)
        one.judge.audit()
        assert one.counts["doubles"] == 1
        one.cloud.rented["9999"] = first
        one.judge.count_orphans()
        assert one.counts["orphans"] == 1


def test_an_end_counts_as_late_only_for_what_could_be_known() -> None:
    """While the database is gone: by its label, or because the database named it when it was lost."""
    with chapter(3) as one:
        one.play(5)
        home, cloud = one.judge._all[0], one.cloud
        known = cloud.made[0]
        known.seen_running_s, known.seen_running_at = cloud.tick_s - 9000, cloud.now() - timedelta(seconds=9000)
        cloud.rented = {"9999": known}
        cloud.change("9999", label=known.ordered_label)
        home.lose_database(True)
        for label, ids, expected in (
            (known.ordered_label, frozenset[str](), ["9999"]), ("mine", frozenset({"9999"}), ["9999"]),
            ("mine", frozenset[str](), []),
        ):  # fmt: skip
            cloud.change("9999", label=label)
            home.ids_when_lost = ids
            assert one.judge.overdue() == expected
        for _ in range(15):
            cloud.pass_s(10.0)
            one.judge.audit()
        assert one.counts["past their end"] == 0
        assert one.counts["past their end, but neither label nor database names it"] == 1
