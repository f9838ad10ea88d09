"""Groups of watches on the pages, in requests, in the terminal and in the chat: one use case behind each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gpuwatch.app.alerts.alerts import silences
from gpuwatch.app.watches.pauses import pauses
from gpuwatch.bootstrap import real_now
from gpuwatch.chat.chat_actions import answer_command
from gpuwatch.chat.replies import ChatContext
from gpuwatch.cli import Exit, run
from gpuwatch.engine.alerts.alert_buttons import ButtonSigner
from tests.web.forms import form_fields
from tests.web.served import PAGE, Served, file_of, page, served

GROUPS = """
[defaults.watch]
gpu = "H100"
verified = true
[group.night]
max_price = 2.5
regions = ["EU", "NO"]
[group.day]
[[watch]]
name = "a"
group = "night"
[[watch]]
name = "b"
group = "night"
max_price = 2.0
[[watch]]
name = "c"
max_price = 1.0
"""


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, more=GROUPS) as found:
        yield found


def paused(web: Served) -> list[str | None]:
    return [one.watch for one in pauses(web.context.settings).in_force(real_now())]


def silenced(web: Served) -> list[str]:
    return [one.watch for one in silences(web.context.settings)]


def sent(web: Served, path: str, token: str, **fields: str) -> str:
    """Send a form and return where it leads."""
    answer = web.client.post(path, data={"csrf_token": token, **fields}, headers=PAGE)
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


def test_the_page_shows_the_watches_by_group_and_one_group_alone(web: Served) -> None:
    every = page(web, "/watches")
    assert every.index('href="/watches?group=night">night</a>, 2 watches') < every.index("Without a group, 1 watch")
    assert 'href="/groups/night/silence"' in every
    assert 'href="/pause?group=night"' in every
    assert "day</a>" not in every, "it has no watch"
    night = page(web, "/watches?group=night")
    assert all(f'id="watch-{name}"' in night for name in "ab")
    assert 'id="watch-c"' not in night
    answer = web.client.get("/watches?group=nigth", headers=PAGE)
    assert answer.status_code == 404
    assert "did you mean night?" in answer.text


def test_a_group_is_paused_and_resumed_from_its_page(web: Served) -> None:
    token = web.log_in()
    assert 'name="group" value="night"' in page(web, "/pause?group=night")
    assert sent(web, "/pause", token, group="night", **{"for": "8", "for_unit": "h"}) == "/watches?group=night"
    assert paused(web) == ["a", "b"]
    assert "Group night is paused." in page(web, "/watches?group=night")
    assert 'name="group" value="night"' in page(web, "/pause?group=night")
    sent(web, "/resume", token, group="night")
    assert paused(web) == []


def test_a_group_is_silenced_from_its_page(web: Served) -> None:
    token = web.log_in()
    assert "Silence group night?" in page(web, "/groups/night/silence")
    sent(web, "/groups/night/silence", token, **{"for": "6h"})
    assert silenced(web) == ["a", "b"]
    sent(web, "/groups/night/silence", token, **{"for": "end"})
    assert silenced(web) == []


def test_requests_name_a_group(web: Served) -> None:
    web.client.headers["X-CSRF-Token"] = web.log_in()

    def post(path: str, **body: str) -> httpx.Response:
        return web.client.post(f"/api/v1/{path}", json=body)

    assert [one["watch"] for one in post("pause", group="night").json()["items"]] == ["a", "b"]
    assert post("pause", group="night").json()["changed"] is False
    assert post("resume", group="night").json() == {"items": [], "changed": True}
    assert [one["watch"] for one in post("silence", group="night", **{"for": "6h"}).json()["items"]] == ["a", "b"]
    assert post("unsilence", group="night").json() == {"items": [], "changed": True}
    assert post("pause", group="nigth").status_code == 404
    assert post("pause", group="day").status_code == 409, "it has no watch, so that nothing was paused"
    assert post("pause", group="night", watch="a").status_code == 409
    assert post("silence", **{"for": "6h"}).status_code == 409
    listed = web.client.get("/api/v1/watches", params={"group": "night"}).json()["items"]
    assert [(one["name"], one["group"]) for one in listed] == [("a", "night"), ("b", "night")]
    assert web.client.get("/api/v1/watches", params={"group": "nigth"}).status_code == 404


def test_commands_name_a_group(
    web: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(web.folder)

    def ran(*argv: str) -> str:
        assert run(argv) == Exit.DONE
        return capsys.readouterr().out

    found = json.loads(ran("watches", "list", "--group", "night", "--json"))
    assert [(one["name"], one["group"], one["limit_usd_gpu_hour"]) for one in found] == [
        ("a", "night", 2.5),
        ("b", "night", 2.0),
    ]
    assert 'no watch has group = "day"' in ran("watches", "list", "--group", "day")
    status = json.loads(ran("status", "--group", "night", "--json"))
    assert [one["name"] for one in status["watches"]] == ["a", "b"]
    assert len(json.loads(ran("watches", "pause", "--group", "night", "--for", "2h", "--json"))) == 2
    assert "group 'night' resumed" in ran("watches", "resume", "--group", "night")
    assert len(json.loads(ran("alerts", "silence", "--group", "night", "--for", "2h", "--json"))) == 2
    assert json.loads(ran("alerts", "silence", "--group", "night", "--end", "--json")) == []
    ran("alerts", "silence", "c", "--for", "2h")
    assert json.loads(ran("alerts", "silence", "c", "--end", "--json")) == []
    for wrong in (
        ("watches", "pause", "--group", "nigth"),
        ("watches", "pause", "a", "--group", "night"),
        ("alerts", "silence", "--group", "night"),
        ("alerts", "silence", "--group", "night", "--list"),
        ("watches", "list", "a", "--group", "night"),
    ):
        assert run(wrong) == Exit.USAGE, wrong
    assert paused(web) == []


def test_the_chat_names_a_group(web: Served) -> None:
    settings = web.context.settings
    context = ChatContext(settings=settings, signer=ButtonSigner(b"secret", "1", lambda: "abc123"), now=real_now())

    def said(name: str, argument: str) -> str:
        lines = answer_command(context, name, argument).lines
        return "\n".join("".join(piece.text for piece in line.pieces) for line in lines)

    assert "2 watches" in said("watches", "night")
    assert "Renting by watch 'b' is paused" in said("pause", "group night 6h because maintenance")
    assert paused(web) == ["a", "b"]
    assert "Resumed: group night." in said("resume", "group night")
    assert "No offer alerts for group night until" in said("silence", "group night 6h")
    assert silenced(web) == ["a", "b"]
    assert "Group night sends alerts again." in said("silence", "group night end")
    assert "did you mean night?" in said("pause", "group nigth")
    assert (paused(web), silenced(web)) == ([], [])


def test_the_form_shows_what_is_inherited_and_writes_only_what_is_changed(web: Served) -> None:
    before, token = file_of(web), web.log_in()
    edit = page(web, "/watches/a/edit")
    assert 'name="f.max_price" value="2.5"' in edit
    assert "From group night; a change here is for this watch alone." in edit
    assert "From the defaults; a change here is for this watch alone." in edit

    def saved(**fields: str) -> httpx.Response:
        form = form_fields(web.client.get("/watches/a/edit", headers=PAGE).text, "/watches/save")
        return web.client.post("/watches/save", data={**form, "csrf_token": token, **fields}, headers=PAGE)

    assert saved().status_code == 303
    assert file_of(web) == before
    assert saved(**{"f.regions": "EU"}).status_code == 303
    assert file_of(web) == before.replace('group = "night"\n', 'group = "night"\nregions = ["EU"]\n', 1)
    assert saved(**{"f.regions": "", "f.verified": ""}).status_code == 303
    assert "regions = []\nverified = false\n" in file_of(web), "none of what it would inherit again"
