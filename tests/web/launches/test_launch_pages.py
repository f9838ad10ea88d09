"""The pages of launches: the answer of each state, the facts, the timeline; what a host wrote stays text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from gpuwatch.app.launches.launches import all_launches
from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.domain.launches.instance import SshAddress
from gpuwatch.domain.launches.instances.instance_checks import UtilisationSample
from gpuwatch.domain.launches.launch import (
    COMMAND_PLACE,
    EndReason,
    InstanceCondition,
    Intent,
    Launch,
    LaunchState,
    PriceSpan,
    new_launch,
)
from gpuwatch.settings import Settings
from gpuwatch.storage.launches.invoice_rows import SqlUtilisationRepository
from gpuwatch.storage.setup.launch_rows import launch_row_of, row_of_event
from gpuwatch.storage.setup.tables import launch as launches
from gpuwatch.storage.setup.tables import launch_event
from tests.builders import a_match, an_offer, changed
from tests.web.served import PAGE, Served, page, served

MICRO, HOUR, ID = 10**6, timedelta(hours=1), "a" * 12
RENTS = """
[budget]
max_usd_day = 60
[[watch]]
name = "cheap"
gpu = ["H100"]
max_price = 7.20
action = "launch"
[watch.launch]
max_runtime = "10h"
idle_below = 5
idle_for = "30m"
"""
S = LaunchState


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, more=RENTS) as found:
        yield found


def stored(settings: Settings, causes: Sequence[tuple[LaunchState, str]] = (), **changes: Any) -> Launch:
    """Store a launch that began three hours ago, and its events."""
    began: datetime = real_now() - 3 * HOUR
    match = a_match(an_offer(region="Norway"))
    intent = Intent(watch=settings.watches[0], match=match, launch_id=ID, dry_run=False)
    span = PriceSpan(began, 3 * MICRO, 3_600_000)
    ran = {"state": S.RUNNING, "running_at": began, "spans": (span,), "instance_id": "44700003"}
    if (state := changes.get("state", S.RUNNING)) in {S.UNKNOWN, S.HELD, S.REQUESTED}:
        ran = {}
    launch: Launch = changed(new_launch(intent, 0, began), **({**ran, "state": state} | changes))
    with open_store(settings) as store, store.write() as connection:
        connection.execute(insert(launches), launch_row_of(launch))
        before = None
        for number, (to_state, cause) in enumerate(causes):
            row = row_of_event(changed(launch, state=to_state), before, cause, began + timedelta(minutes=number))
            connection.execute(insert(launch_event), row)
            before = to_state
    return launch


def answer(web: Served, path: str = f"/launches/{ID}") -> str:
    """The first sentence of a page, without its markup."""
    found = re.search(r'<p class="answer">(.*?)</p>', page(web, path), re.DOTALL)
    assert found is not None
    return plain(re.sub(r"<[^>]+>", "", found[1]))


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


ANSWERS: Sequence[tuple[dict[str, Any], str]] = (
    ({}, r"\$10\.80 so far, at most \$36\.1\d\. It ends by .*, in (7 h|6 h 59 min)\."),
    ({"max_runtime_s": None}, r"\$10\.80 so far, and \$3\.60/h from now on\. No end is set"),
    ({"state": S.STARTING, "running_at": None, "spans": ()}, r"It starts: at most \$36\.1\d\."),
    ({"state": S.STOPPING, "end_reason": "idle: under 5 %"}, r"It is being ended: idle\. \$10\.80 so far\."),
    ({"state": S.UNKNOWN}, r"gpuwatch looks for it\. .* nothing is ordered twice\. At most \$"),
    ({"state": S.HELD}, r"Needs your check\. Nothing proves that no machine was made, so up to \$.* stays reserved"),
    ({"state": S.REQUESTED}, r"It is being ordered\. At most \$"),
    ({"state": S.FAILED, "running_at": None, "spans": (), "instance_id": None, "end_reason": "no credit"},
     r"It never ran: not enough credit\. It cost nothing\."),
    ({"dry_run": True, "state": S.ENDED}, r"Dry run: nothing was rented\. It would cost \$3\.60/h\."),
    ({"provider": COMMAND_PLACE}, r"Rented by your command\. gpuwatch does not see it"),
)  # fmt: skip


@pytest.mark.parametrize(("changes", "said"), ANSWERS)
def test_the_first_sentence_is_the_answer(web: Served, changes: dict[str, Any], said: str) -> None:
    stored(web.context.settings, **changes)
    assert re.match(said, answer(web)), answer(web)


def test_what_ended_says_after_how_long_and_why(web: Served) -> None:
    ended_at = real_now() - timedelta(minutes=20)
    stored(web.context.settings, state=S.ENDED, end_reason=EndReason.IDLE.text("GPU at 3 %"), ended_at=ended_at)
    assert answer(web) == "Ended after 2 h 40 min: idle. $9.60."
    listed = plain(page(web, "/launches"))
    assert "No machine runs." in listed
    assert all(text in listed for text in ("idle", "2 h 40 min", "$9.60", "1× H100 SXM"))
    assert ">ended<" not in listed


def test_the_page_says_where_to_log_in_and_what_is_to_come(web: Served) -> None:
    causes = ((S.REQUESTED, "intent"), (S.STARTING, "created"), (S.RUNNING, "running"), (S.RUNNING, "extended by 2h"))
    launch = stored(web.context.settings, causes, ssh=SshAddress(host="ssh6.vast.ai", port=41822))
    with open_store(web.context.settings) as store:
        for minute in range(60):
            if not 20 <= minute < 40:
                sample = UtilisationSample(real_now() - timedelta(minutes=60 - minute), 96.0)
                SqlUtilisationRepository(store).add(launch.launch_id, sample)
    shown = page(web, f"/launches/{ID}")
    texts = (
        'value="ssh -p 41822 root@ssh6.vast.ai"', "vast.ai, Norway", "The GPU is 96 % busy.", "96 % on average",
        "A useful hour costs $3.75.", "not sampled", "Ends at the latest", "Reminder before the end", "Now",
        "Ordered once, for cheap", "vast.ai confirmed instance <code>44700003</code>",
        "Running, checked against its offer",
        "Extended by 2h", "ends after 30 min under 5 %", "machine 77", "99.0 % reliable",
    )  # fmt: skip
    missing = [text for text in texts if text not in plain(shown)]
    assert missing == []
    assert '"gaps":[[' in shown
    assert shown.index("Ends at the latest") < shown.index("Now</p>") < shown.index("Ordered once")


def test_what_a_host_wrote_stays_text(web: Served) -> None:
    evil = "<script>alert(1)</script>"
    launch = stored(web.context.settings, ((S.HELD, evil),), state=S.STOPPING, end_reason=evil)
    shown = web.client.get(f"/launches/{launch.launch_id}", headers=PAGE).text
    assert evil not in shown
    assert "&lt;script&gt;" in shown
    assert evil not in web.client.get("/launches", headers=PAGE).text


def test_a_held_launch_stands_first_and_asks_what_to_check(web: Served) -> None:
    stored(web.context.settings, state=S.HELD, label="gpuwatch-x")
    listed = page(web, "/launches")
    assert "1 machine needs your check." in listed
    assert "Check at vast.ai whether an instance with the label gpuwatch-x exists." in listed
    assert "It exists…" not in listed
    token = web.log_in()
    assert all(text in page(web, "/launches") for text in ("It exists…", "It does not exist…"))
    form = {"csrf_token": token}
    asked = web.client.post(f"/launches/{ID}/absent", data=form, headers=PAGE)
    assert "Is there no such instance at vast.ai?" in asked.text
    assert "Look twice." in asked.text
    which = web.client.post(f"/launches/{ID}/exists", data=form, headers=PAGE)
    assert 'name="instance"' in which.text
    none = web.client.post(f"/launches/{ID}/exists", data={**form, "instance": " "}, headers=PAGE)
    assert "Write the number of the instance" in none.text
    assert all_launches(web.context.settings)[0].state is S.HELD


def test_extend_shows_the_new_end_and_the_new_most(web: Served) -> None:
    settings = web.context.settings
    stored(settings)
    assert web.client.post(f"/launches/{ID}/extend", data={"by": "1"}, headers=PAGE).status_code == 401
    token = web.log_in()
    asked = web.client.post(f"/launches/{ID}/extend", data={"csrf_token": token}, headers=PAGE).text
    assert all(text in asked for text in ("+1", "+2", "+4", "at most $39.7", "at most $50.5", "of $60.00 left"))
    wrong = {"csrf_token": token, "by": "other", "other": "soon"}
    assert "Write a number of hours" in web.client.post(f"/launches/{ID}/extend", data=wrong, headers=PAGE).text
    sent = {"csrf_token": token, "by": "2"}
    done = web.client.post(f"/launches/{ID}/extend", data=sent, headers=PAGE, follow_redirects=True).text
    assert "for at most $7.20 more" in done
    assert all_launches(settings)[0].max_runtime_s == 12 * 3600
    much = {**sent, "by": "other", "other": "2000"}
    refused = web.client.post(f"/launches/{ID}/extend", data=much, headers=PAGE, follow_redirects=True).text
    assert "was not extended" in refused


def test_what_a_command_rented_has_no_button_that_could_not_end_it(web: Served) -> None:
    stored(web.context.settings, provider=COMMAND_PLACE)
    web.log_in()
    shown = page(web, f"/launches/{ID}")
    assert f"/launches/{ID}/absent" in shown
    assert f"/launches/{ID}/stop" not in shown


def test_a_running_launch_whose_host_is_away_says_so(web: Served) -> None:
    stored(web.context.settings, condition=InstanceCondition.OFFLINE)
    assert "Host offline" in page(web, "/launches")
