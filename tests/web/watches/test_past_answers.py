"""The page of a watch and the API answer for a time that is over."""

from __future__ import annotations

from datetime import timedelta

from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.domain.launches.past_decision import PastDecision
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.watches.watch_decisions import record_decision
from tests.storage.stored_answers import an_answer, an_offer
from tests.web.served import Served, page


def decided(web: Served) -> str:
    """Let a watch have been blocked three hours ago, for an hour; return a moment of that hour."""
    began = real_now().replace(microsecond=0) - timedelta(hours=3)
    with open_store(web.context.settings) as store:
        for minutes in range(0, 60, 10):
            answer = an_answer(an_offer("a", 1.0), observed_at=began + timedelta(minutes=minutes))
            SqlHistoryRecorder(store).record(answer, lane="sweep", gpu="H100 SXM", spot=False)
        with store.write() as connection:
            why = "the daily budget has <b>$1</b> left"
            limit = 2_400_000
            one = PastDecision(at=began, reason="max_usd_day", text=why, limit_microusd_gpu_hour=limit)
            record_decision(connection, "cheap", one)
            record_decision(connection, "cheap", PastDecision(at=began + timedelta(hours=1), reason="first_match"))
    return (began + timedelta(minutes=35)).isoformat().replace("+00:00", "Z")


def test_the_page_has_a_field_for_the_time_and_says_what_blocked_it(web: Served) -> None:
    at = decided(web)
    assert "it reported the offer that matched" in page(web, "/watches/cheap")
    shown = page(web, f"/watches/cheap?why={at}")
    assert "it did not act, because the daily budget has" in shown
    assert "$1.20" in shown  # the lowest match then, by the history
    raw = web.client.get(f"/watches/cheap?why={at}", headers={"Accept": "text/html"}).text
    assert "<b>$1</b>" not in raw
    assert "Write a time that is over" in page(web, "/watches/cheap?why=soon")


def test_the_api_answers_with_names_that_programs_know(web: Served) -> None:
    at = decided(web)
    answer = web.client.get("/api/v1/watches/cheap/why", params={"at": at})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["known"], found["decision"]["blocked_by"], found["decision"]["acted"]) == (True, "max_usd_day", False)
    assert (found["best_usd_gpu_hour"], found["decision"]["limit_usd_gpu_hour"]) == (1.2, 2.4)
    assert [one["acted"] for one in found["changes"]] == [False, True]
    assert web.client.get("/api/v1/watches/cheap/why", params={"at": "soon"}).status_code == 422
    for none in ("2026-02-30 03:12", "2999-01-01T00:00Z", "0001-01-01T00:00+10:00"):
        assert web.client.get("/api/v1/watches/cheap/why", params={"at": none}).status_code == 404
    assert web.client.get("/api/v1/watches/cheap/why").status_code == 422
    assert web.client.get("/api/v1/watches/cheep/why", params={"at": at}).status_code == 404
