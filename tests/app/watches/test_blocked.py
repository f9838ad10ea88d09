"""A matching watch that does not act says why, and never anything else than the admission would say."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuwatch.app.watches.blocked import Condition, RuleState
from gpuwatch.app.watches.watch_status import rules_of, watch_status_view, watch_statuses
from gpuwatch.app.watches.why.watch_words import why_not
from gpuwatch.bootstrap import real_now
from gpuwatch.chat.reading import watches as chat_watches
from gpuwatch.chat.replies import ChatContext
from gpuwatch.domain.launches.launch import Intent, Launch, LaunchRefusal, LaunchState, RefusalReason
from gpuwatch.domain.launches.life.owner_decisions import Pause
from gpuwatch.domain.watches.decide import Match
from gpuwatch.engine.alerts.alert_buttons import ButtonSigner
from gpuwatch.engine.watches.readiness_notes import ReadinessNotes
from gpuwatch.ports.market import Hold
from gpuwatch.settings import Settings
from gpuwatch.storage.alerts.pauses import SqlPauseRepository
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.launches.approval_rows import SqlApprovalRepository, create_approval
from gpuwatch.storage.launches.launch_admission import reserve
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.market.provider_holds import SqlHolds
from gpuwatch.storage.setup.database import Database, open_database
from gpuwatch.storage.setup.tables import poll
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from gpuwatch.web.watches.watch_checks import check_rows
from tests.builders import a_match
from tests.storage.stored_answers import an_answer, an_offer
from tests.web.served import settings_in

TOML = """
dry_run = {dry_run}
[budget]
max_usd_hour = {budget}
[providers.vastai]
{key}
[[watch]]
name = "cheap"
gpu = ["H100"]
max_price = 4.00
action = "{action}"
{more}
[watch.launch]
max_runtime = "1h"
max_active = {max_active}
max_total = {max_total}
{launch}
"""
IDS = iter(f"{'abcdefghijk'}{letter}" for letter in "abcdefghijklmnopqrstuvwxyz234567")


class World:
    """Settings with one watch, whose offer was polled just now, and its store."""

    def __init__(self, folder: Path, **changed: Any) -> None:
        plain: dict[str, Any] = {
            "dry_run": "false", "budget": 100.0, "key": 'api_key = "a-key"', "action": "launch", "more": "",
            "launch": "", "max_active": 1, "max_total": 0,
        }  # fmt: skip
        self.settings: Settings = settings_in(folder, TOML.format(**(plain | changed)))
        self.now = real_now()
        self.store: Database = open_database(self.settings.database_url)
        polled_at = self.now - timedelta(seconds=30)
        for lane in ("sweep", "hunt"):
            answer = an_answer(*(an_offer(f"m{n}", offer_id=str(n)) for n in range(3)), observed_at=polled_at)
            SqlHistoryRecorder(self.store).record(answer, lane=lane, gpu="H100 SXM", spot=False)

    @property
    def watch(self) -> Any:
        return self.settings.watches[0]

    def rented(self, offer_id: str = "9", at: datetime | None = None) -> Launch:
        match = a_match(an_offer(f"m{offer_id}", offer_id=offer_id, observed_at=self.now))
        intent = Intent(watch=self.watch, match=match, launch_id=next(IDS), dry_run=False)
        with self.store.write() as connection:
            got = reserve(connection, intent, self.settings.budget, at or self.now)
        assert not isinstance(got, LaunchRefusal), got
        return got[0]

    def ended(self, launch: Launch, state: LaunchState, reason: str, at: datetime | None = None) -> None:
        SqlLaunchRepository(self.store).transition(
            launch, state, "a test", at or self.now, ended_at=at or self.now, end_reason=reason
        )

    def ran(self, offer_id: str) -> None:
        launches = SqlLaunchRepository(self.store)
        running = launches.transition(self.rented(offer_id), LaunchState.RUNNING, "a test", self.now, instance_id="1")
        stopping = launches.transition(running, LaunchState.STOPPING, "a test", self.now)
        self.ended(stopping, LaunchState.ENDED, "stopped by the owner")

    def admission(self) -> LaunchRefusal | None:
        """What the daemon's own reservation says now."""
        (status,) = watch_statuses(self.settings)
        first, *others = status.matches
        intent = Intent(
            watch=self.watch,
            match=first,
            launch_id=next(IDS),
            dry_run=self.settings.dry_run,
            alternatives=tuple(others),
        )
        with self.store.write() as connection:
            savepoint = connection.begin_nested()
            got = reserve(connection, intent, self.settings.budget, real_now())
            savepoint.rollback()
        return got if isinstance(got, LaunchRefusal) else None


def _paused(world: World) -> None:
    SqlPauseRepository(world.store).pause(Pause(watch=None, at=world.now, why="holiday"))


def _cooling(world: World) -> None:
    world.ended(world.rented(), LaunchState.FAILED, "no credit: the balance is 0")


def _breaker(world: World) -> None:
    for offer_id, minutes in (("6", 50), ("7", 42), ("8", 32)):
        at = world.now - timedelta(minutes=minutes)
        world.ended(world.rented(offer_id, at), LaunchState.FAILED, "would not come to life", at)


def _none(_world: World) -> None:
    """Nothing to prepare."""


def _rented(world: World) -> None:
    world.rented()


def _ran(world: World) -> None:
    world.ran("9")


OF_ADMISSION: list[tuple[str, str, Callable[[World], None], dict[str, Any]]] = [
    ("max_active", "active launches of watch 'cheap': 1 (max_active = 1)", _rented, {}),
    ("max_total", "has rented 1 in total (max_total = 1)", _ran, {"max_total": 1}),
    ("max_per_day", "max_per_day = 1", _ran, {"more": "max_per_day = 1"}),
    ("paused", "renting is paused until you resume it (holiday)", _paused, {}),
    ("max_usd_hour", "max_usd_hour", _none, {"budget": 1.0}),
    ("max_usd_day", "max_usd_day", _none, {"budget": "9.0\nmax_usd_day = 0.01"}),
    ("max_instances", "max_instances", _rented, {"budget": "99.0\nmax_instances = 1", "max_active": 2}),
    ("cooling", "no credit", _cooling, {}),
    ("breaker", "gpuwatch watches resume cheap", _breaker, {}),
    ("checklist", "dry_epoch", _none, {"more": 'require = ["dry_epoch"]'}),
]


@pytest.mark.parametrize(("reason", "text", "prepare", "changed"), OF_ADMISSION, ids=[one[0] for one in OF_ADMISSION])
def test_it_says_what_its_admission_says(
    tmp_path: Path, reason: str, text: str, prepare: Callable[[World], None], changed: dict[str, Any]
) -> None:
    world = World(tmp_path, **changed)
    prepare(world)
    (status,) = watch_statuses(world.settings)
    json = watch_status_view(status).json()
    refusal = world.admission()
    assert refusal is not None
    assert (json["blocked_by"], reason) == (refusal.reason.value, refusal.reason.value)
    assert json["blocked_reason"] == f"{refusal.text[:1].upper()}{refusal.text[1:]}."
    assert text.lower() in json["blocked_reason"].lower()
    assert f"Not rented: {refusal.text}." in status.why
    rules = rules_of(world.settings, status, real_now())
    first = next(rule for rule in rules if rule.state is RuleState.BLOCKS)
    assert (first.name, first.block) == (refusal.reason, status.blocked), "the list blocks where the admission refuses"
    assert first.check is not None
    assert first.check.refusal is not None
    words = why_not(status.watch, status.blocked) if status.blocked else ""
    assert words, "it has words for its owner"
    assert not re.search(r"max_|_usd|gpuwatch |= ", words), "without keys and commands"
    row = next(row for row in check_rows(status, rules) if row.state is RuleState.BLOCKS)
    assert row.label


def test_every_rule_is_listed_with_its_figures_and_the_later_ones_do_not_wait_for_the_first(tmp_path: Path) -> None:
    world = World(tmp_path, max_active=2, max_total=5, budget="100.0\nmax_usd_day = 200.0", more="max_per_day = 3")
    world.rented()
    _paused(world)
    (status,) = watch_statuses(world.settings)
    rules = {rule.name: rule for rule in rules_of(world.settings, status, real_now())}
    blocking = [name for name, rule in rules.items() if rule.state is RuleState.BLOCKS]
    assert blocking == [RefusalReason.PAUSED]
    assert rules[Condition.PRICE].state is rules[Condition.MARKET].state is RuleState.MET
    figures = {name: (rule.check.used, rule.check.limit) for name, rule in rules.items() if rule.check is not None}
    assert figures[RefusalReason.MAX_ACTIVE] == (1, 2)
    assert figures[RefusalReason.MAX_TOTAL] == (1, 5)
    assert figures[RefusalReason.MAX_PER_DAY][1] == 3
    hour = rules[RefusalReason.MAX_USD_HOUR].check
    assert hour is not None
    assert 0 < hour.cost < (hour.limit or 0) - hour.used
    assert rules[RefusalReason.MAX_USD_DAY].check is not None


def test_what_a_watch_without_matches_lacks_is_its_price(tmp_path: Path) -> None:
    world = World(tmp_path, more="")
    settings = msgspec.structs.replace(
        world.settings, watches=(msgspec.structs.replace(world.watch, max_price_usd_gpu_hour=Decimal("0.50")),)
    )
    (status,) = watch_statuses(settings)
    rules = rules_of(settings, status, real_now())
    assert [rule.name for rule in rules if rule.state is RuleState.BLOCKS] == [Condition.PRICE]
    assert any(rule.check is not None for rule in rules), "the rest is judged on the nearest offer"


OTHERS: list[tuple[str, str, dict[str, Any]]] = [
    ("dry_run", "A dry run rents nothing (dry_run = true).", {"dry_run": "true"}),
    ("not_ready", "There is no key for vastai.", {"key": ""}),
]


@pytest.mark.parametrize(("reason", "sentence", "changed"), OTHERS)
def test_what_no_admission_knows_is_said_as_well(
    tmp_path: Path, reason: str, sentence: str, changed: dict[str, Any]
) -> None:
    (status,) = watch_statuses(World(tmp_path, **changed).settings)
    json = watch_status_view(status).json()
    assert (json["blocked_by"], json["blocked_reason"]) == (reason, sentence)


def test_nothing_blocks_a_watch_that_rents_or_one_that_only_alerts(tmp_path: Path) -> None:
    assert World(tmp_path).admission() is None
    for action in ("launch", "alert"):
        (status,) = watch_statuses(World(tmp_path, action=action).settings)
        assert status.matches
        assert status.blocked is None
        json = watch_status_view(status).json()
        assert (json["blocked_by"], json["blocked_reason"]) == (None, None)


def test_a_watch_without_a_match_is_not_blocked(tmp_path: Path) -> None:
    world = World(tmp_path)
    _paused(world)
    SqlHistoryRecorder(world.store).record(an_answer(observed_at=world.now), lane="sweep", gpu="H100 SXM", spot=False)
    (status,) = watch_statuses(world.settings)
    assert (status.matches, status.blocked, status.state) == ((), None, "paused")


@pytest.mark.parametrize("action", ["launch", "alert"])
def test_outside_its_windows_a_watch_says_so(tmp_path: Path, action: str) -> None:
    today = real_now().strftime("%a")
    others = ", ".join(f'"{day}"' for day in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun") if day != today)
    (status,) = watch_statuses(World(tmp_path, action=action, more=f"active = [{others}]").settings)
    json = watch_status_view(status).json()
    assert json["blocked_by"] == "outside_active"
    assert json["blocked_reason"].startswith("Outside its active windows (")


def test_a_watch_that_holds_says_so(tmp_path: Path) -> None:
    (status,) = watch_statuses(World(tmp_path, more='hold_for = "10m"').settings)
    json = watch_status_view(status).json()
    assert json["blocked_by"] == "hold_for"
    assert json["blocked_reason"] == "Not at or under its limit for 10m yet (hold_for)."


def test_an_open_approval_and_a_denial_are_said(tmp_path: Path) -> None:
    world = World(tmp_path, action="ask")
    (status,) = watch_statuses(world.settings)
    assert status.blocked is None, "it asks with the next poll"
    found: list[Match] = list(status.matches)
    first, *others = found
    intent = Intent(watch=world.watch, match=first, launch_id=next(IDS), dry_run=False, alternatives=tuple(others))
    until = world.now + timedelta(minutes=15)
    with world.store.write() as connection:
        approval = create_approval(connection, intent, world.settings.budget, until, real_now(), True)
    assert approval is not None
    assert not isinstance(approval, LaunchRefusal)
    json = watch_status_view(watch_statuses(world.settings)[0]).json()
    assert json["blocked_by"] == "approval"
    assert f"gpuwatch approvals approve {approval.approval_id}" in json["blocked_reason"]
    SqlApprovalRepository(world.store).deny(approval.approval_id, "no", real_now())
    assert watch_statuses(world.settings)[0].blocked is None, "there are other offers"
    _paused(world)
    assert watch_status_view(watch_statuses(world.settings)[0]).json()["blocked_by"] == "paused"


def test_a_missing_prerequisite_and_what_only_the_daemon_knows_are_said(tmp_path: Path) -> None:
    world = World(tmp_path)
    uow_factory = SqlDecisionStore(world.store)
    notes = ReadinessNotes()
    with uow_factory.open() as uow:
        notes.not_ready(uow, "cheap", "vastai", "vastai: the balance is 0.10 $", real_now(), timedelta(0))
    json = watch_status_view(watch_statuses(world.settings)[0]).json()
    assert (json["blocked_by"], json["blocked_reason"]) == ("not_ready", "Vastai: the balance is 0.10 $.")
    with uow_factory.open() as uow:
        notes.ready(uow, "cheap", real_now())
    assert watch_statuses(world.settings)[0].blocked is None
    hold = Hold(
        provider="vastai", kind="renting", set_at=world.now, until=world.now + timedelta(days=1), reason="no key pair"
    )
    SqlHolds(world.store).save(hold)
    assert watch_status_view(watch_statuses(world.settings)[0]).json()["blocked_reason"] == "Vastai: no key pair."


def test_a_note_of_a_daemon_that_is_gone_expires(tmp_path: Path) -> None:
    world = World(tmp_path)
    with SqlDecisionStore(world.store).open() as uow:
        ReadinessNotes().not_ready(
            uow, "cheap", "vastai", "the balance is 0 $", real_now() - timedelta(minutes=6), timedelta(0)
        )
    assert watch_statuses(world.settings)[0].blocked is None


def test_the_chat_says_it_too(tmp_path: Path) -> None:
    world = World(tmp_path)
    _paused(world)
    signer = ButtonSigner(b"secret", "chat", lambda: "abc123")
    text = str(chat_watches(ChatContext(settings=world.settings, signer=signer, now=real_now()), "").lines)
    assert "Renting is paused until you resume it (holiday)." in text


def test_the_chat_names_the_nearest_offer(tmp_path: Path) -> None:
    world = World(tmp_path)
    (cheaper,) = (msgspec.structs.replace(watch, max_price_usd_gpu_hour=Decimal(3)) for watch in world.settings.watches)
    settings = msgspec.structs.replace(world.settings, watches=(cheaper,))
    signer = ButtonSigner(b"secret", "chat", lambda: "abc123")
    text = str(chat_watches(ChatContext(settings=settings, signer=signer, now=real_now()), "").lines)
    assert "nearest: H100 SXM, $3.60/GPU-h at vast.ai, 20 % above your limit" in text


def test_a_pace_that_gpuwatch_chose_itself_is_neither_a_lack_of_data_nor_an_overdue_poll(tmp_path: Path) -> None:
    """With 250 rows a day a matching watch is polled every two hours."""
    world = World(tmp_path, key='api_key = "a-key"\nrows_per_day = 250')
    offers = [an_offer(f"m{n}", offer_id=str(n)) for n in range(3)]
    for hours in (3.0, 1.1):
        at = world.now - timedelta(hours=hours)
        with world.store.write() as connection:
            connection.execute(poll.delete().where(poll.c.at_s > int(at.timestamp())))
        answer = an_answer(*offers, observed_at=at)
        SqlHistoryRecorder(world.store).record(answer, lane="hunt", gpu="H100 SXM", spot=False)
    (status,) = watch_statuses(world.settings)
    assert (status.state, "no_data" in status.why) == ("matched", False)
    assert status.next_poll_at is not None
    assert status.next_poll_at > world.now + timedelta(minutes=20)
