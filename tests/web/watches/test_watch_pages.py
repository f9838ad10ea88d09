"""The list of watches, the page of one, pauses and silences."""

from __future__ import annotations

import html
from datetime import timedelta

import pytest

from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from tests.storage.stored_answers import an_answer, an_offer
from tests.web.served import PAGE, Served, page


def polled(web: Served, usd_hour: float = 1.0) -> None:
    """Let one sweep and one hunt have seen an offer, half a minute ago."""
    at = real_now() - timedelta(seconds=30)
    with open_store(web.context.settings) as store:
        for lane in ("sweep", "hunt"):
            answer = an_answer(an_offer("a", usd_hour), observed_at=at)
            SqlHistoryRecorder(store).record(answer, lane=lane, gpu="H100 SXM", spot=False)


def posted(web: Served, path: str, token: str, **fields: str) -> str:
    """Post a form, and return the text of the page that follows."""
    answer = web.client.post(path, data={"csrf_token": token, **fields}, headers=PAGE, follow_redirects=True)
    assert answer.status_code == 200, answer.text
    return html.unescape(answer.text)


def test_each_watch_has_a_row_that_says_why_and_a_page(web: Served) -> None:
    assert "Its providers have not been polled yet." in page(web, "/watches")
    polled(web, 3.0)
    shown = page(web, "/watches?fresh=yes")
    assert 'href="/watches/cheap"' in shown
    assert "over limit" in shown
    assert "H100, 1 GPU" in shown
    assert "Alerts only" in shown
    assert "0 alerts, 0 machines in 14 days" in shown


def test_a_page_answers_first_and_lists_what_it_checks(web: Served) -> None:
    polled(web)
    shown = page(web, "/watches/cheap")
    assert "It alerts you with the next poll." in shown
    assert "1 offer matches now" in shown
    assert "Price at or under the limit" in shown
    assert "$1.20 of $2.40" in shown
    assert "Log in to edit" in shown
    assert "Pause…" not in shown
    web.log_in()
    assert "Pause…" in page(web, "/watches/cheap")


def test_a_watch_over_its_limit_says_how_far_and_what_almost_matches(web: Served) -> None:
    polled(web, 3.0)
    shown = page(web, "/watches/cheap")
    assert "Waiting: 50\N{NO-BREAK SPACE}% over your limit" in shown
    assert "No offer matches now" in shown
    assert "$3.60 of $2.40" in shown


def test_an_unknown_watch_is_not_found(web: Served) -> None:
    assert web.client.get("/watches/cheep", headers=PAGE).status_code == 404


def test_hostile_names_of_hosts_are_text(web: Served) -> None:
    at = real_now() - timedelta(seconds=30)
    hostile = an_offer("a", 1.0, region="<script>alert(1)</script>", country=None)
    with open_store(web.context.settings) as store:
        SqlHistoryRecorder(store).record(an_answer(hostile, observed_at=at), lane="sweep", gpu="H100 SXM", spot=False)
    for path in ("/watches/cheap", "/watches"):
        answer = web.client.get(path, headers=PAGE).text
        assert "<script>alert" not in answer


def test_a_pause_has_a_length_and_a_reason(web: Served) -> None:
    token = web.log_in()
    assert "Pause cheap?" in page(web, "/pause?watch=cheap")
    shown = posted(web, "/pause", token, watch="cheap", **{"for": "8", "for_unit": "h", "why": "budget <b>"})
    assert "Watch cheap is paused." in shown
    assert "You paused it until" in shown
    assert "“budget <b>”" in shown
    assert "<b>”" not in web.client.get("/watches/cheap", headers=PAGE).text
    assert "You paused it until" in page(web, "/watches")
    assert "Watch cheap is resumed." in posted(web, "/resume", token, watch="cheap")


@pytest.mark.parametrize("text", ["soon", "-1", "0", "99999", "1e9"])
def test_a_length_that_means_nothing_pauses_nothing_and_stays_typed(web: Served, text: str) -> None:
    token = web.log_in()
    shown = posted(web, "/pause", token, watch="cheap", **{"for": text, "for_unit": "d", "why": "mine"})
    assert 'aria-invalid="true"' in shown
    assert f'value="{text}"' in shown
    assert 'value="mine"' in shown
    assert "You paused" not in page(web, "/watches/cheap")


def test_renting_as_a_whole_is_paused_until_it_is_resumed(web: Served) -> None:
    token = web.log_in()
    assert "Renting is paused" in posted(web, "/pause", token)
    assert "You paused renting." in page(web, "/watches/cheap")
    assert "Renting is resumed." in posted(web, "/resume", token)


def test_a_watch_is_silenced_for_a_while(web: Served) -> None:
    token = web.log_in()
    assert "Silence cheap?" in page(web, "/watches/cheap/silence")
    assert "is silenced until" in posted(web, "/watches/cheap/silence", token, **{"for": "24h"})
    assert "sends alerts again" in posted(web, "/watches/cheap/silence", token, **{"for": "end"})
    answer = web.client.post("/watches/cheap/silence", data={"csrf_token": token, "for": "9y"}, headers=PAGE)
    assert answer.status_code >= 400


@pytest.mark.parametrize("path", ["/pause", "/resume", "/watches/cheap/silence", "/watches/cheap/rehearse"])
def test_without_a_session_or_its_token_nothing_is_changed(web: Served, path: str) -> None:
    assert web.client.post(path, data={"for": "6h"}, headers=PAGE).status_code in {401, 403}
    web.log_in()
    assert web.client.post(path, data={"for": "6h"}, headers=PAGE).status_code == 403


def test_a_rehearsal_of_a_watch_that_only_alerts_says_so(web: Served) -> None:
    token = web.log_in()
    assert "does not rent" in posted(web, "/watches/cheap/rehearse", token)
