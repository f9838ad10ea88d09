"""The page of a decision: its figures, the answers, and what became of it; hostile text stays text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from gpuwatch.app.launches.approvals import deny
from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.domain.launches.launch import Intent
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.storage.launches.approval_rows import SqlApprovalRepository
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from tests.builders import a_match, an_offer
from tests.web.served import PAGE, Served, page, serving_settings, settings_in

ID, OTHER = "a" * 12, "b" * 12
ASKS = """
dry_run = false
[web]
listen = "127.0.0.1:0"
[budget]
max_usd_hour = 20
max_usd_day = 40
[[watch]]
name = "cheap"
gpu = ["H100"]
max_price = 7.20
action = "ask"
[watch.launch]
max_runtime = "10h"
max_active = 3
max_total = 0
ready_within = "1s"
idle_below = 10
idle_for = "30m"
"""
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Served]:
    """A server with one open approval, of an offer whose place is hostile."""
    settings = settings_in(tmp_path, ASKS)
    with serving_settings(settings, tmp_path) as web:
        ask(web, ID)
        yield web


def ask(web: Served, approval_id: str, machine: str = "77", minutes: int = 15) -> None:
    settings, now = web.context.settings, real_now()
    match = a_match(an_offer(region=HOSTILE, machine_id=machine, offer_id=machine))
    intent = Intent(watch=settings.watches[0], match=match, launch_id=approval_id, dry_run=False)
    with open_store(settings) as store, SqlDecisionStore(store).open() as uow:
        uow.request_approval(intent, Budget(), now + timedelta(minutes=minutes), now, False)


def text_of(web: Served, path: str) -> str:
    """What a person reads, without marks and with plain spaces."""
    main = page(web, path).partition("<main")[2].partition("</main>")[0]
    return " ".join(re.sub(r"<[^>]*>", " ", main).replace("\N{NO-BREAK SPACE}", " ").split())


def test_the_page_has_every_figure_of_the_decision(asked: Served) -> None:
    shown = text_of(asked, f"/approvals/{ID}")
    for text in (
        "Rent 1× H100 SXM 80 GB?", "asked by cheap", "$3.60 /h", "50 % under your limit of $7.20", "Expires",
        "Too little history", "$36.12 for 10 h", "daily budget left $40.00", "on demand",
        "verified, 99.0 % reliable, never used by you", "unknown: too few such offers are recorded",
        "If you do nothing nothing is rented", "If it costs more than $3.60/h, nothing is rented.",
        "It ends after 10 h", "or after 30 min of an idle GPU", "not asked again for 24 h",
    ):  # fmt: skip
        assert text in shown, text
    assert HOSTILE not in asked.client.get(f"/approvals/{ID}", headers=PAGE).text


def test_who_may_not_answer_sees_a_login_that_returns_here(asked: Served) -> None:
    shown = page(asked, f"/approvals/{ID}")
    assert "/approve" not in shown
    assert f'href="/login?next=/approvals/{ID}"' in shown
    login = page(asked, f"/login?next=/approvals/{ID}")
    assert f'name="next" value="/approvals/{ID}"' in login
    assert 'name="next" value="/"' in page(asked, "/login?next=//evil.example")


def test_several_open_ones_lead_to_the_next(asked: Served) -> None:
    ask(asked, OTHER, machine="78", minutes=20)
    assert "1 of 2" in text_of(asked, f"/approvals/{ID}")
    assert f'href="/approvals/{OTHER}">next' in page(asked, f"/approvals/{ID}")
    assert f'href="/approvals/{ID}">next' in page(asked, f"/approvals/{OTHER}")
    assert "2 decisions wait for you." in text_of(asked, "/approvals")


def test_the_sheet_says_the_most_that_it_costs(asked: Served) -> None:
    csrf = asked.log_in()
    answer = asked.client.post(f"/approvals/{ID}/approve", data={"csrf_token": csrf}, headers=PAGE)
    assert answer.status_code == 200
    for text in (
        "Rent it for $3.60/h or less?",
        "Costs at most",
        "$36.12",
        "you pay by the second",
        "Rent it</button>",
    ):
        assert text in answer.text, text


def test_deny_is_one_step_and_says_what_follows(asked: Served) -> None:
    csrf = asked.log_in()
    assert asked.client.post(f"/approvals/{ID}/deny", data={}, headers=PAGE).status_code == 403
    answer = asked.client.post(f"/approvals/{ID}/deny", data={"csrf_token": csrf}, headers=PAGE)
    assert answer.status_code == 303
    shown = text_of(asked, answer.headers["location"])
    assert "Denied. This offer is not asked again for 24 h, unless prices leave your limit and return." in shown
    assert "Denied at" in shown
    assert "/approve" not in page(asked, f"/approvals/{ID}")


def test_answered_expired_and_refused_ones_say_what_became_of_them(asked: Served) -> None:
    ask(asked, OTHER, machine="78", minutes=-1)
    assert "Expired at" in text_of(asked, f"/approvals/{OTHER}")
    assert "without an answer. Nothing was rented." in text_of(asked, f"/approvals/{OTHER}")
    with open_store(asked.context.settings) as store:
        SqlApprovalRepository(store).mark_refused(ID, f"it now costs $9 an hour; a new approval is {OTHER}", real_now())
    shown = page(asked, f"/approvals/{ID}")
    assert f'href="/approvals/{OTHER}">The newer question' in shown
    assert "it now costs $9 an hour. Nothing was rented." in text_of(asked, f"/approvals/{ID}")
    assert "/approve" not in shown
    assert "Refused" in text_of(asked, "/approvals")


def test_the_reason_of_a_denial_is_text(asked: Served) -> None:
    deny(asked.context.settings, ID, HOSTILE, actor="test")
    assert HOSTILE not in asked.client.get(f"/approvals/{ID}", headers=PAGE).text
    assert HOSTILE not in asked.client.get("/approvals", headers=PAGE).text
