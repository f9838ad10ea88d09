"""How the keeper reads its file, whatever happened to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.launches.instances.obligation import (
    Obligation,
    changes,
    compacted,
    decode_line,
    encode_line,
    obligation_of,
    read_obligation_lines,
)
from gpuwatch.domain.launches.launch import Intent, Launch, LaunchState, new_launch
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action
from tests.builders import a_match, a_watch, changed

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def a_launch(**changes: object) -> Launch:
    watch = a_watch(action=Action.LAUNCH, launch=LaunchSpec(max_runtime_s=3600.0, ready_within_s=900.0))
    intent = Intent(watch=watch, match=a_match(), launch_id="a" * 12, dry_run=False)
    return changed(new_launch(intent, 0, NOON), **changes)  # type: ignore[no-any-return]


def an_obligation(**changes: object) -> Obligation:
    return changed(obligation_of(a_launch(), None, NOON), **changes)  # type: ignore[no-any-return]


def test_a_line_is_read_as_it_was_written() -> None:
    written = an_obligation(instance_id="4711", account="acct", ends_at=NOON)
    assert decode_line(encode_line(written)) == written


def test_the_newest_line_of_a_launch_counts() -> None:
    lines = [encode_line(an_obligation()), encode_line(an_obligation(instance_id="4711", revision=1))]
    assert [one.instance_id for one in read_obligation_lines(lines).open.values()] == ["4711"]


def test_a_line_that_comes_late_replaces_no_newer_one() -> None:
    later = an_obligation(ends_at=NOON + HOUR, revision=3)
    read = read_obligation_lines([encode_line(later), encode_line(an_obligation(ends_at=NOON, revision=2))])
    assert read.open == {"a" * 12: later}


def test_what_is_over_stays_over_when_a_line_comes_late() -> None:
    over, late = an_obligation(is_over=True, revision=3), an_obligation(revision=2)
    assert read_obligation_lines([encode_line(over), encode_line(late)]).open == {}


def test_a_launch_that_is_taken_up_again_is_open_again() -> None:
    again = an_obligation(revision=4)
    read = read_obligation_lines([encode_line(an_obligation(is_over=True, revision=3)), encode_line(again)])
    assert read.open == {"a" * 12: again}


@given(cut=st.integers(min_value=0, max_value=400))
def test_a_torn_line_hides_no_other(cut: int) -> None:
    first, second = an_obligation(), an_obligation(launch_id="b" * 12)
    torn = encode_line(second)[: -1 - cut % (len(encode_line(second)) - 1)]
    assert read_obligation_lines([encode_line(first), torn]).open["a" * 12] == first


def test_what_a_newer_version_adds_hides_no_obligation() -> None:
    line = encode_line(an_obligation(v=9, ends_at=NOON)).replace(b"{", b'{"colour":"blue",', 1)
    assert read_obligation_lines([line]).open["a" * 12].ends_at == NOON


def test_a_line_that_cannot_be_read_survives_a_compaction() -> None:
    newer = b'{"v":9,"something":"else"}\n'
    read = read_obligation_lines([newer, encode_line(an_obligation()), b'{"v":1,"launch'])
    assert compacted(read, NOON) == newer + encode_line(an_obligation())


def test_a_compaction_leaves_out_what_is_over() -> None:
    lines = [encode_line(one) for one in (an_obligation(), an_obligation(is_over=True, revision=1))]
    assert compacted(read_obligation_lines(lines), NOON) == b""


def test_before_it_runs_it_ends_at_the_deadline_of_its_instance() -> None:
    assert obligation_of(a_launch(), None, NOON).ends_at == NOON + HOUR + timedelta(minutes=15)


def test_once_it_runs_it_ends_with_its_runtime() -> None:
    launch = a_launch(state=LaunchState.RUNNING, running_at=NOON + timedelta(minutes=1), instance_id="4711")
    assert obligation_of(launch, None, NOON).ends_at == NOON + HOUR + timedelta(minutes=1)


def test_what_is_being_ended_is_over_as_soon_as_its_hook_may_be() -> None:
    running = a_launch(state=LaunchState.STOPPING, running_at=NOON, instance_id="4711")
    before = obligation_of(a_launch(running_at=NOON), None, NOON, hook_s=40.0)
    ending = obligation_of(running, before, NOON)
    assert (ending.is_ending, ending.ends_at) == (True, NOON + timedelta(seconds=40))
    assert obligation_of(running, ending, NOON + HOUR).ends_at == ending.ends_at


def test_without_a_limit_nothing_ends_it_but_its_owner() -> None:
    launch = a_launch(max_runtime_s=None, running_at=NOON, state=LaunchState.RUNNING)
    assert obligation_of(launch, None, NOON).ends_at is None
    assert obligation_of(changed(launch, state=LaunchState.STOPPING), None, NOON).ends_at == NOON


def test_a_new_price_alone_is_no_change() -> None:
    before = an_obligation()
    assert not changes(before, msgspec.structs.replace(before, price_microusd_hour=1, revision=7))
    assert changes(before, msgspec.structs.replace(before, instance_id="4711", revision=7))
    assert not changes(None, an_obligation(is_over=True))
