"""Actions of the API on launches, silences and links; those on approvals, jobs and pauses are in test_api.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.app.launches.launches import all_launches
from gpuwatch.domain.launches.launch import LaunchState
from tests.web.launches.test_launch_pages import ID, RENTS, stored
from tests.web.security.test_security import assert_problem
from tests.web.served import Served, served


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, more=RENTS) as found:
        found.client.headers["X-CSRF-Token"] = found.log_in()
        yield found


def sent(web: Served, path: str, status: int = 200, **body: Any) -> dict[str, Any]:
    answer = web.client.post(f"/api/v1/{path}", json=body)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


def audited(web: Served) -> list[str]:
    return [one["headline"] for one in web.client.get("/api/v1/alerts", params={"kind": "audit"}).json()["items"]]


def test_a_watch_is_silenced_and_heard_again(web: Served) -> None:
    got = sent(web, "silence", watch="cheap", **{"for": "6h"})
    assert ([one["watch"] for one in got["items"]], got["changed"]) == (["cheap"], True)
    assert web.client.get("/api/v1/watches/cheap").json()["silenced_until"] == got["items"][0]["until"]
    assert [sent(web, "unsilence", watch="cheap")["changed"] for _ in range(2)] == [True, False]
    sent(web, "silence", 404, watch="cheep", **{"for": "6h"})
    sent(web, "silence", 422, watch="cheap", **{"for": "soon"})
    assert audited(web) == ["watch cheap silenced", "silence of watch cheap ended"]


def test_a_launch_is_extended_within_its_budget(web: Served) -> None:
    stored(web.context.settings)
    (before,) = web.client.get("/api/v1/launches").json()["items"]
    got = sent(web, f"launches/{ID}/extend", by="1h")
    (after,) = web.client.get("/api/v1/launches").json()["items"]
    assert got["ends_at"] == after["ends_at"] > before["ends_at"]
    assert got["more_usd"] == pytest.approx(after["most_usd"] - before["most_usd"], abs=0.01)
    assert got["is_contract_known"] is False, "the provider was not asked: there is no key"
    assert "was not extended" in sent(web, f"launches/{ID}/extend", 409, by="90h")["detail"]
    assert audited(web) == [f"launch {ID} extended by 1h"]


def test_a_held_launch_is_closed(web: Served) -> None:
    stored(web.context.settings, state=LaunchState.HELD)
    sent(web, f"launches/{ID}/exists", 422)
    answer = web.client.post(f"/api/v1/launches/{ID}/exists", json={"instance": "7"})
    assert_problem(answer, 503)  # the provider does not list its instances
    got = sent(web, f"launches/{ID}/absent")
    assert (got["launch_id"], got["state"]) == (ID, all_launches(web.context.settings)[0].state.value)
    assert got["state"] not in {"held", "unknown"}
    sent(web, f"launches/{ID}/absent", 409)


def test_links_are_made_and_end(web: Served) -> None:
    link = sent(web, "share", shows="watch", name="cheap", **{"for": "1d"})
    path = "/" + link["url"].partition("://")[2].partition("/")[2]
    assert web.client.get(path).status_code == 200
    assert sent(web, "share/revoke") == {"revoked": True}
    assert web.client.get(path).status_code != 200
    sent(web, "share", 409, shows="watch", name="cheap", **{"for": "999d"})
    sent(web, "share", 404, shows="watch", name="cheep")


def test_a_rehearsal_names_what_is_missing(web: Served) -> None:
    got = sent(web, "watches/cheap/rehearse")
    assert (got["watch"], got["ready"], got["dry_run"]) == ("cheap", False, True)
    assert {line["text"] for line in got["lines"] if line["state"] == "missing"} == set(got["missing"])
