"""What a process knows about followed launches: one record for each, dropped as a whole."""

from __future__ import annotations

from gpuwatch.domain.launches.instances.absence import AbsenceEvidence
from gpuwatch.engine.launches.followed_launch import FollowedLaunch, FollowedLaunches
from tests.domain.launches.guard_values import a_running_launch

ONE, OTHER = a_running_launch(launch_id="a" * 12), a_running_launch(launch_id="b" * 12)


def test_a_launch_has_one_record_until_it_is_dropped() -> None:
    followed = FollowedLaunches()
    followed.of(ONE).acknowledged_s = 1.0
    assert followed.of(ONE) is followed.of(ONE)
    followed.of(OTHER)
    followed.drop(ONE)
    followed.drop(ONE)
    assert followed.of(ONE) == FollowedLaunch()


def test_what_another_process_ended_is_dropped_unless_a_list_still_shows_it() -> None:
    followed = FollowedLaunches()
    followed.of(ONE).acknowledged_s = followed.of(OTHER).acknowledged_s = 1.0
    followed.of(OTHER).contradictions = 1
    followed.keep_only(())
    assert followed.of(ONE).acknowledged_s is None
    assert followed.of(OTHER).acknowledged_s == 1.0


def test_what_is_found_begins_its_absence_anew_and_stays_found() -> None:
    one = FollowedLaunch(
        is_found=True, is_lookup_gone=True, evidence=AbsenceEvidence(since_s=1.0), collected_s=2.0, balance_read_s=3.0,
        lists_after_destroy=1, acknowledged_s=4.0,
    )  # fmt: skip
    one.restart_absence()
    assert one == FollowedLaunch(is_found=True, acknowledged_s=4.0)


def test_no_two_records_share_a_fact() -> None:
    first, second = FollowedLaunch(), FollowedLaunch()
    first.first_seen_s[ONE.state] = 1.0
    first.verification.probing = True
    assert second == FollowedLaunch()
