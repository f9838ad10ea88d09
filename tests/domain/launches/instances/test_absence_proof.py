"""What proves that an instance does not exist, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.domain.launches.instances.absence import (
    ABSENCE_WAIT_S,
    PROOF_WITHIN_S,
    QUICK_SPAN_S,
    REPORT_AFTER_S,
    AbsenceEvidence,
    AbsenceVerdict,
    EvidenceKind,
    MissedListing,
    has_canary,
)

LISTS, LOOKUP, OFFER, BALANCE = EvidenceKind
UNPROVEN, ABSENT, CANNOT_PROVE = AbsenceVerdict


class Case:
    """One missing instance."""

    def __init__(self, known: bool = False, start_s: float = 0.0) -> None:
        self.known = known
        self.tick_s = 0.0
        self.evidence = AbsenceEvidence(since_s=0.0)
        self.tick_s = start_s

    def look(self, *kinds: EvidenceKind, times: int = 1, every_s: float = 10.0, **seen: Any) -> AbsenceVerdict:
        for _ in range(times):
            self.tick_s += every_s
            self.evidence = self.evidence.with_listing(
                MissedListing(tick_s=self.tick_s, kinds=frozenset(kinds), seen_before=self.known, **seen)
            )
        return self.verdict()

    def fail(self, times: int = 1, every_s: float = 10.0) -> AbsenceVerdict:
        for _ in range(times):
            self.tick_s += every_s
            self.evidence = self.evidence.without_listing(self.tick_s)
        return self.verdict()

    def verdict(self) -> AbsenceVerdict:
        return self.evidence.verdict(self.tick_s, self.known)


# --- its id is known, and it was seen before --------------------------------------------------------------------------


@pytest.mark.parametrize("lists", [(), (LISTS,)], ids=["an empty account", "a canary"])
def test_lists_and_its_id_agreeing_three_times_prove_it_within_two_minutes(lists: tuple[EvidenceKind, ...]) -> None:
    one = Case(known=True)
    assert one.look(*lists, LOOKUP, times=3) is UNPROVEN  # three answers in one bad moment
    assert one.look(*lists, LOOKUP, times=5) is ABSENT
    assert one.tick_s <= 120.0


def test_two_answers_are_not_three_however_far_apart() -> None:
    one = Case(known=True)
    assert one.look(LOOKUP, times=2, every_s=QUICK_SPAN_S) is UNPROVEN
    assert one.look(LOOKUP, times=1) is ABSENT


@pytest.mark.parametrize("broken", ["a list fails", "its id answers nothing", "something speaks against it"])
def test_whatever_breaks_the_row_starts_it_again(broken: str) -> None:
    one = Case(known=True)
    one.look(LOOKUP, times=2, every_s=QUICK_SPAN_S)
    if broken == "a list fails":
        one.fail()
    else:
        one.look(*(() if "id" in broken else (LOOKUP,)), doubts=() if "id" in broken else ("it is paid for",))
    assert one.look(LOOKUP, times=2, every_s=40.0) is UNPROVEN
    assert one.look(LOOKUP, every_s=40.0) is ABSENT


def test_lists_alone_prove_nothing_about_a_known_instance_and_it_is_reported() -> None:
    one = Case(known=True)
    assert one.look(LISTS, times=2, every_s=REPORT_AFTER_S / 2 - 1) is UNPROVEN
    assert one.look(LISTS) is CANNOT_PROVE
    assert one.look(LISTS, times=1000, every_s=60.0) is CANNOT_PROVE


def test_what_was_never_seen_is_not_proven_gone_quickly() -> None:
    """Neither lists nor lookups may know a new instance yet."""
    one = Case()
    assert one.look(LISTS, LOOKUP, times=100) is UNPROVEN


# --- its id is not known ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kinds", [(LISTS, OFFER), (LISTS, BALANCE), (OFFER, BALANCE), (LISTS, LOOKUP)])
def test_two_kinds_of_evidence_three_times_after_the_wait_prove_it(kinds: tuple[EvidenceKind, ...]) -> None:
    one = Case()
    assert one.look(*kinds, times=29, every_s=60.0) is UNPROVEN
    assert one.look(*kinds, times=3, every_s=60.0) is ABSENT
    assert one.tick_s >= ABSENCE_WAIT_S


@pytest.mark.parametrize("kind", list(EvidenceKind))
def test_one_kind_is_never_enough(kind: EvidenceKind) -> None:
    one = Case()
    assert one.look(kind, times=39, every_s=60.0) is UNPROVEN
    assert one.look(kind, times=5, every_s=60.0) is CANNOT_PROVE


def test_a_moment_of_agreement_is_not_enough() -> None:
    one = Case(start_s=ABSENCE_WAIT_S)
    one.look(LISTS, OFFER, times=2)
    one.look(LISTS)
    assert one.look(LISTS, OFFER, times=2) is UNPROVEN


def test_what_was_not_asked_again_neither_counts_nor_breaks_the_row() -> None:
    one = Case(start_s=ABSENCE_WAIT_S)
    one.look(LISTS, OFFER, times=2)
    assert one.look(LISTS, times=6, queried_all=False) is UNPROVEN
    assert one.look(LISTS, OFFER) is ABSENT


@pytest.mark.parametrize("against", [{"doubts": ("it is paid for",)}, {"candidates": ("17",)}])
def test_nothing_is_proven_while_anything_speaks_against_it(against: dict[str, Any]) -> None:
    one = Case()
    assert one.look(*EvidenceKind, times=9, every_s=60.0, **against) is UNPROVEN
    assert one.look(*EvidenceKind, times=3, every_s=60.0, **against) is CANNOT_PROVE
    assert one.look(*EvidenceKind, times=100, every_s=60.0, **against) is CANNOT_PROVE


def test_what_can_never_be_proven_goes_to_the_owner_early() -> None:
    one = Case()
    assert one.look(times=9, every_s=60.0, possible_kinds=1) is UNPROVEN
    assert one.look(times=1, every_s=60.0, possible_kinds=1) is CANNOT_PROVE


def test_a_failed_list_starts_the_row_again() -> None:
    one = Case(start_s=ABSENCE_WAIT_S)
    one.look(LISTS, OFFER, times=2)
    one.fail()
    assert one.look(LISTS, OFFER, times=2) is UNPROVEN
    assert one.look(LISTS, OFFER) is ABSENT


def test_without_any_list_the_owner_is_asked_after_the_wait() -> None:
    one = Case()
    assert one.fail(times=29, every_s=60.0) is UNPROVEN
    assert one.fail(times=1, every_s=60.0) is CANNOT_PROVE


def test_a_short_outage_at_the_end_of_the_wait_asks_nobody() -> None:
    one = Case(start_s=ABSENCE_WAIT_S)
    assert one.fail(times=20) is UNPROVEN
    assert one.look(LISTS, OFFER, times=3) is ABSENT
    late = Case(start_s=ABSENCE_WAIT_S + PROOF_WITHIN_S)
    assert late.fail() is CANNOT_PROVE


def test_a_proof_that_is_under_way_is_waited_for() -> None:
    one = Case(start_s=ABSENCE_WAIT_S + PROOF_WITHIN_S)
    assert one.look(LISTS, OFFER, times=2) is UNPROVEN
    assert one.look(LISTS, OFFER) is ABSENT


# --- the canary -------------------------------------------------------------------------------------------------------


def test_a_canary_is_every_instance_that_is_believed_alive() -> None:
    assert has_canary({"1", "2"}, {"1"}, set())
    assert not has_canary({"1"}, {"1", "2"}, set())


def test_with_none_alive_a_foreign_instance_who_was_there_before_is_canary() -> None:
    assert has_canary({"9"}, set(), {"9"})
    assert not has_canary({"9"}, set(), {"8"})
    assert not has_canary(set(), set(), set())
